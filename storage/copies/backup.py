"""Take a clean prefix of a partition from its directory while a broker may be using it, and restore it later.

The copy is a directory of the same shape:
- closed segments: `.log` files as hard links (`hard_links.py`), synced, since the broker may not have synced them yet;
  indexes as copies;
- the active segment: a copy of its whole, good batches. A batch that is being written at that moment has a wrong
  checksum or is incomplete; it and everything after it is left out. The indexes are rebuilt on restore;
- the producer snapshots up to the active segment, and the leader epochs below the end.

No lock is taken and nothing is written in the source, so the broker may interfere: retention and compaction rename
files. The names are listed before and after; if a name is gone or means another file, everything is repeated. Appends
and rolls do no harm: the segment that was listed as active remains a valid prefix.

The ends of partitions are not coordinated: one may have the end of a transaction and another may not. A transaction
that was open at the end is aborted on restore, as a coordinator would do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from klamm.protocol.records.control import EndMarker
from klamm.protocol.records.validate import AppendRules, valid_marker
from klamm.storage import checkpoints, paths
from klamm.storage.checkpoints import CheckpointError
from klamm.storage.clock import Clock
from klamm.storage.copying import Copied, copy_file, link_or_copy
from klamm.storage.filesystem import Entry, Filesystem, remove_tree, replace_file
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log.scan import batches, problem_of
from klamm.storage.recovery.loader import LogDamaged, LogSource, open_log
from klamm.storage.recovery.recovery import find_batch_after

TRIES = 20
MANY = 32
SYNC_THREADS = 16


class BackupError(Exception):
    """The operation failed: one line for the operator, with the partition."""


class _Unsettled(Exception):
    """The broker renamed or removed files during the copy."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The taken part: the offsets [log_start_offset, end_offset)."""

    log_start_offset: int
    end_offset: int
    size: Copied


def take_partition(
    filesystem: Filesystem,
    source: Path,
    target: Path,
    *,
    log_start_offset: int,
    pause: Callable[[], None],
) -> Taken:
    """Make `target`, durable except for its name. Raises BackupError and OSError (FileNotFoundError: no source).

    `pause` is called between two tries, so that the broker can finish its changes.
    """
    for _ in range(TRIES):
        filesystem.make_directories(target)
        try:
            return _take(filesystem, source, target, log_start_offset)
        except _Unsettled:
            remove_tree(filesystem, target)
            pause()
    raise BackupError(f"{source}: the files kept changing during {TRIES} tries")


def _take(filesystem: Filesystem, source: Path, target: Path, log_start_offset: int) -> Taken:
    before = {entry.name: entry for entry in filesystem.list_directory(source) if not entry.is_directory}
    if any(name == paths.COMPACTION_MANIFEST or name.endswith(paths.SWAP_SUFFIX) for name in before):
        raise _Unsettled
    bases = sorted(parsed[0] for name in before if (parsed := paths.parse_offset_file(name)) and parsed[1] == ".log")
    if not bases:
        raise BackupError(f"{source}: there is no segment")
    active = bases[-1]
    used = [entry for entry in before.values() if _is_taken(entry.name, active)]
    size = Copied()
    try:
        for entry in used:
            size += _take_file(filesystem, source, target, entry, active)
        epochs = filesystem.read_bytes(source / paths.LEADER_EPOCH_CHECKPOINT)
    except FileNotFoundError:
        filesystem.list_directory(source)  # raises FileNotFoundError if the whole source is gone
        if paths.LEADER_EPOCH_CHECKPOINT in before:
            raise _Unsettled from None
        epochs = b""
    after = {entry.name: entry.inode for entry in filesystem.list_directory(source)}
    if any(after.get(entry.name) != entry.inode for entry in used):
        raise _Unsettled
    end_offset = _cut_to_good_batches(filesystem, target, active)
    _write_epochs(filesystem, target, epochs, end_offset)
    _sync_all(filesystem, [target / entry.name for entry in used])
    filesystem.sync_directory(target)
    return Taken(min(max(log_start_offset, bases[0]), end_offset), end_offset, size)


def _is_taken(name: str, active: int) -> bool:
    parsed = paths.parse_offset_file(name)
    if parsed is None:
        return name == paths.TXN_INDEX_LIST
    offset, suffix = parsed
    if suffix == paths.SNAPSHOT_SUFFIX:
        return offset <= active
    return suffix in paths.SEGMENT_SUFFIXES and (offset < active or suffix == paths.LOG_SUFFIX)


def _take_file(filesystem: Filesystem, source: Path, target: Path, entry: Entry, active: int) -> Copied:
    offset, suffix = paths.parse_offset_file(entry.name) or (0, "")
    is_shared = suffix == paths.SNAPSHOT_SUFFIX or (suffix == paths.LOG_SUFFIX and offset < active)
    if is_shared:
        return link_or_copy(filesystem, source / entry.name, target / entry.name, entry.size_bytes, sync=False)
    return Copied(copied_bytes=copy_file(filesystem, source / entry.name, target / entry.name, sync=False))


