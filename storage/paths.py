"""Every file and directory name that storage makes or parses, as Apache Kafka has them.

    <log dir>/                              meta.properties  .lock  .kafka_cleanshutdown  klamm.boot  klamm.reserve
                                            recovery-point-offset-checkpoint  log-start-offset-checkpoint
                                            replication-offset-checkpoint  cleaner-offset-checkpoint
      <topic>-<partition>/                  partition.metadata  leader-epoch-checkpoint
        <base offset, 20 digits>.log        the batches
        <base offset, 20 digits>.index      offset index
        <base offset, 20 digits>.timeindex  time index
        <base offset, 20 digits>.txnindex   aborted transactions
        <offset, 20 digits>.snapshot        producer state of everything below that offset
      <topic>-<partition>.<uuid>-delete/    a deleted partition; also -future, -stray
Suffixes of files in a partition directory: `.deleted` (to be removed), `.cleaned` (unfinished compaction, to be
removed), `.swap` (finished compaction, to be swapped in).

Files of our own, which Apache Kafka does not have:
- `klamm.boot`: the boot id of the machine when the log directory was last opened;
- `klamm.scrub`: what the scrubber has verified and found (`scrub/scrub_state.py`);
- `klamm.reserve`: space for a full disk (`reserve.py`);
- `klamm.compaction`, in a partition directory: the segment swap in progress (`log/swap_manifest.py`);
- `klamm.txnindexes`, in a partition directory: which transaction indexes exist (`log/transaction_index.py`).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
TEMPORARY_SUFFIX = ".tmp"

DELETE_DIRECTORY_SUFFIX = "-delete"
FUTURE_DIRECTORY_SUFFIX = "-future"
STRAY_DIRECTORY_SUFFIX = "-stray"

META_PROPERTIES = "meta.properties"
LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
BOOT = "klamm.boot"
RESERVE = "klamm.reserve"
SCRUB = "klamm.scrub"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
PARTITION_METADATA = "partition.metadata"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
COMPACTION_MANIFEST = "klamm.compaction"
SNAPSHOT_MANIFEST = "klamm-snapshot.json"  # in a directory that `klamm snapshot` has made
MOVE_MARKER = "klamm.move"
TXN_INDEX_LIST = "klamm.txnindexes"

METADATA_LOG_DIRECTORY = "__cluster_metadata-0"
"""KRaft's own log, in a log directory of Apache Kafka. Klamm does not serve it."""

NAME_LIMIT = 255
"""The longest name that filesystems allow, in bytes."""

SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")
_MOVED = re.compile(r".+-[0-9]+\.[0-9a-f]{32}-(delete|future|stray)")
_FUTURE = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})\.[0-9a-f]{32}-future")
_OFFSET_FILE = re.compile(r"([0-9]{20})(\.[a-z]+)")


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def offset_file(directory: Path, offset: int, suffix: str) -> Path:
    return directory / f"{offset:020d}{suffix}"


def parse_offset_file(name: str) -> tuple[int, str] | None:
    """Return (offset, suffix) of a segment file or snapshot; None for any other name."""
    match = _OFFSET_FILE.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def without_log(names: Collection[str]) -> list[int]:
    """Return the base offsets between the first and the last segment that have indexes but no log.

    Klamm never leaves that state: a log is removed before its indexes, but only at the ends, or renamed (`.deleted`).
    """
    parsed = [found for found in map(parse_offset_file, names) if found is not None]
    bases = {offset for offset, suffix in parsed if suffix == LOG_SUFFIX}
    indexed = {offset for offset, suffix in parsed if suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)}
    return sorted(
        offset
        for offset in indexed - bases
        if bases and min(bases) < offset < max(bases) and f"{offset:020d}{LOG_SUFFIX}{DELETED_SUFFIX}" not in names
    )


def partition_directory(log_dir: Path, topic: str, partition: int) -> Path:
    return log_dir / f"{topic}-{partition}"


def parse_partition_directory(name: str) -> TopicPartition | None:
    """Return the partition of a directory name; None when it is not the name of a live partition."""
    if _MOVED.fullmatch(name):
        return None
    match = _PARTITION.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None


def delete_directory(directory: Path, unique: UUID) -> Path:
    """Return `<topic>-<partition>.<uuid>-delete`; as in Kafka, the topic is cut where the name would be too long."""
    return _moved_directory(directory, unique, DELETE_DIRECTORY_SUFFIX)


def stray_directory(directory: Path, unique: UUID) -> Path:
    """Return `<topic>-<partition>.<uuid>-stray`: a partition that none of our topics claims, kept and not served."""
    return _moved_directory(directory, unique, STRAY_DIRECTORY_SUFFIX)


def _moved_directory(directory: Path, unique: UUID, mark: str) -> Path:
    topic, _, partition = directory.name.rpartition("-")
    suffix = f"-{partition}.{unique.hex}{mark}"
    return directory.with_name(topic[: NAME_LIMIT - len(suffix)] + suffix)


def future_directory(directory: Path, unique: UUID) -> Path:
    """Return `<topic>-<partition>.<uuid>-future`, for a partition that is moving into this log directory.

    This name is not cut, since it must name the topic. Raises ValueError when it is too long.
    """
    name = f"{directory.name}.{unique.hex}{FUTURE_DIRECTORY_SUFFIX}"
    if len(name) > NAME_LIMIT:
        raise ValueError(f"{name} is longer than {NAME_LIMIT} bytes")
    return directory.with_name(name)


def future_partition(name: str) -> TopicPartition | None:
    """Return the partition that a `-future` directory is to become; None for any other name."""
    match = _FUTURE.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None


def is_delete_directory(name: str) -> bool:
    return name.endswith(DELETE_DIRECTORY_SUFFIX) and _MOVED.fullmatch(name) is not None
