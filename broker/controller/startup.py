"""The startup of the controller: its work on the store before clients are served.

One transaction creates the nodes that every cluster has, registers the broker and the controller, and increments the
controller epoch. A second one, only after an unclean stop, gives every partition a new leader epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from klamm.broker.controller import features
from klamm.broker.metadata import codec, paths
from klamm.broker.metadata.image import BrokerImage, MetadataImage
from klamm.broker.metadata.store import Create, MetadataStore, NoNode, Operation, Set, StoreCorrupt
from klamm.protocol.errors import UnknownServerError
from klamm.protocol.wire import uuid_to_text


class WrongCluster(Exception):
    """The store belongs to another cluster than the expected one."""


@dataclass(frozen=True, slots=True)
class StartupResult:
    """The state at startup; ``deleting`` are topics of the image with an unfinished deletion."""

    image: MetadataImage
    controller_epoch: int
    deleting: frozenset[str]


def start(
    store: MetadataStore,
    broker: BrokerImage,
    *,
    clean: bool,
    cluster_id: str | None,
    random_bytes: Callable[[int], bytes],
    now_ms: int,
) -> StartupResult:
    """Prepare the store and load the image. Raises StoreError, WrongCluster."""
    operations: list[Operation] = [Create(path, make_parents=True) for path in paths.SKELETON if not store.exists(path)]
    stored_id = _cluster_id(store)
    if stored_id is not None and cluster_id is not None and stored_id != cluster_id:
        raise WrongCluster(f"the metadata belong to cluster {stored_id}, not to {cluster_id}")
    new_id = stored_id or cluster_id or uuid_to_text(new_uuid(random_bytes))
    if stored_id is None:
        value = paths.to_json({"version": "1", "id": new_id})
        operations.append(Create(paths.CLUSTER_ID, value, make_parents=True))
    if not store.exists(paths.FEATURES):
        operations.append(Create(paths.FEATURES, codec.features_value(features.INITIAL)))
    epoch = _next_controller_epoch(store, operations)
    operations += [
        Create(paths.broker_id(broker.node_id), codec.broker_value(broker, now_ms), ephemeral=True),
        Create(
            paths.CONTROLLER,
            paths.to_json({"version": 1, "brokerid": broker.node_id, "timestamp": str(now_ms)}),
            ephemeral=True,
        ),
    ]
    store.multi(operations)
    image = codec.load_image(store, cluster_id=new_id, controller_id=broker.node_id)
    image = replace(image, broker_configs={str(broker.node_id): {}, **image.broker_configs})
    if not clean:
        image = bump_leader_epochs(store, image, epoch)
    deleting = frozenset(name for name in store.children(paths.DELETE_TOPICS))
    return StartupResult(image, epoch, deleting)


def bump_leader_epochs(store: MetadataStore, image: MetadataImage, controller_epoch: int) -> MetadataImage:
    """Give every partition that has a leader a new leader epoch, durably. Return the new image."""
    operations: list[Operation] = []
    changed = []
    for topic in image.topics.values():
        partitions = []
        for partition in topic.partitions:
            bumped = replace(partition, leader_epoch=partition.leader_epoch + 1) if partition.leader >= 0 else partition
            partitions.append(bumped)
            value = codec.partition_value(bumped, controller_epoch)
            operations.append(Set(paths.partition_state(topic.name, partition.index), value))
        changed.append(replace(topic, partitions=tuple(partitions)))
    if not operations:
        return image
    store.multi(operations)
    return image.with_topics(changed)


def new_uuid(random_bytes: Callable[[int], bytes]) -> bytes:
    """Return a random uuid (version 4). Its text does not begin with a dash, which command lines would take for an
    option.
    """
    while True:
        value = bytearray(random_bytes(16))
        value[6] = value[6] & 0x0F | 0x40
        value[8] = value[8] & 0x3F | 0x80
        if not uuid_to_text(bytes(value)).startswith("-"):
            return bytes(value)


def next_producer_id_block(store: MetadataStore, node_id: int, size: int, last: int) -> tuple[int, Operation]:
    """Return the first id of the next block, and the operation that takes the block."""
    path = paths.PRODUCER_ID_BLOCK
    try:
        node = store.get(path)
    except NoNode:
        return 0, Create(path, _block(node_id, 0, size))
    value: dict[str, Any] = paths.from_json(path, node.value)
    try:
        first = int(value["block_end"]) + 1
    except (KeyError, TypeError, ValueError):
        raise StoreCorrupt(f"metadata node {path} has no block_end") from None
    if first > last - size:
        raise UnknownServerError("all producer ids have been given away")
    return first, Set(path, _block(node_id, first, size), node.version)


def producer_ids_given(node_id: int, next_producer_id: int) -> Operation:
    """Return the operation that marks all ids below as used, in a new store."""
    return Create(paths.PRODUCER_ID_BLOCK, _block(node_id, 0, next_producer_id))


def _block(node_id: int, first: int, size: int) -> bytes:
    return paths.to_json(
        {"version": 1, "broker": node_id, "block_start": str(first), "block_end": str(first + size - 1)}
    )


def _cluster_id(store: MetadataStore) -> str | None:
    try:
        node = store.get(paths.CLUSTER_ID)
    except NoNode:
        return None
    value = paths.from_json(paths.CLUSTER_ID, node.value).get("id")
    if not isinstance(value, str) or not value:
        raise StoreCorrupt(f"metadata node {paths.CLUSTER_ID} has no id")
    return value


def _next_controller_epoch(store: MetadataStore, operations: list[Operation]) -> int:
    try:
        node = store.get(paths.CONTROLLER_EPOCH)
    except NoNode:
        operations.append(Create(paths.CONTROLLER_EPOCH, b"1"))
        return 1
    try:
        epoch = int(node.value) + 1
    except ValueError:
        raise StoreCorrupt(f"metadata node {paths.CONTROLLER_EPOCH} is not a number") from None
    operations.append(Set(paths.CONTROLLER_EPOCH, str(epoch).encode(), node.version))
    return epoch
