"""In which log directory each partition was made, kept with the metadata.

A log directory that is gone takes everything it knew along, so that its partitions would begin again, empty. What is
written here, once a partition has been made and before it is served, tells them from partitions that were never made:
those are (the process died between the two), the others are offline until the directory is back (FAULTS, storage rows
12 and 33). Directories are named by the ``directory.id`` of their ``meta.properties``, as their paths may change.

One node per topic and broker, below the topic's, so that it goes when the topic goes:
``{"version": 1, "directories": {"<directory.id>": [0, 2], "<directory.id>": [1]}}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from klamm.broker.metadata import paths
from klamm.broker.metadata.store import Create, MetadataStore, Operation, Set, StoreCorrupt

if TYPE_CHECKING:
    from klamm.broker.controller.controller import Controller

Directories = Mapping[int, str]  # by partition


class DirectoryRecord:
    """``of`` is what is stored: by topic, the directory of each partition. A deleted topic leaves with `forget`."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.of: dict[str, Directories] = {}

    def load(self) -> None:
        """Read everything; blocks. Topics whose deletion is under way are left out. Raises KafkaStorageError."""
        self.of = self._controller.with_store_now(self._read)

    def save_now(self, changed: Mapping[str, Directories]) -> None:
        """Make these durable; blocks. Raises KafkaStorageError."""
        self._controller.with_store_now(lambda store: self._write(store, changed))

    async def save(self, changed: Mapping[str, Directories]) -> None:
        """The same on the loop."""
        await self._controller.with_store(lambda store: self._write(store, changed))

    def forget(self, topic: str) -> None:
        self.of.pop(topic, None)

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
    """The value of the node."""
    partitions: dict[str, list[int]] = {}
    for index, directory in sorted(directories.items()):
        partitions.setdefault(directory, []).append(index)
    return paths.to_json({"version": 1, "directories": partitions})


def _decoded(path: str, value: Mapping[str, Any]) -> dict[int, str]:
    try:
        return {int(index): str(name) for name, indexes in value["directories"].items() for index in indexes}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreCorrupt(f"metadata node {path} lacks its shape: {error!r}") from None
