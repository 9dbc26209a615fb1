"""What the config of a listener with SASL may be, and what stops the start."""

from __future__ import annotations

import pytest

from klamm.broker.security.sasl.settings import is_loopback, read_settings
from klamm.config import ConfigError, load

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
USERS = f'listener.name.sasl_plaintext.plain.sasl.jaas.config={PLAIN_MODULE} required user_a="pw";'


def settings(*overrides, address="127.0.0.1:0", environ=None):
    config = load(None, [f"listeners=SASL_PLAINTEXT://{address}", *overrides], {})
    return read_settings(config, config.listeners[0], environ or {})


def test_the_users_of_plain_are_in_its_entry():
    found = settings("sasl.enabled.mechanisms=PLAIN", USERS)
    assert (dict(found.passwords), list(found.max_session_ms), found.max_frame_bytes) == (
        {"a": "pw"},
        ["PLAIN"],
        524288,
    )
    assert "pw" not in repr(found)


def test_scram_needs_no_entry():
    found = settings("sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256")
    assert [mechanism.name for mechanism in found.scram] == ["SCRAM-SHA-512", "SCRAM-SHA-256"]


def test_the_keys_of_the_listener_and_the_mechanism_hold():
    found = settings(
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
        USERS,
        "connections.max.reauth.ms=1",
        "listener.name.sasl_plaintext.scram-sha-256.connections.max.reauth.ms=2",
        "listener.name.sasl_plaintext.sasl.server.max.receive.size=1000",
    )
    assert (dict(found.max_session_ms), found.max_frame_bytes) == ({"PLAIN": 1, "SCRAM-SHA-256": 2}, 1000)


@pytest.mark.parametrize("section", ["KafkaServer", "sasl_plaintext.KafkaServer"])
@pytest.mark.parametrize("how", ["klamm.jaas.file", "KAFKA_OPTS"])
def test_the_users_may_be_in_a_login_file(tmp_path, section, how):
    file = tmp_path / "jaas.conf"
    file.write_text(f'{section} {{ {SCRAM_MODULE} required; {PLAIN_MODULE} required user_a="pw"; }};')
    environ = {"KAFKA_OPTS": f"-Xmx1g -Djava.security.auth.login.config={file}"} if how == "KAFKA_OPTS" else {}
    overrides = [f"klamm.jaas.file={file}"] if how == "klamm.jaas.file" else []
    found = settings("sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256", *overrides, environ=environ)
    assert found.passwords == {"a": "pw"}


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ([], "sasl.enabled.mechanisms=GSSAPI: SASL_PLAINTEXT can have PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        (["sasl.enabled.mechanisms="], "sasl.enabled.mechanisms=: "),
        (["sasl.enabled.mechanisms=plain"], "can have PLAIN"),
        (["sasl.enabled.mechanisms=PLAIN"], "listener.name.sasl_plaintext.plain.sasl.jaas.config is not set"),
        (["sasl.enabled.mechanisms=PLAIN", USERS.rstrip(";")], "sasl.jaas.config: .* is missing"),
        (["sasl.enabled.mechanisms=PLAIN", USERS + USERS.partition("=")[2]], "one entry, there are 2"),
        (["sasl.enabled.mechanisms=PLAIN", USERS.replace("PlainLogin", "LdapLogin")], "needs the login module"),
        (["sasl.enabled.mechanisms=PLAIN", "klamm.jaas.file=/nowhere/x"], "/nowhere/x cannot be read"),
        (
            ["sasl.enabled.mechanisms=SCRAM-SHA-256", "sasl.server.callback.handler.class=x.Y"],
            "sasl.server.callback.handler.class: Java classes cannot run here",
        ),
    ],
)
def test_what_stops_the_start(overrides, problem):
    with pytest.raises(ConfigError, match=problem) as refused:
        settings(*overrides)
    assert "pw" not in str(refused.value)


@pytest.mark.parametrize("address", ["0.0.0.0:0", ":0", "10.0.0.1:0", "broker.example:0", "[::]:0"])
def test_plain_without_tls_stays_on_the_loopback_unless_it_is_allowed(address):
    with pytest.raises(ConfigError, match="clear text"):
        settings("sasl.enabled.mechanisms=PLAIN", USERS, address=address)
    settings("sasl.enabled.mechanisms=PLAIN", USERS, "klamm.sasl.plain.without.tls=true", address=address)
    settings("sasl.enabled.mechanisms=SCRAM-SHA-256", address=address)


def test_loopback_addresses():
    assert all(map(is_loopback, ["127.0.0.1", "127.1.2.3", "::1", "localhost"]))
    assert not any(map(is_loopback, ["", "0.0.0.0", "::", "10.0.0.1", "localhost.example"]))
