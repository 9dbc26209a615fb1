"""Listener addresses: `NAME://host:port`, their security protocols, and the ones that Klamm opens.

Names are upper case in Kafka, and are compared so here. No host means all interfaces. IPv6 addresses are in brackets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from klamm.config.definitions import ConfigError

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ADDRESS: Final = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([^\]]*)\]|([^:/\[\]]*)):(-?[0-9]{1,9})", re.ASCII)


class Listener(NamedTuple):
    """An address. `host` is empty for all interfaces (`listeners`) or the address dialled (`advertised.listeners`)."""

    name: str
    host: str
    port: int
    protocol: str

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    def __str__(self) -> str:
        return f"{self.name}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def parse_protocol_map(text: str) -> dict[str, str]:
    """Parse `NAME:PROTOCOL,...` of listener.security.protocol.map."""
    protocols: dict[str, str] = {}
    for pair in filter(None, (item.strip() for item in text.split(","))):
        name, colon, protocol = (part.strip() for part in pair.rpartition(":"))
        if not colon or not name or protocol.upper() not in PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map: {pair!r} is not NAME:PROTOCOL with one of {', '.join(PROTOCOLS)}"
            )
        if name.upper() in protocols:
            raise ConfigError(f"listener.security.protocol.map: {name} occurs twice")
        protocols[name.upper()] = protocol.upper()
    return protocols


def parse_listeners(
    key: str, addresses: Sequence[str], protocols: dict[str, str], controller_names: Sequence[str]
) -> list[Listener]:
    """Return every listener of `addresses`, the controller's included. `key` is the config key, for messages."""
    found: list[Listener] = []
    for address in addresses:
        match = _ADDRESS.fullmatch(address)
        if match is None:
            raise ConfigError(f"{key}: {address!r} is not NAME://host:port")
        name, host, port = match[1].upper(), (match[2] if match[2] is not None else match[3]), int(match[4])
        if not 0 <= port <= 65535:
            raise ConfigError(f"{key}: port {port} of {address} is not in 0 to 65535")
        protocol = protocols.get(name)
        if protocol is None:
            if name not in controller_names:
                raise ConfigError(
                    f"{key}: no security protocol for {name}; add {name}:PLAINTEXT to listener.security.protocol.map"
                )
            protocol = "PLAINTEXT"
        found.append(Listener(name, host, port, protocol))
    _check_distinct(key, found)
    return found


def _check_distinct(key: str, found: Sequence[Listener]) -> None:
    names = [listener.name for listener in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{key}: each listener needs its own name, {name} occurs twice")
    if key != "listeners":
        return
    for number, one in enumerate(found):
        for other in found[number + 1 :]:
            if one.port == other.port != 0 and not _separate(one.host, other.host):
                raise ConfigError(f"{key}: {one} and {other} use the same port")


def _separate(one: str, other: str) -> bool:
    """Return whether two hosts may share a port: one is an IPv4, the other an IPv6 address."""
    return bool(one and other) and (":" in one) != (":" in other)


def open_listeners(found: Sequence[Listener], controller_names: Sequence[str]) -> list[Listener]:
    """Return the listeners that Klamm opens: not KRaft's."""
    mine = [listener for listener in found if listener.name not in controller_names]
    if not mine:
        raise ConfigError(
            "listeners: no listener is left beside those of controller.listener.names; add PLAINTEXT://127.0.0.1:9092"
        )
    return mine


def check_advertised(
    advertised: Sequence[Listener], opened: Sequence[Listener], controller_names: Sequence[str]
) -> list[Listener]:
    """Return the advertised addresses of opened listeners. Refuse other names, and addresses that cannot be dialled."""
    names = {listener.name for listener in opened}
    for listener in advertised:
        if listener.name in controller_names:
            continue
        if listener.name not in names:
            raise ConfigError(
                f"advertised.listeners: {listener.name} is not among listeners ({', '.join(sorted(names))})"
            )
        if listener.host in ("0.0.0.0", "::"):
            raise ConfigError(f"advertised.listeners: {listener} cannot be dialled; name an address that clients reach")
    return [listener for listener in advertised if listener.name in names]
