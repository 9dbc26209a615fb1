"""Rebuild producer state and transaction indexes from the batches of a log, after a start or a truncation."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from pathlib import Path

from klamm.protocol.errors import InvalidRecord
from klamm.protocol.records.batch import BatchHeader
from klamm.protocol.records.control import EndMarker, read_end_marker
from klamm.protocol.records.crc import BytesLike
from klamm.storage import paths
from klamm.storage.checkpoints import CheckpointError
from klamm.storage.filesystem import Filesystem, describe, unlink_if_exists
from klamm.storage.log.log_config import LONG_MAX
from klamm.storage.log.producer_state_entry import SnapshotError
from klamm.storage.log.producer_state_manager import ProducerStateManager
from klamm.storage.log.segment import Segment
from klamm.storage.log.transaction_index import AbortedTransaction, check, is_as_listed, parse_list

logger = logging.getLogger(__name__)


def replay(
    producers: ProducerStateManager, segment: Segment, position: int, header: BatchHeader, data: BytesLike | None = None
) -> AbortedTransaction | None:
    """Record the batch at `position` of the log; return the transaction that it aborts, if it is such a marker."""
    if not header.is_control:
        return producers.replay(header)
    if not header.has_producer_id:
        return None
    return producers.replay(header, _marker(segment, position, header, data))


def _marker(segment: Segment, position: int, header: BatchHeader, data: BytesLike | None = None) -> EndMarker | None:
    """Return the marker in a control batch; None when it ends no transaction."""
    try:
        return read_end_marker(segment.file.read_at(header.size_bytes, position) if data is None else data, header)
    except InvalidRecord as error:
        logger.warning("%s: control batch at offset %d: %s", segment.path, header.base_offset, error.message)
        return None


def load_producers(
    producers: ProducerStateManager,
    segments: list[Segment],
    end_offset: int,
    filesystem: Filesystem,
    now_ms: int,
    directory: Path,
    snapshots: list[int],
) -> None:
    """Bring `producers` to `end_offset`: from the newest good snapshot (`snapshots`, ascending) and the later batches.

    Snapshots above `end_offset` and bad ones are removed, also from the list.
    """
    start = -1
    producers.clear()
    while snapshots:
        path = paths.offset_file(directory, snapshots[-1], paths.SNAPSHOT_SUFFIX)
        if snapshots[-1] <= end_offset:
            try:
                written_ms = min(filesystem.open_read(path).modified_ms(), now_ms)
                producers.load(filesystem.read_bytes(path), written_ms)
                start = snapshots[-1]
                break
            except (SnapshotError, OSError) as error:
                logger.warning("%s: bad producer snapshot %s: %s", directory.name, path.name, error)
        unlink_if_exists(filesystem, path)
        snapshots.pop()
    if start == end_offset:
        return
    for segment, following in zip(segments, [*segments[1:], None], strict=False):
        if following is not None and following.base_offset <= start:
            continue
        for position, header in segment.batch_headers():
            if start <= header.base_offset < end_offset:
                replay(producers, segment, position, header)


def reload_producers(
    producers: ProducerStateManager,
    segments: list[Segment],
    end_offset: int,
    filesystem: Filesystem,
    now_ms: int,
    directory: Path,
) -> None:
    """Call `load_producers` for a log that was cut, with the snapshots in its directory."""
    names = [paths.parse_offset_file(entry.name) for entry in filesystem.list_directory(directory)]
    snapshots = sorted(offset for offset, suffix in filter(None, names) if suffix == paths.SNAPSHOT_SUFFIX)
    load_producers(producers, segments, end_offset, filesystem, now_ms, directory, snapshots)


def open_transaction_indexes(
    segments: list[Segment],
    end_offset: int,
    filesystem: Filesystem,
    names: Collection[str],
    snapshots: Sequence[int],
    doubtful: Collection[int] = (),
) -> None:
    """Open the indexes of segments up to `end_offset` that are not scanned; rebuild those that do not match.

    `names` are the files in the directory, `snapshots` the offsets of producer snapshots. `doubtful` are the base
    offsets of segments that have lost other indexes: their transaction indexes are compared with the batches.
    """
    has_indexes = any(name.endswith((paths.TXN_INDEX_SUFFIX, paths.TXN_INDEX_LIST)) for name in names)
    if not segments or not (has_indexes or doubtful):
        return
    listed = _read_list(segments[0].directory, filesystem, names)
    ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
    for index, (segment, end) in enumerate(zip(segments, ends, strict=True)):
        try:
            _open_transaction_index(segment, end, filesystem, names, listed.get(segment.base_offset))
            if segment.base_offset in doubtful:
                _compare_with_batches(segment)
        except ValueError as error:
            logger.warning("%s: rebuilt: %s", segment.transaction_index.path, error)
            _rebuild_transaction_index(segments[: index + 1], filesystem, snapshots)


def _read_list(directory: Path, filesystem: Filesystem, names: Collection[str]) -> dict[int, tuple[int, int]]:
    if paths.TXN_INDEX_LIST not in names:
        return {}
    try:
        return parse_list(filesystem.read_bytes(directory / paths.TXN_INDEX_LIST))
    except CheckpointError as error:
        logger.warning("%s: %s: %s", directory.name, paths.TXN_INDEX_LIST, error)
        return {}


def _open_transaction_index(
    segment: Segment, end_offset: int, filesystem: Filesystem, names: Collection[str], listed: tuple[int, int] | None
) -> None:
    """Open the index of one segment. Raises ValueError when it must be rebuilt."""
    path = segment.transaction_index.path
    if path.name not in names:
        if listed is not None:
            raise ValueError("it is missing")
        return
    content = filesystem.read_bytes(path)
    check(content, segment.base_offset, end_offset)
    if listed is not None and not is_as_listed(content, listed):
        raise ValueError(f"its {len(content)} bytes differ from those written")
    segment.transaction_index.open_existing(len(content))


def _compare_with_batches(segment: Segment) -> None:
    """Raise ValueError unless the index has exactly the aborted transactions of the batches."""
    index = segment.transaction_index
    known = [index.entry(at).last_offset for at in range(index.count)]
    if known != [
        header.base_offset for position, header in segment.batch_headers() if _is_abort(segment, position, header)
    ]:
        raise ValueError(f"its {index.count} entries are not those of the batches")


def _is_abort(segment: Segment, position: int, header: BatchHeader) -> bool:
    marker = _marker(segment, position, header) if header.is_control else None
    return marker is not None and not marker.is_commit


def _rebuild_transaction_index(segments: list[Segment], filesystem: Filesystem, snapshots: Sequence[int]) -> None:
    """Rebuild the index of the last of the segments from the batches."""
    *before, segment = segments
    producers = ProducerStateManager(segment.directory.name, expiration_ms=LONG_MAX)
    known = [offset for offset in snapshots if offset <= segment.base_offset]
    load_producers(producers, before, segment.base_offset, filesystem, 0, segment.directory, known)
    index = segment.transaction_index
    index.clear()
    for position, header in segment.batch_headers():
        aborted = replay(producers, segment, position, header)
        if aborted is not None:
            index.append(aborted)
    try:
        if index.is_in_use:
            index.write_out().sync()
    except OSError as error:
        logger.warning("%s: not written: %s", index.path, describe(error))
