"""What lets strangers in is a warning, and refused when the config is strict."""

from __future__ import annotations

import pytest

from klamm.config.broker_config import BrokerConfig
from klamm.config.definitions import ConfigError
from klamm.config.exposure import check_exposures, exposures, is_loopback


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("", False),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example.org", False),
    ],
)
def test_what_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_the_defaults_expose_nothing() -> None:
    assert exposures(BrokerConfig({})) == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"listeners": "PLAINTEXT://:9092"}, "PLAINTEXT://:9092"),
        ({"klamm.metrics.listener": "0.0.0.0:9404"}, "klamm.metrics.auth"),
    ],
)
def test_an_exposure_is_a_warning_or_strictly_a_refusal(settings: dict[str, str], words: str) -> None:
    (warning,) = check_exposures(BrokerConfig(settings))
    assert words in warning
    with pytest.raises(ConfigError, match=r"klamm\.security\.strict: ") as caught:
        check_exposures(BrokerConfig({**settings, "klamm.security.strict": "true"}))
    assert words in str(caught.value)


def test_metrics_with_authentication_or_none_are_not_exposed() -> None:
    for settings in ({"klamm.metrics.listener": "none"}, {"klamm.metrics.auth": "basic:/x"}):
        assert exposures(BrokerConfig({"klamm.metrics.listener": "0.0.0.0:1", **settings})) == []
