"""Offsets of the ZooKeeper era: OffsetCommit and OffsetFetch v0 store them apart from ``__consumer_offsets``.

    /consumers/<group>/offsets/<topic>/<partition>   the offset as decimal text

These are the nodes of Kafka 0.8's high-level consumer, in the metadata store. Clients that commit with v0 and clients
that commit with v1 or newer do not see each other's offsets; a migration by dual commits relies on that. There is no
metadata text and no expiry. A commit is durable before its response.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from klamm.broker.metadata.store import Create, MetadataStore, NoNode, Operation, Set
from klamm.protocol.errors import InvalidGroupId

if TYPE_CHECKING:
    from klamm.broker.controller.controller import Controller

CONSUMERS = "/consumers"


def path(group_id: str, topic: str, partition: int) -> str:
    """Return the node of an offset. Raises InvalidGroupId for a group that cannot be part of a path."""
    if not group_id or "/" in group_id or group_id in (".", ".."):
        raise InvalidGroupId(f"{group_id!r} cannot be the id of a group with offsets of version 0")
    return f"{CONSUMERS}/{group_id}/offsets/{topic}/{partition}"


async def commit(controller: Controller, group_id: str, offsets: Sequence[tuple[str, int, int]]) -> None:
    """Store (topic, partition, offset). Raises InvalidGroupId, KafkaStorageError."""
    wanted = {path(group_id, topic, partition): str(offset).encode() for topic, partition, offset in offsets}

    def work(store: MetadataStore) -> None:
        operations: list[Operation] = [
            Set(where, value) if store.exists(where) else Create(where, value, make_parents=True)
            for where, value in wanted.items()
        ]
        store.multi(operations)

    await controller.with_store(work)


async def fetch(controller: Controller, group_id: str, partitions: Sequence[tuple[str, int]]) -> list[int | None]:
    """Return the offset of each partition; None where there is none. Raises InvalidGroupId, KafkaStorageError."""
    wanted = [path(group_id, topic, partition) for topic, partition in partitions]

    def work(store: MetadataStore) -> list[int | None]:
        return [_offset(store, where) for where in wanted]

    return await controller.with_store(work)


def _offset(store: MetadataStore, where: str) -> int | None:
    try:
        return int(store.get(where).value)
    except (NoNode, ValueError):
        return None
