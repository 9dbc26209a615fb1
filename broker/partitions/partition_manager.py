"""All partitions of this broker: found by name or topic id, made and removed as the metadata says.

The hot paths look up ``topics[name].partitions[index]``, two dict hits and a list index. Changes come from the
controller in three steps: `prepare` makes the logs of new partitions (in a thread, as it syncs directories) and what
serves them, `on_image` swaps the topics in on the loop without an await, so no request sees half a change, and `settle`
does what may follow: partitions take their configs, and those of removed topics go offline. Their logs are renamed
and deleted in a thread, as soon as nothing in the background is at their files; a crash half-way is finished by the
next start. What is done for each partition takes turns: a change may be one of ten thousand.

A partition whose log cannot be opened is offline: it answers KAFKA_STORAGE_ERROR and keeps its place, the others are
served. So is one that was made (`directories` remembers where) and is not found, or is found twice: none of ours begins
again, empty. One that could not be made is tried in the other log directories, and again from time to time (`retry`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from typing import TYPE_CHECKING

from klamm.broker.metrics.recording import escape
from klamm.broker.partitions.partition import FileWork, Partition, end_file_work
from klamm.broker.turns import in_turns
from klamm.config.broker_config import BrokerConfig, topic_values
from klamm.protocol.errors import KafkaError, KafkaStorageError
from klamm.storage.copies.relocation import settle
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log_creation import CreationLeftOver, NewLog, create_logs, name_topic
from klamm.storage.log_deletion import delete_logs, set_aside
from klamm.storage.log_dir import LogDir
from klamm.storage.paths import TopicPartition, parse_partition_directory
from klamm.storage.recovery.log_loading import LogLoading

if TYPE_CHECKING:
    from klamm.broker.metadata.image import MetadataImage, PartitionImage, TopicImage
    from klamm.broker.metrics import Metrics, TopicMetrics
    from klamm.broker.metrics.recording import Sample
    from klamm.broker.partitions.directories import DirectoryRecord

log = logging.getLogger(__name__)

MOST_NAMES = 10
"""How many partitions a line of the log names."""

TOPICS = 10
"""Topics that are made or configured in one turn, if they have few partitions."""

Key = tuple[str, int]


class TopicPartitions:
    """One topic of this broker: its partitions by index and its counters."""

    __slots__ = ("internal", "metrics", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, *, internal: bool, metrics: TopicMetrics) -> None:
        self.name = name
        self.topic_id = topic_id
        self.internal = internal
        self.metrics = metrics
        self.partitions: list[Partition] = []


class PartitionManager:
    """Owns the logs of all partitions; see the module's head for the two steps of a change."""

    def __init__(
        self,
        log_dirs: list[LogDir],
        config: BrokerConfig,
        metrics: Metrics,
        executor: Executor,
        record: DirectoryRecord | None = None,
    ) -> None:
        self.topics: dict[str, TopicPartitions] = {}
        self.topics_by_id: dict[bytes, TopicPartitions] = {}
        self.log_dirs = log_dirs
        self._config = config
        self._metrics = metrics
        self._executor = executor
        self._record = record
        self._image: MetadataImage
        self._logs: dict[Key, Log | KafkaError] = {}
        self._directories: dict[Key, LogDir] = {}
        self._unmade: dict[Key, NewLog] = {}
        self._unsaved: dict[str, TopicImage] = {}
        self._left: dict[Key, LogDir] = {}  # where partitions have been that were moved, until that is deleted
        self._ready: dict[bytes, list[Partition]] = {}  # of topics that are about to come, or to grow
        self._gone: list[TopicPartitions] = []
        self._to_configure: set[str] = set()
        self._removals: list[asyncio.Task[None]] = []
        metrics.gauge("klamm_offline_partitions", "Partitions that answer KAFKA_STORAGE_ERROR.", self.offline_count)
        for name, help_text, samples in (
            ("klamm_remaining_logs_to_recover", "Logs that the start has not opened yet.", self._recovery_samples),
            (
                "klamm_remaining_segments_to_recover",
                "Segments still to be checked of the log that a recovery worker is at.",
                self._recovery_segment_samples,
            ),
            ("klamm_remaining_bytes_to_recover", "Bytes of logs still to be checked.", self._recovery_byte_samples),
        ):
            metrics.gauges(name, help_text, samples)

    # -- looking up ---------------------------------------------------------------------------------------------

    def get(self, topic: str, index: int) -> Partition | None:
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def __iter__(self) -> Iterator[Partition]:
        for topic in self.topics.values():
            yield from topic.partitions

    def with_flush_rule(self) -> Iterator[Partition]:
        """Those that `flush.ms` or `flush.messages` want on the disk."""
        for topic in self.topics.values():
            if topic.partitions and topic.partitions[0].has_flush_rule:
                yield from topic.partitions

    def compacted(self) -> Iterator[tuple[Partition, Log]]:
        """Those that are to be compacted, as far as they are online."""
        for topic in self.topics.values():
            for partition in topic.partitions:
                storage_log = partition.log
                if storage_log is not None:
                    if not storage_log.config.compacted:  # so it is for all of the topic
                        break
                    if storage_log.offline_reason is None:
                        yield partition, storage_log

    def rolled(self) -> list[Partition]:
        """Those that have begun a new segment, until all before it are durable."""
        found: list[Partition] = []
        for log_dir in self.log_dirs:
            for storage_log in list(log_dir.rolled):
                key = parse_partition_directory(storage_log.name)
                partition = self.get(key.topic, key.partition) if key is not None else None
                if (
                    partition is None
                    or partition.log is not storage_log
                    or storage_log.offline_reason is not None
                    or storage_log.unflushed_segments_end is None
                ):
                    log_dir.rolled.discard(storage_log)
                else:
                    found.append(partition)
        return found

    def offline(self, topic: str) -> frozenset[int]:
        """Indexes of the topic's partitions that are offline."""
        found = self.topics.get(topic)
        if found is None:
            return frozenset()
        return frozenset(partition.index for partition in found.partitions if partition.is_offline)

    def has_offline(self) -> bool:
        """Whether there is any."""
        return any(partition.is_offline for partition in self)

    def offline_count(self) -> int:
        return sum([partition.is_offline for partition in self])

    def sizes(self) -> Iterator[tuple[str, int, int, int, int]]:
        """(topic, partition, bytes, log start offset, log end offset) for the metrics."""
        for partition in self:
            storage_log = partition.log
            if storage_log is not None:
                yield (
                    partition.topic,
                    partition.index,
                    storage_log.size_bytes,
                    storage_log.log_start_offset,
                    storage_log.log_end_offset,
                )

    def directory_of(self, partition: Partition) -> LogDir:
        """Where the log is; a partition without a log may have none (KeyError)."""
        return self._directories[partition.topic, partition.index]

    def by_directory(self) -> dict[LogDir, list[Partition]]:
        """The partitions of every log dir; those whose directory is gone, or that could not be made, are in none."""
        found: dict[LogDir, list[Partition]] = {log_dir: [] for log_dir in self.log_dirs}
        for partition in self:
            log_dir = self._directories.get((partition.topic, partition.index))
            if log_dir is not None:
                found[log_dir].append(partition)
        return found

    # -- starting -----------------------------------------------------------------------------------------------

    def load(
        self, image: MetadataImage, while_recovering: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> None:
        """Open (and, after a crash, recover) the logs on disk; then take the image. Blocks; only for the start.

        What takes long goes on inside of `while_recovering`, and `klamm_remaining_logs_to_recover` tells how far it is.
        Raises LogDirError, and KafkaStorageError when the metadata cannot be read.
        """
        self._image = image
        if self._record is not None:
            self._record.load()
        on_disk: dict[TopicPartition, list[LogDir]] = {}
        for log_dir in self.log_dirs:
            log_dir.producer_expiration_ms = self._config.integer("producer.id.expiration.ms")
            for name in log_dir.partitions_on_disk():
                on_disk.setdefault(name, []).append(log_dir)
        self._load_logs(image, on_disk, while_recovering)
        for name, log_dirs in on_disk.items():
            if len(log_dirs) > 1 and _is_known(name, image) and not _settled(name, log_dirs):
                places = " and in ".join(str(log_dir.path) for log_dir in log_dirs)
                for log_dir in log_dirs:
                    log_dir.withdraw(name, f"it is in {places}; keep one, and move the others away")
        for log_dir in self.log_dirs:
            for name, storage_log in log_dir.logs.items():
                self._take(log_dir, name.topic, name.partition, _checked(log_dir, name, storage_log, image))
            for name, offline in log_dir.offline.items():
                self._take(log_dir, name.topic, name.partition, KafkaStorageError(offline.reason))
        self._note_lost(image)
        self._create_logs(image, image.topics.values())
        if self._record is not None:
            try:
                self._record.save_now(self._moved(image.topics.values()))
            except KafkaError as error:
                self._save_later(image.topics, error)
        self._swap_in(image, image.topics.values())
        known = {(topic.name, partition.index) for topic in image.topics.values() for partition in topic.partitions}
        for key in sorted(self._logs.keys() - known):
            log.warning("%s-%d: on disk but not in the metadata; it is kept and not served", *key)

    def _load_logs(
        self,
        image: MetadataImage,
        on_disk: Container[TopicPartition],
        while_recovering: Callable[[], AbstractContextManager[object]],
    ) -> None:
        config_for = self._log_config_of(image)
        workers = self._config.integer("num.recovery.threads.per.data.dir")
        with ExitStack() as stack:
            loadings = [stack.enter_context(closing(LogLoading(each, config_for))) for each in self.log_dirs]
            long = [loading for loading in loadings if loading.begin(workers)]
            if long:
                stack.enter_context(while_recovering())
            for loading in loadings:
                loading.load(lambda name: name not in on_disk and _is_known(name, image))

    def _recovery_samples(self) -> Iterator[Sample]:
        for log_dir in self.log_dirs:
            yield f'{{dir="{escape(str(log_dir.path))}"}}', log_dir.recovery.remaining_logs

    def _recovery_segment_samples(self) -> Iterator[Sample]:
        for log_dir in self.log_dirs:
            for worker, count in sorted(log_dir.recovery.remaining_segments.items()):
                yield f'{{dir="{escape(str(log_dir.path))}",thread="{worker}"}}', count

    def _recovery_byte_samples(self) -> Iterator[Sample]:
        for log_dir in self.log_dirs:
            yield f'{{dir="{escape(str(log_dir.path))}"}}', log_dir.recovery.remaining_bytes

    def _note_lost(self, image: MetadataImage) -> None:
        """Those that were made once, and are not there, are offline."""
        recorded = self._record.of if self._record is not None else {}
        known = {log_dir.directory_id: log_dir for log_dir in self.log_dirs}
        lost: dict[str, list[Key]] = {}
        for topic, directories in recorded.items():
            for index, directory_id in directories.items():
                if (topic, index) not in self._logs and _is_known(TopicPartition(topic, index), image):
                    lost.setdefault(directory_id, []).append((topic, index))
        for directory_id, keys in lost.items():
            log_dir = known.get(directory_id)
            if log_dir is None:
                reason = f"the log directory it is in is missing: directory.id={directory_id}"
            else:
                reason = f"its directory is missing in {log_dir.path}"
            for key in keys:
                self._logs[key] = KafkaStorageError(reason)
                if log_dir is not None:
                    self._directories[key] = log_dir
            names = ", ".join(f"{topic}-{index}" for topic, index in sorted(keys)[:MOST_NAMES])
            more = ", ..." if len(keys) > MOST_NAMES else ""
            log.error("%d partition(s) offline: %s: %s%s", len(keys), reason, names, more)

    def _moved(self, topics: Iterable[TopicImage]) -> dict[str, dict[int, str]]:
        """Where the partitions of these topics are, of those topics for which something else is on record."""
        assert self._record is not None
        moved = {}
        for topic in topics:
            recorded = self._record.of.get(topic.name, {})
            places = dict(recorded)
            for partition in topic.partitions:
                key = (topic.name, partition.index)
                log_dir = self._directories.get(key)
                if log_dir is not None and log_dir.directory_id and key not in self._unmade:
                    places[partition.index] = log_dir.directory_id
            if places != recorded:
                moved[topic.name] = places
        return moved

    async def _save(self, topics: Iterable[TopicImage]) -> None:
        if self._record is None:
            return
        wanted = {topic.name: topic for topic in topics}
        try:
            await self._record.save(self._moved(wanted.values()))
        except KafkaError as error:
            self._save_later(wanted, error)

    def _save_later(self, topics: Mapping[str, TopicImage], error: KafkaError) -> None:
        """`retry` tries again, and so does the next start."""
        log.warning("where the partitions are was not written down, topics=%d: %s", len(topics), error.message)
        self._unsaved.update(topics)

    def _take(self, log_dir: LogDir, topic: str, index: int, opened: Log | KafkaError) -> None:
        self._logs[topic, index] = opened
        self._directories[topic, index] = log_dir

    def _log_config_of(self, image: MetadataImage) -> Callable[[str], LogConfig]:
        def config_for(topic: str) -> LogConfig:
            return self._log_config(image.topic_configs.get(topic, {}))

        return config_for

    def _log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        return LogConfig.from_values(topic_values(self._config, overrides))

    # -- changes ------------------------------------------------------------------------------------------------

    async def prepare(self, old: MetadataImage, new: MetadataImage) -> None:
        """Make the logs that ``new`` needs, before it is swapped in."""
        changed = [topic for name, topic in new.topics.items() if old.topics.get(name) is not topic]
        if changed:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._executor, self._create_logs, new, changed)
            await self._save(changed)
            await self._make_ready(new, changed)

    async def _make_ready(self, image: MetadataImage, topics: Iterable[TopicImage]) -> None:
        async for topic in in_turns(topics, TOPICS):
            values = topic_values(self._config, image.topic_configs.get(topic.name, {}))
            new = topic.partitions[self._present(topic) :]
            self._ready[topic.topic_id] = [self._served(topic, each, values) async for each in in_turns(new)]

    def _present(self, topic: TopicImage) -> int:
        found = self.topics.get(topic.name)
        return len(found.partitions) if found is not None and found.topic_id == topic.topic_id else 0

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Serve what ``new`` says from now on."""
        self._image = new
        gone = [
            topic
            for name, topic in old.topics.items()
            if name not in new.topics or new.topics[name].topic_id != topic.topic_id
        ]
        for topic in gone:
            self._take_out(topic)
        self._swap_in(new, (topic for name, topic in new.topics.items() if old.topics.get(name) is not topic))
        if old.topic_configs is not new.topic_configs:
            for name in old.topic_configs.keys() & new.topic_configs.keys():
                if old.topic_configs[name] != new.topic_configs[name]:
                    self._to_configure.add(name)

    async def settle(self) -> None:
        """Let every partition know what follows from the image; wait until the logs of removed topics are gone."""
        names, self._to_configure = self._to_configure, set()
        async for name in in_turns(names, TOPICS):
            await self._configure(name)
        gone, self._gone = self._gone, []
        if gone:
            await self._remove([partition for topic in gone for partition in topic.partitions])
        await self.removed()

    def reconfigure(self, config: BrokerConfig) -> None:
        """The broker's own config has changed: every topic resolves its values again, before the change settles."""
        self._config = config
        for log_dir in self.log_dirs:
            log_dir.producer_expiration_ms = config.integer("producer.id.expiration.ms")
        self._to_configure |= self.topics.keys()

    def relocated(self, partition: Partition, storage_log: Log, source: LogDir, target: LogDir) -> None:
        """The log of a partition is another one now, in another log dir, with the same records. On the loop."""
        key = (partition.topic, partition.index)
        self._take(target, *key, storage_log)
        self._left[key] = source
        partition.log = storage_log
        partition.wake(0)

    def left_in(self, partition: Partition) -> LogDir | None:
        """Where a move has left the partition's old files, if they could not be deleted."""
        return self._left.get((partition.topic, partition.index))

    async def relocation_ended(self, partition: Partition, *, is_deleted: bool) -> None:
        """Write down where it is. `is_deleted`: nothing is left of it where it was."""
        if is_deleted:
            self._left.pop((partition.topic, partition.index), None)
        topic = self._image.topics.get(partition.topic)
        if topic is not None and self.get(partition.topic, partition.index) is partition:
            await self._save([topic])

    async def retry(self) -> None:
        """Make the partitions that could not be made before: there may be space again."""
        if self._unmade:
            loop = asyncio.get_running_loop()
            made = await loop.run_in_executor(self._executor, self._make, list(self._unmade.values()))
            for item, storage_log in made:
                self._begin_to_serve(item, storage_log)
        if self._unsaved:
            unsaved, self._unsaved = self._unsaved, {}
            await self._save(topic for topic in unsaved.values() if topic.topic_id in self.topics_by_id)

    def _begin_to_serve(self, item: NewLog, storage_log: Log) -> None:
        key = (item.topic, item.partition)
        topic, partition = self._image.topics.get(item.topic), self.get(*key)
        if self._logs.get(key) is not storage_log:
            return
        if topic is None or partition is None or topic.topic_id != item.topic_id:  # deleted meanwhile
            del self._logs[key]
            self._delete([(self._directories.pop(key), TopicPartition(*key))])
            return
        partition.go_online(storage_log)
        values = topic_values(self._config, self._image.topic_configs.get(item.topic, {}))
        partition.configure(values)
        storage_log.config = LogConfig.from_values(values)
        self._unsaved[item.topic] = topic
        log.info("%s: made, and served from now on", partition.name)

    def _create_logs(self, image: MetadataImage, topics: Iterable[TopicImage]) -> None:
        new = []
        for topic in topics:
            config = self._log_config(image.topic_configs.get(topic.name, {}))
            for partition in topic.partitions:
                self._set_foreign_aside(topic, partition.index)
                if (topic.name, partition.index) not in self._logs:
                    new.append(NewLog(topic.name, partition.index, topic.topic_id, config))
        self._make(new)

    def _make(self, new: Sequence[NewLog]) -> list[tuple[NewLog, Log]]:
        """Make each in the log directory with the fewest partitions; where that refuses, in another. Those made."""
        counts = dict.fromkeys(self.log_dirs, 0)
        for log_dir in list(self._directories.values()):
            counts[log_dir] += 1
        made: list[tuple[NewLog, Log]] = []
        refused: dict[Key, set[LogDir]] = {}
        waiting = list(new)
        while waiting:
            placed: dict[LogDir, list[NewLog]] = {}
            for item in waiting:
                log_dir = self._place(item, counts, refused.get((item.topic, item.partition), set()))
                counts[log_dir] += 1
                placed.setdefault(log_dir, []).append(item)
            waiting = []
            for log_dir, items in placed.items():
                for item, opened in zip(items, self._made_in(log_dir, items), strict=True):
                    key = (item.topic, item.partition)
                    if isinstance(opened, Log):
                        made.append((item, opened))
                        self._unmade.pop(key, None)
                        self._take(log_dir, *key, opened)
                        continue
                    counts[log_dir] -= 1
                    tried = refused.setdefault(key, set())
                    tried.add(log_dir)
                    left_over = isinstance(opened, CreationLeftOver)
                    if not left_over and len(tried) < len(self.log_dirs) and key not in self._directories:
                        waiting.append(item)
                        continue
                    self._unmade[key] = item
                    self._logs[key] = opened
                    if left_over:  # what is there must not be in two places
                        self._directories[key] = log_dir
        return made

    def _place(self, item: NewLog, counts: Mapping[LogDir, int], refused: set[LogDir]) -> LogDir:
        left_over = self._directories.get((item.topic, item.partition))
        if left_over is not None:
            return left_over
        candidates = [log_dir for log_dir in self.log_dirs if log_dir not in refused]
        usable = [log_dir for log_dir in candidates if log_dir.offline_reason is None] or candidates
        return min(usable, key=lambda log_dir: counts[log_dir])

    def _made_in(self, log_dir: LogDir, items: list[NewLog]) -> Sequence[Log | KafkaError]:
        try:
            created: Sequence[Log | KafkaError] = create_logs(log_dir, items)
        except KafkaError as error:
            created = [error.with_traceback(None)] * len(items)
        failed = [(item, opened) for item, opened in zip(items, created, strict=True) if isinstance(opened, KafkaError)]
        if any((item.topic, item.partition) not in self._unmade for item, _ in failed):  # else it was said before
            log.error("%s: %d partition(s) cannot be made: %s", log_dir.path, len(failed), failed[0][1].message)
        return created

    def _holders(self, key: Key) -> list[LogDir]:
        """The log dirs that have something of a partition."""
        name = TopicPartition(*key)
        own = self._directories.get(key)
        left = self._left.get(key)
        return [each for each in self.log_dirs if each in (own, left) or name in each.logs or name in each.offline]

    def _set_foreign_aside(self, topic: TopicImage, index: int) -> None:
        """Make room for a new partition where the files of a lost topic of the same name are: they are kept."""
        key = (topic.name, index)
        opened = self._logs.get(key)
        if topic.name in self.topics or not isinstance(opened, Log) or opened.topic_id in (None, topic.topic_id):
            return
        for log_dir in self._holders(key):
            try:
                kept = set_aside(log_dir, TopicPartition(*key))
            except KafkaError as error:
                log.error("%s-%d: %s", *key, error.message)
                self._logs[key] = error
                return
            log.warning("%s-%d: the files of another topic of this name are kept in %s", *key, kept)
        del self._logs[key], self._directories[key]

    def _swap_in(self, image: MetadataImage, topics: Iterable[TopicImage]) -> None:
        for topic in topics:
            found = self.topics.get(topic.name)
            if found is None:
                found = TopicPartitions(
                    topic.name, topic.topic_id, internal=topic.internal, metrics=self._metrics.topic(topic.name)
                )
                self.topics[topic.name] = self.topics_by_id[topic.topic_id] = found
            for partition in topic.partitions[: len(found.partitions)]:
                served = found.partitions[partition.index]
                served.leader_epoch = partition.leader_epoch
                served.set_replicas(len(partition.replicas), len(partition.isr))
            new = topic.partitions[len(found.partitions) :]
            ready = self._ready.pop(topic.topic_id, [])
            if len(ready) != len(new):
                values = topic_values(self._config, image.topic_configs.get(topic.name, {}))
                ready = [self._served(topic, each, values) for each in new]
            found.partitions += ready

    def _served(self, topic: TopicImage, partition: PartitionImage, values: Mapping[str, object]) -> Partition:
        """A partition whose log was made, or was not."""
        opened = self._logs[topic.name, partition.index]
        served = Partition(
            topic.name,
            topic.topic_id,
            partition.index,
            opened if isinstance(opened, Log) else None,
            leader_epoch=partition.leader_epoch,
            values=values,
            metrics=self._metrics.topic(topic.name),
            internal=topic.internal,
            offline_reason=opened.message if isinstance(opened, KafkaError) else "",
        )
        served.set_replicas(len(partition.replicas), len(partition.isr))
        return served

    async def _configure(self, name: str) -> None:
        found = self.topics.get(name)
        if found is None:
            return
        values = topic_values(self._config, self._image.topic_configs.get(name, {}))
        config = LogConfig.from_values(values)
        async for partition in in_turns(found.partitions):
            partition.configure(values)
            if partition.log is not None:
                partition.log.config = config

    def _take_out(self, topic: TopicImage) -> None:
        """Nobody finds the topic any more."""
        found = self.topics.pop(topic.name, None)
        self.topics_by_id.pop(topic.topic_id, None)
        if found is None:
            return
        self._gone.append(found)
        self._metrics.forget_topic(topic.name)
        self._unsaved.pop(topic.name, None)
        if self._record is not None:
            self._record.forget(topic.name)

    async def _remove(self, partitions: Iterable[Partition]) -> None:
        """Whoever still has one of them is told; begin to delete the logs."""
        removed: list[tuple[LogDir, TopicPartition]] = []
        work: list[FileWork] = []
        async for partition in in_turns(partitions):
            key = (partition.topic, partition.index)
            work += partition.file_work
            removed.extend([(log_dir, TopicPartition(*key)) for log_dir in self._holders(key)])
            for known in (self._logs, self._directories, self._unmade, self._left):
                known.pop(key, None)
            partition.go_offline("the topic was deleted")
        self._delete(removed, work)

    def _delete(self, removed: list[tuple[LogDir, TopicPartition]], work: Iterable[FileWork] = ()) -> None:
        self._removals.append(asyncio.get_running_loop().create_task(self._delete_after(removed, work)))

    async def _delete_after(self, removed: list[tuple[LogDir, TopicPartition]], work: Iterable[FileWork]) -> None:
        """What works on the files goes by their names, which a topic that is made again has, too: it ends first."""
        await end_file_work(work)
        await asyncio.get_running_loop().run_in_executor(self._executor, _delete_logs, removed)

    async def removed(self) -> None:
        """Wait until the logs of removed topics are gone from the disk; raises KafkaStorageError for those that stay.

        Then the topic stays marked for deletion, and the next start tries again.
        """
        while self._removals:
            removals, self._removals = self._removals, []
            for result in await asyncio.gather(*removals, return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result

    # -- upkeep and end -----------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write the checkpoints of all log dirs. Blocks."""
        for log_dir in self.log_dirs:
            log_dir.checkpoint()

    def renew_reserves(self) -> None:
        """Make the reserves that were let go, or never had room. Blocks."""
        for log_dir in self.log_dirs:
            log_dir.reserve.renew()

    def lacks_reserves(self) -> bool:
        return any(log_dir.reserve.is_missing for log_dir in self.log_dirs)

    def close(self, *, marked: bool = True) -> None:
        """Flush and close every log, leave the marks of a clean shutdown if `marked`. Blocks."""
        for log_dir in self.log_dirs:
            log_dir.close(marked=marked)


def _settled(name: TopicPartition, log_dirs: list[LogDir]) -> bool:
    """Whether a partition is in two places as it was being moved, and in one now."""
    try:
        return settle(name, log_dirs)
    except KafkaError as error:
        log.error("%s: %s", name, error.message)
        return False


def _is_known(name: TopicPartition, image: MetadataImage) -> bool:
    """In the metadata."""
    topic = image.topics.get(name.topic)
    return topic is not None and name.partition < len(topic.partitions)


def _checked(log_dir: LogDir, name: TopicPartition, found: Log, image: MetadataImage) -> Log | KafkaError:
    """A log that belongs to another topic of the same name is not served. One without a topic id gets it: its creation
    was cut short by a crash, before any data."""
    topic = image.topics.get(name.topic)
    if topic is None:
        return found
    if found.topic_id is None:
        try:
            name_topic(log_dir, name, topic.topic_id)
        except KafkaError as error:
            log.error("%s: offline: %s", name, error.message)
            return error
    if found.topic_id == topic.topic_id:
        return found
    reason = f"partition.metadata names another topic id than the metadata of {name.topic}"
    log.error("%s: offline: %s", name, reason)
    return KafkaStorageError(reason)


def _delete_logs(removed: list[tuple[LogDir, TopicPartition]]) -> None:
    """All that can be deleted; then raises the first error."""
    by_directory: dict[LogDir, list[TopicPartition]] = {}
    for log_dir, partition in removed:
        by_directory.setdefault(log_dir, []).append(partition)
    failures: dict[TopicPartition, KafkaStorageError] = {}
    for log_dir, partitions in by_directory.items():
        failures |= delete_logs(log_dir, partitions)
    for partition, error in failures.items():
        log.error("%s: cannot be deleted: %s", partition, error.message)
    for error in failures.values():
        raise error
