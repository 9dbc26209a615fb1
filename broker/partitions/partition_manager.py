"""All partitions of this broker: found by name or topic id, created and removed as the metadata changes.

The hot paths look up ``topics[name].partitions[index]``: two dict lookups and a list index. Changes come from the
controller in three steps. `prepare` creates the logs of new partitions (in a thread, as it syncs directories) and the
objects that serve them. `on_image` swaps the topics in on the loop without an await, so no request sees half a change.
`settle` does the rest: partitions apply their configs, and those of removed topics go offline. A thread renames and
deletes their logs, as soon as no background work uses the files (`removal.py`); after a crash half-way the next start
finishes that. Work for each partition is done in turns: a change may have ten thousand of them.

The logs belong to the log manager (`logs`). A partition with a log that cannot be opened, found or created is offline:
it answers KAFKA_STORAGE_ERROR and keeps its place, the others are served. `directory_assignments.py` records where each
was created.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from klamm.broker.partitions import recovery_gauges
from klamm.broker.partitions.partition import FileWork, Partition
from klamm.broker.partitions.removal import LogRemovals
from klamm.broker.turns import in_turns
from klamm.config.broker_config import BrokerConfig, topic_values
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log_creation import NewLog
from klamm.storage.log_manager import Removed
from klamm.storage.paths import TopicPartition, parse_partition_directory

if TYPE_CHECKING:
    from klamm.broker.metadata.image import MetadataImage, PartitionImage, TopicImage
    from klamm.broker.metrics import Metrics, TopicMetrics
    from klamm.broker.partitions.directory_assignments import DirectoryAssignments
    from klamm.storage.log_dir import LogDir
    from klamm.storage.log_manager import LogManager

log = logging.getLogger(__name__)

TOPICS = 10
"""Topics that are created or configured in one turn, if they have few partitions."""


class HostedTopic:
    """A topic on this broker: its partitions by index and its counters."""

    __slots__ = ("internal", "metrics", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, *, internal: bool, metrics: TopicMetrics) -> None:
        self.name = name
        self.topic_id = topic_id
        self.internal = internal
        self.metrics = metrics
        self.partitions: list[Partition] = []


class PartitionManager:
    """The topics and partitions of this broker; see the module's head for the steps of a change."""

    def __init__(
        self, logs: LogManager, config: BrokerConfig, metrics: Metrics, executor: Executor, record: DirectoryAssignments
    ) -> None:
        self.topics: dict[str, HostedTopic] = {}
        self.topics_by_id: dict[bytes, HostedTopic] = {}
        self.logs = logs
        self._config = config
        self._metrics = metrics
        self._executor = executor
        self._directory_assignments = record
        self._image: MetadataImage
        self._ready: dict[bytes, list[Partition]] = {}  # partitions of topics that are about to be created or extended
        self._gone: list[HostedTopic] = []
        self._to_configure: set[str] = set()
        self._removals = LogRemovals(logs, executor)
        metrics.gauge("klamm_offline_partitions", "Partitions that answer KAFKA_STORAGE_ERROR.", self.offline_count)
        recovery_gauges.register(metrics, logs.log_dirs)

    # -- lookup -------------------------------------------------------------------------------------------------

    def get_partition(self, topic: str, index: int) -> Partition | None:
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def __iter__(self) -> Iterator[Partition]:
        for topic in self.topics.values():
            yield from topic.partitions

    def with_flush_rule(self) -> Iterator[Partition]:
        """Return the partitions with `flush.ms` or `flush.messages`."""
        for topic in self.topics.values():
            if topic.partitions and topic.partitions[0].has_flush_rule:
                yield from topic.partitions

    def compacted(self) -> Iterator[tuple[Partition, Log]]:
        """Return the online partitions of compacted topics, with their logs."""
        for topic in self.topics.values():
            for partition in topic.partitions:
                storage_log = partition.log
                if storage_log is not None:
                    if not storage_log.local.config.compacted:  # the same for all partitions of the topic
                        break
                    if storage_log.local.offline_reason is None:
                        yield partition, storage_log

    def rolled(self) -> list[Partition]:
        """Return partitions with rolled segments that are not durable yet."""
        found: list[Partition] = []
        for log_dir, storage_log in self.logs.rolled():
            key = parse_partition_directory(storage_log.name)
            partition = self.get_partition(key.topic, key.partition) if key is not None else None
            if (
                partition is None
                or partition.log is not storage_log
                or storage_log.local.offline_reason is not None
                or storage_log.local.unflushed_segments_end is None
            ):
                log_dir.rolled.discard(storage_log)
            else:
                found.append(partition)
        return found

    def offline_partitions(self, topic: str) -> frozenset[int]:
        """Return the indexes of the topic's offline partitions."""
        found = self.topics.get(topic)
        if found is None:
            return frozenset()
        return frozenset(partition.index for partition in found.partitions if partition.is_offline)

    def has_offline(self) -> bool:
        """Return whether any partition is offline."""
        return any(partition.is_offline for partition in self)

    def offline_count(self) -> int:
        return sum([partition.is_offline for partition in self])

    def sizes(self) -> Iterator[tuple[str, int, int, int, int]]:
        """Return (topic, partition, bytes, log start offset, log end offset) for the metrics."""
        for partition in self:
            storage_log = partition.log
            if storage_log is not None:
                yield (
                    partition.topic,
                    partition.index,
                    storage_log.local.size_bytes,
                    storage_log.log_start_offset,
                    storage_log.log_end_offset,
                )

    # -- startup ------------------------------------------------------------------------------------------------

    def load_logs(
        self, image: MetadataImage, while_recovering: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> None:
        """Open (and, after a crash, recover) the logs on disk, then apply the image. Blocks; only for startup.

        The long part runs inside of `while_recovering`; `klamm_remaining_logs_to_recover` shows its progress. Raises
        LogDirError, and KafkaStorageError when the metadata cannot be read.
        """
        self._image = image
        self._directory_assignments.load()
        self.logs.set_producer_expiration(self._config.integer("producer.id.expiration.ms"))
        self.logs.load_logs(
            image.topics,
            lambda topic: self._log_config(image.topic_configs.get(topic, {})),
            recorded=self._directory_assignments.of,
            workers=self._config.integer("num.recovery.threads.per.data.dir"),
            while_recovering=while_recovering,
        )
        self._create_logs(image, image.topics.values())
        self._directory_assignments.save_now(image.topics.values())
        self._swap_in(image, image.topics.values())

    def _log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        return LogConfig.from_values(topic_values(self._config, overrides))

    def _create_logs(self, image: MetadataImage, topics: Iterable[TopicImage]) -> None:
        new = []
        for topic in topics:
            config = self._log_config(image.topic_configs.get(topic.name, {}))
            new += [NewLog(topic.name, each.index, topic.topic_id, config) for each in topic.partitions]
        self.logs.create(new, self.topics)

    # -- changes ------------------------------------------------------------------------------------------------

    async def prepare(self, old: MetadataImage, new: MetadataImage) -> None:
        """Create the logs that ``new`` needs, before it is swapped in."""
        changed = [topic for name, topic in new.topics.items() if old.topics.get(name) is not topic]
        if changed:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._executor, self._create_logs, new, changed)
            await self._directory_assignments.save(changed)
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
        """Serve the topics of ``new`` from now on."""
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
        """Apply the rest of the image to every partition, and wait until the logs of removed topics are gone."""
        names, self._to_configure = self._to_configure, set()
        async for name in in_turns(names, TOPICS):
            await self._configure(name)
        gone, self._gone = self._gone, []
        if gone:
            await self._remove([partition for topic in gone for partition in topic.partitions])
        await self.removed()

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply a new broker config: every topic resolves its values again, before the change settles."""
        self._config = config
        self.logs.set_producer_expiration(config.integer("producer.id.expiration.ms"))
        self._to_configure |= self.topics.keys()

    def on_log_moved(self, partition: Partition, storage_log: Log, source: LogDir, target: LogDir) -> None:
        """Exchange the log of a partition for its copy in another log directory, with the same records. On the loop."""
        self.logs.on_log_moved(partition.key, storage_log, source, target)
        partition.log = storage_log
        partition.wake(0)

    async def on_move_ended(self, partition: Partition, *, is_deleted: bool) -> None:
        """Store the partition's directory. `is_deleted`: its old directory has nothing left of it."""
        if is_deleted:
            self.logs.on_move_ended(partition.key)
        topic = self._image.topics.get(partition.topic)
        if topic is not None and self.get_partition(partition.topic, partition.index) is partition:
            await self._directory_assignments.save([topic])

    async def retry(self) -> None:
        """Create the partitions that could not be created before: there may be space again."""
        if pending := self.logs.pending():
            loop = asyncio.get_running_loop()
            for item, storage_log in await loop.run_in_executor(self._executor, self.logs.make, pending):
                self._begin_to_serve(item, storage_log)
        await self._directory_assignments.retry(self.topics_by_id)

    def _begin_to_serve(self, item: NewLog, storage_log: Log) -> None:
        topic, partition = self._image.topics.get(item.topic), self.get_partition(item.topic, item.partition)
        state = self.logs.get(item.key)
        if state is None or state.log is not storage_log:
            return
        if topic is None or partition is None or topic.topic_id != item.topic_id:  # deleted meanwhile
            self._removals.begin(self.logs.forget(item.key))
            return
        partition.go_online(storage_log)
        values = topic_values(self._config, self._image.topic_configs.get(item.topic, {}))
        partition.configure(values)
        storage_log.local.configure(LogConfig.from_values(values))
        self._directory_assignments.save_later([topic])
        log.info("%s: created, and served from now on", partition.name)

    def _swap_in(self, image: MetadataImage, topics: Iterable[TopicImage]) -> None:
        for topic in topics:
            found = self.topics.get(topic.name)
            if found is None:
                found = HostedTopic(
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
        """Make the partition object, with or without a log."""
        state = self.logs.state(TopicPartition(topic.name, partition.index))
        served = Partition(
            topic.name,
            topic.topic_id,
            partition.index,
            state.log,
            leader_epoch=partition.leader_epoch,
            values=values,
            metrics=self._metrics.topic(topic.name),
            internal=topic.internal,
            offline_reason=state.error.message if state.error is not None else "",
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
                partition.log.local.configure(config)

    def _take_out(self, topic: TopicImage) -> None:
        """Remove the topic from the lookup tables."""
        found = self.topics.pop(topic.name, None)
        self.topics_by_id.pop(topic.topic_id, None)
        if found is None:
            return
        self._gone.append(found)
        self._metrics.forget_topic(topic.name)
        self._directory_assignments.forget(topic.name)

    async def _remove(self, partitions: Iterable[Partition]) -> None:
        """Take partitions offline, which fails their waiters, and begin to delete their logs."""
        removed: Removed = []
        work: list[FileWork] = []
        async for partition in in_turns(partitions):
            work += partition.file_work
            removed += self.logs.forget(partition.key)
            partition.go_offline("the topic was deleted")
        self._removals.begin(removed, work)

    async def removed(self) -> None:
        """Wait until the logs of removed topics are gone from the disk. Raises KafkaStorageError if some stay.

        In that case the topic stays marked for deletion, and the next start tries again.
        """
        await self._removals.wait()
