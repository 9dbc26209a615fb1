"""What AlterClientQuotas may change: the entity and the values of each entry are checked, all or none of them.

Stricter than Apache Kafka in two places: a type that stands twice in an entity is refused there (Kafka takes the last),
and so is a value too small or too large to be of use (a rate of 1e-300 would throttle for ever).
"""

from __future__ import annotations

import ipaddress
import math
import socket
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from klamm.broker.quotas.entities import (
    CLIENT,
    CONNECTION,
    FETCH,
    IP,
    MUTATION,
    PRODUCE,
    REQUEST,
    USER,
    Entity,
    Part,
    entity,
)
from klamm.protocol.errors import InvalidRequest

MAX_LONG: Final = float(2**63 - 1)
MAX_INT: Final = float(2**31 - 1)
LEAST: Final = 1e-6
FRACTION: Final = 1e-6  # less is taken for an error of rounding

WHOLE: Final[Mapping[str, float]] = {PRODUCE: MAX_LONG, FETCH: MAX_LONG, CONNECTION: MAX_INT}
OF_CLIENTS: Final = frozenset({PRODUCE, FETCH, REQUEST, MUTATION})
OF_ADDRESSES: Final = frozenset({CONNECTION})


class Op(NamedTuple):
    """Set `key` to `value`, or remove it."""

    key: str
    value: float
    remove: bool


def check_entity(parts: Iterable[Part]) -> Entity:
    """The entity that has these parts. Raises InvalidRequest. A host name is looked up, which may block."""
    found: dict[str, str | None] = {}
    for kind, name in parts:
        if kind not in (USER, CLIENT, IP):
            raise InvalidRequest(f"there is no entity type {kind!r}")
        if kind in found:
            raise InvalidRequest(f"entity type {kind} is given more than once")
        if name == "":
            raise InvalidRequest(f"the name of a {kind} is empty; the default entity has none (null)")
        found[kind] = name
    if not found:
        raise InvalidRequest("there is no entity")
    if IP in found:
        if len(found) > 1:
            raise InvalidRequest("an address has no quotas together with a user or a client id")
        _check_address(found[IP])
    return entity(found.items())


def _check_address(address: str | None) -> None:
    if address is None:
        return
    try:
        ipaddress.ip_address(address)
    except ValueError:
        try:
            socket.getaddrinfo(address, None)
        except (OSError, UnicodeError) as error:
            raise InvalidRequest(f"{address!r} is not a valid IP or resolvable host: {error}") from None


def apply(whom: Entity, current: Mapping[str, float], ops: Iterable[Op]) -> dict[str, float]:
    """The values after the changes. Raises InvalidRequest."""
    allowed = OF_ADDRESSES if whom[0][0] == IP else OF_CLIENTS
    new = dict(current)
    seen: set[str] = set()
    for op in ops:
        if op.key in seen:
            raise InvalidRequest(f"{op.key} is changed more than once")
        seen.add(op.key)
        if op.remove:
            new.pop(op.key, None)
        else:
            if op.key not in allowed:
                raise InvalidRequest(f"{op.key!r} is no quota of this kind of entity")
            new[op.key] = check_value(op.key, op.value)
    return new


def check_value(key: str, value: float) -> float:
    """The value that is stored. Raises InvalidRequest."""
    if not math.isfinite(value):
        raise InvalidRequest(f"{key} must be a finite number")
    if value <= 0:
        raise InvalidRequest(f"{key} must be greater than 0")
    most = WHOLE.get(key)
    if most is None:
        if not LEAST <= value <= MAX_LONG:
            raise InvalidRequest(f"{key}={value} is not in [{LEAST}, {MAX_LONG}]")
        return value
    if value > most:
        raise InvalidRequest(f"{key}={value} is greater than {most:.0f}")
    if abs(value - round(value)) > FRACTION or round(value) < 1:
        raise InvalidRequest(f"{key} cannot be a fractional value")
    return float(round(value))
