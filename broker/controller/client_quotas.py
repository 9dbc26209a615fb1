"""Plans changes of client quotas: each entry for itself, all of its values or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from klamm.broker.metadata import paths, security_nodes
from klamm.broker.metadata.store import Create, Delete, Operation, Set
from klamm.broker.quotas.alterations import Op, apply, check_entity
from klamm.broker.quotas.entities import NO_QUOTAS, Entity, Part, Quotas
from klamm.protocol.errors import InvalidRequest, KafkaError
from klamm.protocol.wire import fits_string

if TYPE_CHECKING:
    from klamm.broker.metadata.image import MetadataImage


class Alteration(NamedTuple):
    """One entry of AlterClientQuotas; the parts of the entity as they were given."""

    parts: Sequence[Part]
    ops: Sequence[Op]


class QuotaPlan(NamedTuple):
    """A plan: an error or None for each entry, the operations to store, and the changed entities."""

    errors: list[KafkaError | None]
    operations: list[Operation]
    changed: Quotas


def plan(image: MetadataImage, alterations: Iterable[Alteration]) -> QuotaPlan:
    """Blocks while the name of an address is looked up."""
    errors: list[KafkaError | None] = []
    operations: list[Operation] = []
    changed: dict[Entity, dict[str, float]] = {}
    alterations = list(alterations)
    counts = Counter(frozenset(alteration.parts) for alteration in alterations)
    for alteration in alterations:
        try:
            entity = check_entity(alteration.parts)
            if counts[frozenset(alteration.parts)] > 1:
                raise InvalidRequest("the entity is in the request more than once")
            if not all(name is None or fits_string(name) for _, name in entity):
                raise InvalidRequest("the name of the entity is too long")
            current = image.client_quotas.get(entity, {})
            changed[entity] = new = apply(entity, current, alteration.ops)
        except KafkaError as error:
            errors.append(error.without_frames())
            continue
        operations += _operations(entity, current, new)
        errors.append(None)
    return QuotaPlan(errors, operations, changed if operations else NO_QUOTAS)


def creation(entity: Entity, values: Mapping[str, float]) -> list[Operation]:
    """The changes of the store that set the quotas of an entity that has none."""
    return _operations(entity, {}, values)


def _operations(entity: Entity, current: Mapping[str, float], new: Mapping[str, float]) -> list[Operation]:
    operations: list[Operation] = []
    for key, value in new.items():
        if current.get(key) != value:
            path, stored = paths.client_quota(entity, key), security_nodes.client_quota_value(entity, key, value)
            operations.append(Set(path, stored) if key in current else Create(path, stored, make_parents=True))
    if not new and current:
        return [Delete(paths.client_quota_entity(entity), recursive=True)]
    operations += [Delete(paths.client_quota(entity, key)) for key in current if key not in new]
    return operations
