"""Which entities a DescribeClientQuotas asks for, and what it may not ask."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from klamm.broker.quotas.entities import CLIENT, IP, USER, Entity, Quotas
from klamm.protocol.errors import ErrorCode, InvalidRequest, KafkaError

TYPES = (USER, CLIENT, IP)


class Match(IntEnum):
    EXACT = 0
    DEFAULT = 1
    ANY = 2  # any that is named


class Component(NamedTuple):
    """The condition on one part of an entity. `name` belongs to an exact match."""

    entity_type: str
    match: Match
    name: str | None

    def fits(self, name: str | None) -> bool:
        if self.match is Match.EXACT:
            return name == self.name
        return (name is None) == (self.match is Match.DEFAULT)


def component(entity_type: str, match_type: int, name: str | None) -> Component:
    """Check one component. Raises InvalidRequest, and UNSUPPORTED_VERSION for a type of entity that is not known."""
    if not entity_type:
        raise InvalidRequest("the type of an entity is empty")
    if entity_type not in TYPES:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"there is no entity type {entity_type!r}")
    try:
        match = Match(match_type)
    except ValueError:
        raise InvalidRequest(f"{entity_type}: there is no match type {match_type}") from None
    if match is Match.EXACT and name is None:
        raise InvalidRequest(f"{entity_type}: an exact match needs a name")
    if match is not Match.EXACT and name is not None:
        raise InvalidRequest(f"{entity_type}: only an exact match has a name")
    return Component(entity_type, match, name)


def matching(quotas: Quotas, components: Iterable[Component], *, strict: bool) -> list[Entity]:
    """The entities that fit all components; if `strict` they have no other parts. Raises InvalidRequest."""
    wanted: dict[str, Component] = {}
    for each in components:
        if each.entity_type in wanted:
            raise InvalidRequest(f"entity type {each.entity_type} is asked for more than once")
        wanted[each.entity_type] = each
    if IP in wanted and len(wanted) > 1:
        raise InvalidRequest("an address has no quotas together with a user or a client id")
    if strict and not wanted:
        return []
    return [entity for entity in quotas if _fits(dict(entity), wanted, strict=strict)]


def _fits(parts: dict[str, str | None], wanted: dict[str, Component], *, strict: bool) -> bool:
    if strict and len(parts) != len(wanted):
        return False
    return all(kind in parts and each.fits(parts[kind]) for kind, each in wanted.items())
