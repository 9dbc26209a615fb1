"""The log directory in which each partition was created, kept with the metadata.

Without this record, the partitions of a lost log directory would be created again, empty. The record is written after a
partition is created and before it is served. A partition without a record was never served (the process died between
the two), so it is created. A partition with a record is offline until its directory is back (docs/faults.md, storage
rows 12, 33). Directories are named by the ``directory.id`` of their ``meta.properties``, as their paths may change.

There is one node per topic and broker, below the topic's node, so that it is deleted with the topic:
``{"version": 1, "directories": {"<directory.id>": [0, 2], "<directory.id>": [1]}}``.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from klamm.broker.metadata import paths
from klamm.broker.metadata.store import Create, MetadataStore, Operation, Set, StoreCorrupt
from klamm.protocol.errors import KafkaError
from klamm.storage.paths import TopicPartition

if TYPE_CHECKING:
    from klamm.broker.controller.controller import Controller
    from klamm.broker.metadata.image import TopicImage
    from klamm.storage.log_manager import LogManager

log = logging.getLogger(__name__)

Directories = Mapping[int, str]  # by partition


class DirectoryAssignments:
    """The stored assignments. ``of`` has, by topic, the directory of each partition; `forget` removes a deleted topic.

    A failed write is repeated by `retry`, and by the next start.
    """

    def __init__(self, controller: Controller, logs: LogManager) -> None:
        self._controller = controller
        self._logs = logs
        self._unsaved: dict[str, TopicImage] = {}
        self.of: dict[str, Directories] = {}

    def load(self) -> None:
        """Read all assignments; blocks. Leaves out topics that are being deleted. Raises KafkaStorageError."""
        self.of = self._controller.with_store_now(self._read)

    def save_now(self, topics: Collection[TopicImage]) -> None:
        """Store the directories of these topics' partitions durably; blocks."""
        changed = self._changed(topics)
        try:
            self._controller.with_store_now(lambda store: self._write(store, changed))
        except KafkaError as error:
            self._failed(topics, error)

    async def save(self, topics: Collection[TopicImage]) -> None:
        """Store the directories of these topics' partitions durably, from the loop."""
        changed = self._changed(topics)
        try:
            await self._controller.with_store(lambda store: self._write(store, changed))
        except KafkaError as error:
            self._failed(topics, error)

    def save_later(self, topics: Iterable[TopicImage]) -> None:
        """Leave these topics to `retry`."""
        self._unsaved.update((topic.name, topic) for topic in topics)

    async def retry(self, topic_ids: Container[bytes]) -> None:
        """Repeat failed writes, for topics that still exist."""
        if self._unsaved:
            unsaved, self._unsaved = self._unsaved, {}
            await self.save([topic for topic in unsaved.values() if topic.topic_id in topic_ids])

    def forget(self, topic: str) -> None:
        self.of.pop(topic, None)
        self._unsaved.pop(topic, None)

    def _failed(self, topics: Collection[TopicImage], error: KafkaError) -> None:
        log.warning("directory assignments were not stored, topics=%d: %s", len(topics), error.message)
        self.save_later(topics)

    def _changed(self, topics: Iterable[TopicImage]) -> dict[str, Directories]:
        """Return the directories of partitions, for topics with a change since the last write."""
        changed: dict[str, Directories] = {}
        for topic in topics:
            recorded = self.of.get(topic.name, {})
            places = dict(recorded)
            for partition in topic.partitions:
                directory_id = self._logs.directory_id_of(TopicPartition(topic.name, partition.index))
                if directory_id:
                    places[partition.index] = directory_id
            if places != recorded:
                changed[topic.name] = places
        return changed

    def _read(self, store: MetadataStore) -> dict[str, Directories]:
        deleting = frozenset(store.children(paths.DELETE_TOPICS))
        found: dict[str, Directories] = {}
        for path, node in store.subtree(paths.TOPICS):
            topic = path[len(paths.TOPICS) + 1 :].partition("/")[0]
            if path == paths.directories(topic, self._controller.node_id) and topic not in deleting:
                found[topic] = _decoded(path, paths.from_json(path, node.value))
        return found

    def _write(self, store: MetadataStore, changed: Mapping[str, Directories]) -> None:
        operations: list[Operation] = []
        written = {}
        for topic, directories in changed.items():
            if not store.exists(paths.topic(topic)):
                continue  # deleted meanwhile
            path = paths.directories(topic, self._controller.node_id)
            value = encoded(directories)
            operations.append(Set(path, value) if store.exists(path) else Create(path, value, make_parents=True))
            written[topic] = directories
        if operations:
            store.multi(operations)
            self.of.update(written)


def encoded(directories: Directories) -> bytes:
    """Return the value of the node."""
    partitions: dict[str, list[int]] = {}
    for index, directory in sorted(directories.items()):
        partitions.setdefault(directory, []).append(index)
    return paths.to_json({"version": 1, "directories": partitions})


def _decoded(path: str, value: Mapping[str, Any]) -> dict[int, str]:
    try:
        return {int(index): str(name) for name, indexes in value["directories"].items() for index in indexes}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreCorrupt(f"metadata node {path} lacks its shape: {error!r}") from None
