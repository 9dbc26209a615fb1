"""Listener addresses: names, hosts, protocols, and refused values."""

from __future__ import annotations

import pytest

from klamm.config import ConfigError, Listener, load


def config(*overrides: str):
    return load(None, overrides, {})


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("PLAINTEXT://:9092", "", 9092),
        ("PLAINTEXT://0.0.0.0:0", "0.0.0.0", 0),
        ("plaintext://localhost:65535", "localhost", 65535),
        ("PLAINTEXT://[::1]:9092", "::1", 9092),
        ("PLAINTEXT://[fe80::1%eth0]:9092", "fe80::1%eth0", 9092),
    ],
)
def test_addresses(address, host, port):
    assert config(f"listeners={address}").listeners == [Listener("PLAINTEXT", host, port, "PLAINTEXT")]


@pytest.mark.parametrize(
    "address",
    ["PLAINTEXT:9092", "PLAINTEXT://host", "://host:1", "PLAINTEXT://::1:9092", "PLAINTEXT://h:70000", "P://h:-1", "x"],
)
def test_malformed_addresses_are_refused(address):
    with pytest.raises(ConfigError, match="listeners: "):
        config(f"listeners={address}")


def test_an_address_is_shown_with_brackets_when_it_is_ipv6():
    assert str(config("listeners=PLAINTEXT://[::1]:9092").listeners[0]) == "PLAINTEXT://[::1]:9092"


def test_names_are_mapped_to_protocols():
    mapped = config(
        "listeners=INSIDE://a:1,OUTSIDE://b:2", "listener.security.protocol.map=inside:PLAINTEXT,OUTSIDE:plaintext"
    )
    assert [(listener.name, listener.protocol) for listener in mapped.listeners] == [
        ("INSIDE", "PLAINTEXT"),
        ("OUTSIDE", "PLAINTEXT"),
    ]


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (["listeners=INSIDE://a:1"], "no security protocol for INSIDE"),
        (["listener.security.protocol.map=A:TLS"], "is not NAME:PROTOCOL"),
        (["listener.security.protocol.map=A:SSL,a:SSL"], "a occurs twice"),
        (["listeners=PLAINTEXT://a:1,PLAINTEXT://b:2"], "PLAINTEXT occurs twice"),
        (
            ["listeners=A://:1,B://x:1", "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"],
            "A://:1 and B://x:1 use the same port",
        ),
        (["listeners=CONTROLLER://:1", "controller.listener.names=CONTROLLER"], "no listener is left"),
        (["listeners="], "values must not be empty"),
        (
            ["advertised.listeners=OTHER://h:1", "listener.security.protocol.map=OTHER:PLAINTEXT,PLAINTEXT:PLAINTEXT"],
            "not among",
        ),
        (["advertised.listeners=PLAINTEXT://0.0.0.0:9092"], "cannot be dialled"),
        (["inter.broker.listener.name=INSIDE"], "INSIDE is not among listeners"),
        (["inter.broker.listener.name=PLAINTEXT", "security.inter.broker.protocol=PLAINTEXT"], "Only one of"),
    ],
)
def test_what_does_not_fit_together_is_refused(overrides, problem):
    with pytest.raises(ConfigError, match=problem):
        config(*overrides)


def test_one_port_may_serve_ipv4_and_ipv6():
    both = config("listeners=A://127.0.0.1:9,B://[::1]:9", "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT")
    assert [listener.port for listener in both.listeners] == [9, 9]


def test_several_listeners_may_take_free_ports():
    both = config("listeners=A://:0,B://:0", "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT")
    assert len(both.listeners) == 2


def test_a_listener_may_have_its_own_limit():
    limited = config("listener.name.plaintext.max.connections=7", "max.connections=9")
    assert limited["listener.name.plaintext.max.connections"] == 7
    assert limited["max.connections"] == 9
    with pytest.raises(ConfigError, match=r"listener.name.plaintext.max.connections|max.connections: "):
        config("listener.name.plaintext.max.connections=x")
