"""Which of the prefixed and bare keys a listener, and a mechanism of it, goes by."""

from __future__ import annotations

import pytest

from klamm.config import ConfigError, describe_broker, listener_config, load
from klamm.config.broker_keys import SASL_MECHANISMS

KEY = "connections.max.reauth.ms"


@pytest.mark.parametrize(
    ("overrides", "of_mechanism", "of_listener"),
    [
        ([], 0, 0),
        ([f"{KEY}=1"], 1, 1),
        ([f"{KEY}=1", f"listener.name.inside.{KEY}=2"], 2, 2),
        ([f"{KEY}=1", f"listener.name.inside.{KEY}=2", f"listener.name.inside.scram-sha-256.{KEY}=3"], 3, 2),
        ([f"listener.name.inside.plain.{KEY}=3", f"listener.name.outside.{KEY}=4"], 0, 0),
    ],
)
def test_the_narrowest_key_that_is_set_holds(overrides, of_mechanism, of_listener):
    config = load(None, overrides, {})
    assert listener_config(config, "INSIDE", "SCRAM-SHA-256").integer(KEY) == of_mechanism
    assert listener_config(config, "INSIDE").integer(KEY) == of_listener


def test_a_key_set_only_without_prefix_has_no_prefixed_name():
    config = load(None, ["ssl.client.auth=required"], {})
    inside = listener_config(config, "INSIDE")
    assert (inside.prefixed_name("ssl.client.auth"), inside.text("ssl.client.auth")) == (None, "required")
    assert inside.is_set("ssl.client.auth")
    assert not inside.is_set("ssl.keystore.location")


@pytest.mark.parametrize("mechanism", SASL_MECHANISMS)
def test_a_mechanisms_key_is_read_and_hidden_as_the_bare_one_is(mechanism):
    prefix = f"listener.name.inside.{mechanism.lower()}."
    with pytest.raises(ConfigError, match="Not a number"):
        load(None, [f"{prefix}{KEY}=x"], {})
    config = load(None, [f"{prefix}sasl.jaas.config=secret"], {})
    (entry,) = describe_broker(config, [f"{prefix}sasl.jaas.config"])
    assert (entry.value, entry.sensitive) == (None, True)
    assert all(place.text is None for place in entry.synonyms)
