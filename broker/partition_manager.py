"""All partitions of this broker: found by name or topic id, made and removed as the metadata says.

The hot paths look up ``topics[name].partitions[index]``, two dict hits and a list index. Changes come from the
controller in two steps: `prepare` makes the logs of new partitions (in a thread, as it syncs directories), then
`on_image` swaps everything in on the loop without an await, so no request sees half a change. Logs of removed
partitions are renamed at once and deleted in a thread; a crash half-way is finished by the next start.

A partition whose log cannot be opened is offline: it answers KAFKA_STORAGE_ERROR and keeps its place, the others are
served.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from klamm.broker.partition import Partition
from klamm.config.broker_config import BrokerConfig, topic_values
from klamm.protocol.errors import KafkaError, KafkaStorageError
from klamm.storage.log import Log
from klamm.storage.log_config import LogConfig
from klamm.storage.log_dir import LogDir, NewLog
from klamm.storage.paths import TopicPartition

if TYPE_CHECKING:
    from klamm.broker.metadata.image import MetadataImage, TopicImage
    from klamm.broker.metrics import Metrics, TopicMetrics

log = logging.getLogger(__name__)


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

    def __init__(self, log_dirs: list[LogDir], config: BrokerConfig, metrics: Metrics, executor: Executor) -> None:
        self.topics: dict[str, TopicPartitions] = {}
        self.topics_by_id: dict[bytes, TopicPartitions] = {}
        self.log_dirs = log_dirs
        self._config = config
        self._metrics = metrics
        self._executor = executor
        self._logs: dict[tuple[str, int], Log | KafkaError] = {}
        self._directories: dict[tuple[str, int], LogDir] = {}
        self._removals: list[asyncio.Future[None]] = []

    # -- looking up ---------------------------------------------------------------------------------------------

    def get(self, topic: str, index: int) -> Partition | None:
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def __iter__(self) -> Iterator[Partition]:
        for topic in self.topics.values():
            yield from topic.partitions

    def offline(self, topic: str) -> frozenset[int]:
        """Indexes of the topic's partitions that are offline."""
        found = self.topics.get(topic)
        if found is None:
            return frozenset()
        return frozenset(partition.index for partition in found.partitions if partition.log is None)

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
        return self._directories[partition.topic, partition.index]

    # -- starting -----------------------------------------------------------------------------------------------

    def load(self, image: MetadataImage) -> None:
        """Open (and, after a crash, recover) the logs on disk; then take the image. Blocks; only for the start."""
        for log_dir in self.log_dirs:
            loaded = log_dir.load_logs(self._log_config_of(image), expected=lambda name: self._is_expected(name, image))
            for name, storage_log in loaded.logs.items():
                self._take(log_dir, name.topic, name.partition, _checked(log_dir, name, storage_log, image))
            for name, offline in loaded.offline.items():
                self._take(log_dir, name.topic, name.partition, KafkaStorageError(offline.reason))
        self._create_logs(image, image.topics.values())
        self._swap_in(image, image.topics.values())
        known = {(topic.name, partition.index) for topic in image.topics.values() for partition in topic.partitions}
        for key in sorted(self._logs.keys() - known):
            log.warning("%s-%d: on disk but not in the metadata; it is kept and not served", *key)

    def _is_expected(self, name: TopicPartition, image: MetadataImage) -> bool:
        """In the metadata, and not found in another log dir."""
        topic = image.topics.get(name.topic)
        known = (name.topic, name.partition) in self._logs
        return topic is not None and name.partition < len(topic.partitions) and not known

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

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Serve what ``new`` says from now on."""
        gone = [
            topic
            for name, topic in old.topics.items()
            if name not in new.topics or new.topics[name].topic_id != topic.topic_id
        ]
        for topic in gone:
            self._remove(topic)
        self._swap_in(new, (topic for name, topic in new.topics.items() if old.topics.get(name) is not topic))
        if old.topic_configs is not new.topic_configs:
            for name in old.topic_configs.keys() | new.topic_configs.keys():
                if old.topic_configs.get(name) != new.topic_configs.get(name):
                    self._configure(name, new)

    def reconfigure(self, config: BrokerConfig, image: MetadataImage) -> None:
        """The broker's own config has changed: every topic resolves its values anew."""
        self._config = config
        for name in self.topics:
            self._configure(name, image)

    def _create_logs(self, image: MetadataImage, topics: Iterable[TopicImage]) -> None:
        counts = dict.fromkeys(self.log_dirs, 0)
        for log_dir in self._directories.values():
            counts[log_dir] += 1
        placed: dict[LogDir, list[NewLog]] = {log_dir: [] for log_dir in counts}
        for topic in topics:
            config = self._log_config(image.topic_configs.get(topic.name, {}))
            for partition in topic.partitions:
                self._set_foreign_aside(topic, partition.index)
                if (topic.name, partition.index) not in self._logs:
                    log_dir = min(counts, key=lambda candidate: counts[candidate])
                    counts[log_dir] += 1
                    placed[log_dir].append(NewLog(topic.name, partition.index, topic.topic_id, config))
        for log_dir, new in placed.items():
            try:
                created: Sequence[Log | KafkaError] = log_dir.create_logs(new)
            except KafkaError as error:
                log.error("%s: %d partition(s) cannot be created: %s", log_dir.path, len(new), error.message)
                created = [error] * len(new)
            for item, opened in zip(new, created, strict=True):
                self._take(log_dir, item.topic, item.partition, opened)

    def _set_foreign_aside(self, topic: TopicImage, index: int) -> None:
        """Make room for a new partition where the files of a lost topic of the same name are: they are kept."""
        key = (topic.name, index)
        opened = self._logs.get(key)
        if topic.name in self.topics or not isinstance(opened, Log) or opened.topic_id in (None, topic.topic_id):
            return
        try:
            kept = self._directories[key].set_aside(*key)
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
            values = topic_values(self._config, image.topic_configs.get(topic.name, {}))
            for partition in topic.partitions[: len(found.partitions)]:
                served = found.partitions[partition.index]
                served.leader_epoch = partition.leader_epoch
                served.replica_count = len(partition.replicas)
                served.in_sync_count = len(partition.isr)
            for partition in topic.partitions[len(found.partitions) :]:
                opened = self._logs[topic.name, partition.index]
                served = Partition(
                    topic.name,
                    topic.topic_id,
                    partition.index,
                    opened if isinstance(opened, Log) else None,
                    leader_epoch=partition.leader_epoch,
                    values=values,
                    metrics=found.metrics,
                    internal=topic.internal,
                    offline_reason=opened.message if isinstance(opened, KafkaError) else "",
                )
                served.replica_count = len(partition.replicas)
                served.in_sync_count = len(partition.isr)
                found.partitions.append(served)

    def _configure(self, name: str, image: MetadataImage) -> None:
        found = self.topics.get(name)
        if found is None:
            return
        values = topic_values(self._config, image.topic_configs.get(name, {}))
        config = LogConfig.from_values(values)
        for partition in found.partitions:
            partition.configure(values)
            if partition.log is not None:
                partition.log.config = config

    def _remove(self, topic: TopicImage) -> None:
        found = self.topics.pop(topic.name, None)
        self.topics_by_id.pop(topic.topic_id, None)
        if found is None:
            return
        self._metrics.forget_topic(topic.name)
        removed: list[tuple[LogDir, str, int]] = []
        for partition in found.partitions:
            key = (partition.topic, partition.index)
            self._logs.pop(key, None)
            removed.append((self._directories.pop(key), *key))
            partition.go_offline("the topic was deleted")
        self._removals.append(asyncio.get_running_loop().run_in_executor(self._executor, _delete_logs, removed))

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

    def close(self) -> None:
        """Flush and close every log, leave the marks of a clean shutdown. Blocks."""
        for log_dir in self.log_dirs:
            log_dir.close(clean=True)


def _checked(log_dir: LogDir, name: TopicPartition, found: Log, image: MetadataImage) -> Log | KafkaError:
    """A log that belongs to another topic of the same name is not served. One without a topic id gets it: its creation
    was cut short by a crash, before any data."""
    topic = image.topics.get(name.topic)
    if topic is None:
        return found
    if found.topic_id is None:
        try:
            log_dir.name_topic(name, topic.topic_id)
        except KafkaError as error:
            log.error("%s: offline: %s", name, error.message)
            return error
    if found.topic_id == topic.topic_id:
        return found
    reason = f"partition.metadata names another topic id than the metadata of {name.topic}"
    log.error("%s: offline: %s", name, reason)
    return KafkaStorageError(reason)


def _delete_logs(removed: list[tuple[LogDir, str, int]]) -> None:
    """All that can be deleted; then raises the first error."""
    failure: KafkaError | None = None
    for log_dir, topic, index in removed:
        try:
            log_dir.delete_log(topic, index)
        except KafkaError as error:
            log.error("%s-%d: cannot be deleted: %s", topic, index, error.message)
            failure = failure or error
    if failure is not None:
        raise failure
