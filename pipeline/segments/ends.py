"""The end of a log that no broker serves: the offset after the last whole, valid batch; and its open transactions."""

from __future__ import annotations

from klamm.pipeline.segments.files import OpenSegment, Segment, index_entries
from klamm.protocol.errors import InvalidRecord
from klamm.protocol.records.batch import HEADER_BYTES, BatchHeader, crc_is_valid
from klamm.protocol.records.control import EndMarker, read_end_marker
from klamm.storage.log.producer_state_entry import SnapshotError, parse_snapshot
from klamm.storage.paths import SNAPSHOT_SUFFIX, offset_file


def log_end_offset(listed: list[Segment]) -> int:
    """Return the end of the log, 0 without segments. Raises Vanished."""
    if not listed:
        return 0
    with OpenSegment(listed[-1]) as segment:
        positions = [0, *index_entries(listed[-1])[-1:, 1].tolist()]
        for position in reversed(positions):
            end = _valid_end(segment, position)
            if end is not None:
                return end
    return listed[-1].base_offset


def _valid_end(segment: OpenSegment, position: int) -> int | None:
    end = None
    for at, header, _ in segment.batch_headers(position):
        is_next = header.base_offset >= (segment.segment.base_offset if end is None else end)
        if not is_next or not crc_is_valid(segment.read_at(header.size_bytes, at), header):
            break
        end = header.next_offset
    return end


def open_transactions(listed: list[Segment], end: int) -> dict[int, int]:
    """Return the first offset by producer id of transactions without a marker below `end`. Raises Vanished.

    Reads from the newest producer snapshot, or from the first batch.
    """
    open_, offset = _snapshot(listed, end)
    for segment in listed:
        if segment.base_offset >= end or (segment.next_base_offset or end) <= offset:
            continue
        with OpenSegment(segment) as file:
            for _, header, data in file.batch_headers(file.position_of(offset)):
                if header.base_offset >= end:
                    break
                if header.is_transactional and header.last_offset >= offset:
                    _passed(open_, header, data)
    return open_


def _passed(open_: dict[int, int], header: BatchHeader, data: bytes) -> None:
    if not header.is_control:
        open_.setdefault(header.producer_id, header.base_offset)
    elif marker(header, data) is not None:
        open_.pop(header.producer_id, None)


def marker(header: BatchHeader, data: bytes) -> EndMarker | None:
    """Return the end transaction marker in a control batch that starts with `data`; None for any other batch."""
    if len(data) < HEADER_BYTES:
        return None
    try:
        return read_end_marker(data[: header.size_bytes], header)
    except InvalidRecord:
        return None


def _snapshot(listed: list[Segment], end: int) -> tuple[dict[int, int], int]:
    """Return the open transactions of the newest usable snapshot, and its offset."""
    if not listed:
        return {}, 0
    directory, first = listed[0].directory, listed[0].base_offset
    names = (path.name.removesuffix(SNAPSHOT_SUFFIX) for path in directory.glob(f"*{SNAPSHOT_SUFFIX}"))
    offsets = sorted((int(name) for name in names if name.isdecimal()), reverse=True)
    for offset in offsets:
        if first <= offset <= end:
            try:
                producers = parse_snapshot(offset_file(directory, offset, SNAPSHOT_SUFFIX).read_bytes())
            except (FileNotFoundError, SnapshotError):
                continue
            return {
                p.producer_id: p.first_transaction_offset for p in producers if p.first_transaction_offset >= 0
            }, offset
    return {}, first
