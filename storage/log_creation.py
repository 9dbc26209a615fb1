"""Make the logs of new partitions in a log directory.

A partition's directory and its `partition.metadata`, which names the topic, are durable before the first data. A log
that could not be created leaves nothing, if the disk lets its files be removed. A creation that a crash cut short
leaves a directory without topic id: the log manager adds it at the next start. All of it blocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from klamm.protocol.errors import KafkaStorageError
from klamm.storage import checkpoints, paths
from klamm.storage.filesystem import NoSpace, describe, remove_tree, replace_file, storage_errors
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.paths import TopicPartition
from klamm.storage.recovery.loader import LogSource, open_log
from klamm.storage.sync_threads import for_each

if TYPE_CHECKING:
    from klamm.storage.log_dir import LogDir


class CreationLeftOver(KafkaStorageError):
    """A log could not be created, and a part of it is left in the directory: it must not be created in another one."""


@dataclass(frozen=True, slots=True)
class NewLog:
    """A log to be created."""

    topic: str
    partition: int
    topic_id: bytes
    config: LogConfig

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def create_logs(log_dir: LogDir, new: Iterable[NewLog]) -> list[Log | KafkaStorageError]:
    """Create the logs, with one sync of the log directory; return the log or the error of each.

    A failed log leaves nothing, unless its error is CreationLeftOver. Raises KafkaStorageError when the log directory
    is offline.
    """
    if log_dir.offline_reason is not None:
        raise KafkaStorageError(f"{log_dir.path}: offline: {log_dir.offline_reason}")
    if log_dir.reserve.is_lent:
        raise NoSpace(f"{log_dir.path}: the disk is full, and its reserve is released")
    items = list(new)
    created = for_each(lambda item: _try_to_create(log_dir, item), items)
    try:
        log_dir.filesystem.sync_directory(log_dir.path)
    except OSError as error:
        for log in created:
            if isinstance(log, Log):
                log.local.abandon("the log directory was not synced")
        return [CreationLeftOver(f"{log_dir.path}: {describe(error)}") for _ in items]
    for item, log in zip(items, created, strict=True):
        if isinstance(log, Log):
            log.topic_id = item.topic_id
            log_dir.take_in(item.key, log)
    return created


def _try_to_create(log_dir: LogDir, item: NewLog) -> Log | KafkaStorageError:
    directory = paths.partition_directory(log_dir.path, item.topic, item.partition)
    try:
        with storage_errors(str(directory)):
            return _create(log_dir, item)
    except KafkaStorageError as error:
        failure = error.with_traceback(None)  # its cause would keep frames and all that they refer to
        failure.__cause__ = failure.__context__ = None
    try:
        remove_tree(log_dir.filesystem, directory)
    except OSError as error:
        return CreationLeftOver(f"{failure.message}; {describe(error)}")
    return failure


def _create(log_dir: LogDir, item: NewLog) -> Log:
    assert item.key not in log_dir.logs, f"{item.key} exists"
    directory = paths.partition_directory(log_dir.path, item.topic, item.partition)
    log_dir.filesystem.make_directories(directory)
    metadata = checkpoints.format_partition_metadata(item.topic_id)
    replace_file(log_dir.filesystem, directory / paths.PARTITION_METADATA, metadata)
    return open_log(
        LogSource(
            directory,
            item.config,
            clock=log_dir.clock,
            filesystem=log_dir.filesystem,
            clean=True,
            producer_expiration_ms=log_dir.producer_expiration_ms,
        )
    )


def name_topic(log_dir: LogDir, partition: TopicPartition, topic_id: bytes) -> None:
    """Write the `partition.metadata` of a partition that a crash left without one. Raises KafkaStorageError."""
    directory = paths.partition_directory(log_dir.path, partition.topic, partition.partition)
    with storage_errors(str(partition)):
        metadata = checkpoints.format_partition_metadata(topic_id)
        replace_file(log_dir.filesystem, directory / paths.PARTITION_METADATA, metadata)
    log_dir.logs[partition].topic_id = topic_id
