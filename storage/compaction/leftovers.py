"""Remove the files that a failed compaction leaves in a partition directory."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from klamm.storage import paths
from klamm.storage.filesystem import storage_errors, unlink_if_exists

if TYPE_CHECKING:
    from klamm.storage.log.log import Log
    from klamm.storage.log_dir import LogDir
    from klamm.storage.paths import TopicPartition


def discard_cleaned(log_dir: LogDir, partition: TopicPartition, log: Log) -> None:
    """Remove the output of a failed compaction of `log`, which may be large. Raises KafkaStorageError.

    Do nothing if the partition has another log now: the files do not belong to `log`.
    """
    if log_dir.logs.get(partition) is not log:
        return
    with storage_errors(log.name), suppress(FileNotFoundError):
        for entry in log_dir.filesystem.list_directory(log.local.directory):
            if entry.name.endswith(paths.CLEANED_SUFFIX):
                unlink_if_exists(log_dir.filesystem, log.local.directory / entry.name)
