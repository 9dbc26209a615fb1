"""Delete the logs of partitions, or set their files aside.

A partition goes in two steps: its directory is renamed durably, then the renamed directory is removed. After a crash in
between, the next start removes it (`log_loading.py`). Responses that are being sent keep their files. On a full disk
the files go first, and the writes that follow may use the reserve. All of it blocks.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from klamm.protocol.errors import KafkaStorageError
from klamm.storage import paths
from klamm.storage.filesystem import remove_tree, storage_errors
from klamm.storage.paths import TopicPartition

if TYPE_CHECKING:
    from klamm.storage.log_dir import LogDir

logger = logging.getLogger(__name__)


def delete_log(log_dir: LogDir, partition: TopicPartition, *, remove: bool = True) -> Path:
    """Delete a partition, even an offline one; return its directory's new name. Raises KafkaStorageError.

    With `remove=False` the renamed directory stays.
    """
    renamed = _rename(log_dir, partition, paths.delete_directory, "deleted")
    with storage_errors(str(partition)):
        try:
            if remove:
                remove_tree(log_dir.filesystem, renamed)
        finally:  # after the removal, which frees space on a full disk
            log_dir.reserve.lend_to(log_dir.forget_missing)
    return renamed


def delete_logs(log_dir: LogDir, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, KafkaStorageError]:
    """Delete many, with one sync of the log directory and of each checkpoint.

    Return an error for each that is not deleted, or not durably.
    """
    renamed: dict[TopicPartition, Path] = {}
    failures: dict[TopicPartition, KafkaStorageError] = {}
    for partition in partitions:
        try:
            renamed[partition] = _rename(log_dir, partition, paths.delete_directory, "deleted", sync=False)
        except KafkaStorageError as error:
            failures[partition] = error
    try:
        with storage_errors(str(log_dir.path)):
            log_dir.filesystem.sync_directory(log_dir.path)
    except KafkaStorageError as error:
        return {**dict.fromkeys(renamed, error), **failures}
    for partition, directory in renamed.items():
        try:
            with storage_errors(str(partition)):
                remove_tree(log_dir.filesystem, directory)
        except KafkaStorageError as error:
            failures[partition] = error
    try:
        with storage_errors(str(log_dir.path)):  # after the removal, which frees space on a full disk
            log_dir.reserve.lend_to(log_dir.forget_missing)
    except KafkaStorageError as error:
        return {**dict.fromkeys(renamed, error), **failures}
    return failures


def set_aside(log_dir: LogDir, partition: TopicPartition) -> Path:
    """Keep the files of a partition that belongs to none of our topics under another name, durably."""
    renamed = _rename(log_dir, partition, paths.stray_directory, "set aside")
    with storage_errors(str(partition)):
        log_dir.reserve.lend_to(log_dir.forget_missing)
    return renamed


def _rename(
    log_dir: LogDir, key: TopicPartition, renaming: Callable[[Path, uuid.UUID], Path], reason: str, *, sync: bool = True
) -> Path:
    """Close a partition and rename its directory, durably with `sync`. Raises KafkaStorageError."""
    with storage_errors(str(key)):
        log_dir.let_go(key, reason)
        directory = paths.partition_directory(log_dir.path, key.topic, key.partition)
        renamed = renaming(directory, uuid.uuid4())
        try:
            log_dir.filesystem.rename(directory, renamed)
            if sync:
                log_dir.filesystem.sync_directory(log_dir.path)
        except FileNotFoundError:
            logger.warning("%s: its directory was already gone", key)
    return renamed