def _sync_all(filesystem: Filesystem, files: Sequence[Path]) -> None:
    """Sync the files, shared ones, too. Many are synced in threads, since the kernel combines waiting syncs."""

    def sync(path: Path) -> None:
        filesystem.open_file(path).sync()

    if len(files) < MANY:
        for path in files:
            sync(path)
        return
    with ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="klamm-sync") as threads:
        for _ in threads.map(sync, files):
            pass


def _cut_to_good_batches(filesystem: Filesystem, target: Path, base_offset: int) -> int:
    """Cut the copy of the active segment after its last good batch; return the next offset. Raises BackupError."""
    path = paths.offset_file(target, base_offset, paths.LOG_SUFFIX)
    file = filesystem.open_file(path)
    size, end, next_offset = file.size(), 0, base_offset
    for position, header, data in batches(file, 0, size):
        if problem_of(header, data, next_offset, base_offset) is not None:
            break
        end, next_offset = position + header.size_bytes, header.next_offset
    if end < size:
        good = find_batch_after(file, end + 1, size, next_offset)
        if good is not None:
            raise BackupError(
                f"{path.name} of {target.name}: damaged at position {end}, a good batch follows at {good}"
            )
        file.truncate(end)
    return next_offset


def _write_epochs(filesystem: Filesystem, target: Path, content: bytes, end_offset: int) -> None:
    """Write the epochs below the end. If the content is unreadable, they are rebuilt from the batches on restore."""
    try:
        rows = [row for row in checkpoints.parse_lines(content) if int(row[1]) < end_offset]
    except (CheckpointError, ValueError, IndexError):
        return
    lines = checkpoints.format_lines([" ".join(row) for row in rows])
    replace_file(filesystem, target / paths.LEADER_EPOCH_CHECKPOINT, lines)


# -- restore ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Restored:
    """The restored partition: no batch has a later leader epoch, no producer a higher id."""

    log_start_offset: int
    end_offset: int
    last_epoch: int
    highest_producer_id: int
    aborted_count: int
    size: Copied


def restore_partition(
    filesystem: Filesystem,
    clock: Clock,
    source: Path,
    target: Path,
    config: LogConfig,
    *,
    topic_id: bytes,
    log_start_offset: int,
    end_offset: int,
) -> Restored:
    """Make `target` from a taken copy: a cleanly closed log that ends at `end_offset`, durable except for its name.

    Open transactions are aborted, so the log may end after `end_offset`. Raises BackupError when the copy was changed,
    OSError, KafkaStorageError.
    """
    filesystem.make_directories(target)
    entries = [entry for entry in filesystem.list_directory(source) if not entry.is_directory]
    bases = sorted(
        parsed[0] for entry in entries if (parsed := paths.parse_offset_file(entry.name)) and parsed[1] == ".log"
    )
    if not bases:
        raise BackupError(f"{source}: there is no segment")
    size = Copied()
    used = [entry for entry in entries if _is_taken(entry.name, bases[-1])]
    for entry in used:
        size += _take_file(filesystem, source, target, entry, bases[-1])
    if any(entry.name == paths.LEADER_EPOCH_CHECKPOINT for entry in entries):
        name = paths.LEADER_EPOCH_CHECKPOINT
        size += Copied(copied_bytes=copy_file(filesystem, source / name, target / name))
    _sync_all(filesystem, [target / entry.name for entry in used])
    replace_file(filesystem, target / paths.PARTITION_METADATA, checkpoints.format_partition_metadata(topic_id))
    try:
        log = open_log(
            LogSource(
                target,
                config,
                clock=clock,
                filesystem=filesystem,
                log_start_offset=log_start_offset,
                recovery_point=bases[-1],
                clean=False,
            )
        )
    except LogDamaged as error:
        raise BackupError(f"{source}: {error}") from error
    if log.log_end_offset != end_offset:
        log.local.abandon("not restored")
        raise BackupError(f"{source}: ends at offset {log.log_end_offset}, but {end_offset} was taken: it was changed")
    log.set_high_watermark(end_offset)
    highest = max((producer.producer_id for producer in log.producers), default=-1)
    aborted_count = _abort_open_transactions(log, clock.wall_ms())
    last_epoch, end = log.leader_epochs.latest, log.log_end_offset
    log.set_high_watermark(end)
    log.close()
    return Restored(log.log_start_offset, end, last_epoch, highest, aborted_count, size)


def _abort_open_transactions(log: Log, now_ms: int) -> int:
    """Abort the transactions that were open, which nobody else would end; return their number."""
    found = [producer for producer in log.producers if producer.first_transaction_offset >= 0]
    for producer in found:
        coordinator_epoch = max(0, producer.coordinator_epoch)
        marker = EndMarker(is_commit=False, coordinator_epoch=coordinator_epoch, timestamp=now_ms)
        batch = valid_marker(producer.producer_id, producer.epoch, marker, AppendRules())
        leader_epoch = max(0, log.leader_epochs.latest)
        log.append_marker(batch, marker, transaction_version=0, leader_epoch=leader_epoch, now_ms=now_ms)
    return len(found)
