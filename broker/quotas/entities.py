"""The entities of quotas as they are stored and described, and the choice of the one that holds for a client.

An entity has parts: a user, a client id, both, or an address (ip). A part with no name is the default of its type.
For each kind of quota, the first of `levels` that has a value holds for a client. It also says which clients share the
measured rate: a quota of a user is shared by all of the user's clients, one of the default user is each user's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

USER: Final = "user"
CLIENT: Final = "client-id"
IP: Final = "ip"

PRODUCE: Final = "producer_byte_rate"
FETCH: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
MUTATION: Final = "controller_mutation_rate"
CONNECTION: Final = "connection_creation_rate"

Part: TypeAlias = "tuple[str, str | None]"
Entity: TypeAlias = "tuple[Part, ...]"
"""The parts, ordered by their types."""

Quotas: TypeAlias = "Mapping[Entity, Mapping[str, float]]"
SensorKey: TypeAlias = "tuple[str | None, str | None]"
"""User and client id that share a measure; None where it is shared by all of them."""

NO_QUOTAS: Quotas = {}


def entity(parts: Iterable[Part]) -> Entity:
    """The entity with these parts, of which no two have the same type."""
    return tuple(sorted(parts, key=lambda part: part[0]))


def levels(user: str, client: str) -> Iterator[tuple[Entity, SensorKey]]:
    """Yield the entities with quotas for a client, and the key of the shared sensor; the first that is set wins."""
    one, every = (USER, user), (USER, None)
    client_id, any_client = (CLIENT, client), (CLIENT, None)
    yield (client_id, one), (user, client)
    yield (any_client, one), (user, client)
    yield (one,), (user, None)
    yield (client_id, every), (user, client)
    yield (any_client, every), (user, client)
    yield (every,), (user, None)
    yield (client_id,), (None, client)
    yield (any_client,), (None, client)


def find(quotas: Quotas, kind: str, user: str, client: str) -> tuple[SensorKey, float] | None:
    """Return the bound of this kind that holds for a client, and the key of its sensor; None without a quota."""
    for each, shared_by in levels(user, client):
        values = quotas.get(each)
        if values is not None and kind in values:
            return shared_by, values[kind]
    return None


def address_bound(quotas: Quotas, address: str) -> float | None:
    """How many connections an address may make in a second; None without a quota."""
    for each in (((IP, address),), ((IP, None),)):
        values = quotas.get(each)
        if values is not None and CONNECTION in values:
            return values[CONNECTION]
    return None
