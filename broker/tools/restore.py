"""Restore of topics from a snapshot, as new topics of a stopped broker, or of one that was never started.

A topic keeps its id if no other topic has it; under another name it is another topic, with an id of its own. Its
batches keep their leader epochs, so the partitions begin with a later one. They also keep their producers, so the ids
of these count as used. All segments but the last are shared with the snapshot (`storage/hard_links.py`), so it can be
restored many times.

Partitions are created under names that a start removes, then get their final names. Then the topics enter the store in
one transaction. A crash before that leaves at most directories that no topic claims; a start sets these aside.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from klamm.broker.controller import configs, startup, topics
from klamm.broker.metadata import paths
from klamm.broker.metadata.image import INTERNAL_TOPICS, BrokerImage, MetadataImage, PartitionImage, TopicImage
from klamm.broker.metadata.sqlite_store import FILE_NAME, SqliteStore
from klamm.broker.metadata.store import Create, MetadataStore, Operation, Set, StoreError
from klamm.broker.tools import known_damage
from klamm.broker.tools.manifest import CannotBackUp, Manifest, TopicEntry, chosen
from klamm.config.broker_config import BrokerConfig, topic_values
from klamm.protocol.errors import KafkaError
from klamm.protocol.wire import uuid_from_text
from klamm.storage import checkpoints
from klamm.storage import paths as storage_paths
from klamm.storage.checkpoints import CheckpointError
from klamm.storage.clock import Clock
from klamm.storage.copies.backup import BackupError, Restored, restore_partition
from klamm.storage.copying import Copied
from klamm.storage.filesystem import Filesystem, describe, remove_tree
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log_dir import LogDir, LogDirError
from klamm.storage.paths import TopicPartition
from klamm.storage.scrub.scrub_state import KnownDamage


@dataclass(frozen=True, slots=True)
class Restoration:
    """The result of a restore. ``aborted_count`` transactions were open when the snapshot was taken."""

    names: tuple[str, ...]
    partition_count: int
    aborted_count: int
    size: Copied
    damage: tuple[KnownDamage, ...]


@dataclass(slots=True)
class _Topic:
    """A topic to be created."""

    name: str
    topic_id: bytes
    entry: TopicEntry
    places: list[LogDir] = field(default_factory=list)
    restored: list[Restored] = field(default_factory=list)


def restore_snapshot(
    config: BrokerConfig,
    source: Path,
    wanted: Iterable[str] | None,
    renamed: Mapping[str, str],
    *,
    filesystem: Filesystem,
    clock: Clock,
    random_bytes: Callable[[int], bytes],
) -> Restoration:
    """Create topics from the snapshot ``source``, all or the wanted ones, some under another name.

    Blocks. Raises CannotBackUp; nothing has changed then.
    """
    manifest = Manifest.read(filesystem, source)
    entries = {entry.name: entry for entry in manifest.topics}
    names = chosen(entries, wanted, lambda _: True)
    for name in renamed.keys() - set(names):
        raise CannotBackUp(f"--rename: the topic {name!r} is not among those to be restored")
    try:
        with _stopped(config, filesystem, clock) as log_dirs:
            work = _Restore(config, source, log_dirs, filesystem, clock, random_bytes)
            return work.run([entries[name] for name in names], renamed)
    except OSError as error:
        raise CannotBackUp(f"{error.filename or source}: {describe(error)}") from None
    except (LogDirError, StoreError, CheckpointError, BackupError) as error:
        raise CannotBackUp(str(error)) from None
    except KafkaError as error:
        raise CannotBackUp(error.message) from None


@contextmanager
def _stopped(config: BrokerConfig, filesystem: Filesystem, clock: Clock) -> Iterator[list[LogDir]]:
    """Yield the log directories, locked; they were closed cleanly, or are new."""
    with ExitStack() as stack:
        log_dirs: list[LogDir] = []
        for path in config.log_dirs:
            cluster_id = log_dirs[0].meta.cluster_id if log_dirs else None
            log_dir = LogDir.open(
                path, node_id=config.node_id, cluster_id=cluster_id, clock=clock, filesystem=filesystem
            )
            stack.callback(log_dir.leave)
            log_dirs.append(log_dir)
        for log_dir in log_dirs:
            if not log_dir.was_clean and log_dir.partitions_on_disk():
                raise CannotBackUp(f"{log_dir.path}: the broker has not stopped cleanly; start and stop it first")
        store = log_dirs[0].path / FILE_NAME
        if not filesystem.exists(store) and any(log_dir.partitions_on_disk() for log_dir in log_dirs):
            raise CannotBackUp(f"there are partitions but no {store}; start the broker first")
        yield log_dirs


class _Restore:
    """One restore; used once."""

    def __init__(
        self,
        config: BrokerConfig,
        source: Path,
        log_dirs: Sequence[LogDir],
        filesystem: Filesystem,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._config = config
        self._source = source
        self._log_dirs = log_dirs
        self._filesystem = filesystem
        self._clock = clock
        self._random_bytes = random_bytes
        self._made: list[Path] = []

    def run(self, entries: Sequence[TopicEntry], renamed: Mapping[str, str]) -> Restoration:
        store = SqliteStore(self._log_dirs[0].path / FILE_NAME)
        try:
            office = startup.start(
                store,
                BrokerImage(self._config.node_id),
                clean=True,
                cluster_id=self._log_dirs[0].meta.cluster_id,
                random_bytes=self._random_bytes,
                now_ms=self._clock.wall_ms(),
            )
            new = self._plan(entries, renamed, office.image)
            for topic in new:
                self._make(topic)
            self._write_checkpoints(new)
            damage = self._bring_damage_back(new)
            store.multi(self._operations(store, new, office.controller_epoch))
            for log_dir in self._log_dirs:
                log_dir.was_clean = True  # also the new ones
        except BaseException:
            for path in self._made:
                with suppress(OSError):
                    remove_tree(self._filesystem, path)
            raise
        finally:
            store.close()
        restored = [partition for topic in new for partition in topic.restored]
        return Restoration(
            tuple(topic.name for topic in new),
            len(restored),
            sum(partition.aborted_count for partition in restored),
            sum((partition.size for partition in restored), Copied()),
            tuple(damage),
        )

    # -- planning -----------------------------------------------------------------------------------------------

    def _plan(self, entries: Sequence[TopicEntry], renamed: Mapping[str, str], image: MetadataImage) -> list[_Topic]:
        """Choose names, ids and log directories of the new topics. Raises CannotBackUp, KafkaError."""
        counts = {log_dir: len(log_dir.partitions_on_disk()) for log_dir in self._log_dirs}
        new: list[_Topic] = []
        for entry in entries:
            name = renamed.get(entry.name, entry.name)
            topics.check_name(name)
            if name in image.topics or name in {topic.name for topic in new}:
                raise CannotBackUp(f"the topic {name} exists; delete it, or restore under another name with --rename")
            configs.check_topic(entry.configs, self._config)
            topic_id = uuid_from_text(entry.topic_id)
            if name != entry.name or topic_id in image.topics_by_id:
                topic_id = startup.new_uuid(self._random_bytes)
            topic = _Topic(name, topic_id, entry)
            for partition in entry.partitions:
                self._check_free(TopicPartition(name, partition.index))
                place = min(counts, key=lambda log_dir: counts[log_dir])
                counts[place] += 1
                topic.places.append(place)
            new.append(topic)
        return new

    def _check_free(self, partition: TopicPartition) -> None:
        for log_dir in self._log_dirs:
            directory = storage_paths.partition_directory(log_dir.path, partition.topic, partition.partition)
            if self._filesystem.exists(directory):
                raise CannotBackUp(f"{directory} exists, and belongs to no topic; move it away")

    # -- creation -----------------------------------------------------------------------------------------------

    def _make(self, topic: _Topic) -> None:
        log_config = LogConfig.from_values(topic_values(self._config, topic.entry.configs))
        for partition, place in zip(topic.entry.partitions, topic.places, strict=True):
            final = storage_paths.partition_directory(place.path, topic.name, partition.index)
            source = storage_paths.partition_directory(self._source, topic.entry.name, partition.index)
            working = storage_paths.delete_directory(final, uuid.UUID(bytes=self._random_bytes(16)))
            self._made += [working, final]
            restored = restore_partition(
                self._filesystem,
                self._clock,
                source,
                working,
                log_config,
                topic_id=topic.topic_id,
                log_start_offset=partition.log_start_offset,
                end_offset=partition.end_offset,
            )
            self._filesystem.rename(working, final)
            topic.restored.append(restored)
        for place in set(topic.places):
            self._filesystem.sync_directory(place.path)

    def _write_checkpoints(self, new: Sequence[_Topic]) -> None:
        for log_dir in self._log_dirs:
            mine = {
                TopicPartition(topic.name, index): topic.restored[index]
                for topic in new
                for index, place in enumerate(topic.places)
                if place is log_dir
            }
            ends = {name: restored.end_offset for name, restored in mine.items()}
            starts = {name: restored.log_start_offset for name, restored in mine.items() if restored.log_start_offset}
            for file, offsets in (
                (storage_paths.LOG_START_CHECKPOINT, starts),
                (storage_paths.RECOVERY_POINT_CHECKPOINT, ends),
                (storage_paths.HIGH_WATERMARK_CHECKPOINT, ends),
            ):
                known = checkpoints.read_offsets(self._filesystem, log_dir.path / file)
                checkpoints.write_offsets(self._filesystem, log_dir.path / file, {**known, **offsets})

    def _bring_damage_back(self, new: Sequence[_Topic]) -> list[KnownDamage]:
        found: list[KnownDamage] = []
        for log_dir in self._log_dirs:
            mine = {
                TopicPartition(topic.entry.name, index): (TopicPartition(topic.name, index), topic.topic_id)
                for topic in new
                for index, place in enumerate(topic.places)
                if place is log_dir
            }
            found += known_damage.bring_back(self._filesystem, self._source, log_dir.path, mine)
        return found

    # -- the store ----------------------------------------------------------------------------------------------

    def _operations(self, store: MetadataStore, new: Sequence[_Topic], controller_epoch: int) -> list[Operation]:
        operations: list[Operation] = []
        highest = -1
        for topic in new:
            replicas = (self._config.node_id,)
            partitions = tuple(
                PartitionImage(index, self._config.node_id, max(restored.last_epoch, -1) + 1, replicas, replicas)
                for index, restored in enumerate(topic.restored)
            )
            image = TopicImage(topic.name, topic.topic_id, partitions, topic.name in INTERNAL_TOPICS)
            operations += topics.creation(image, topic.entry.configs, controller_epoch)
            highest = max([highest, *(restored.highest_producer_id for restored in topic.restored)])
        operations += self._producer_ids(store, highest)
        return operations

    def _producer_ids(self, store: MetadataStore, highest: int) -> list[Operation]:
        """Mark producer ids as used, so that no new producer gets one that the restored logs remember."""
        if highest < 0:
            return []
        given = startup.producer_ids_given(self._config.node_id, highest + 1)
        if not store.exists(paths.PRODUCER_ID_BLOCK):
            return [given]
        value = paths.from_json(paths.PRODUCER_ID_BLOCK, store.get(paths.PRODUCER_ID_BLOCK).value)
        if int(str(value["block_end"])) >= highest:
            return []
        assert isinstance(given, Create)
        return [Set(given.path, given.value)]
