"""A read_committed consumer of a log: fetch after fetch, each with its aborted transactions."""

from __future__ import annotations

from klamm.protocol.records.batch import Record, batches, records
from klamm.protocol.records.control import read_end_marker
from klamm.storage.log.log import Log


def read_committed(log: Log, *, max_bytes: int = 1 << 20, start: int | None = None) -> list[Record]:
    """Return the records of the consumer, chosen as the Java client does. The log must have no gap at its end."""
    found: list[Record] = []
    offset = log.log_start_offset if start is None else start
    stable = log.last_stable_offset
    while offset < stable:
        read = log.read_records(offset, max_bytes=max_bytes, max_offset=stable)
        if read.region is None:
            break
        aborted = sorted((t.first_offset, t.producer_id) for t in log.local.segments.aborted(offset, read.next_offset))
        found += [record for record in _chosen(read.region.read(), aborted) if record.offset >= offset]
        offset = read.next_offset
    return found


def _chosen(data: bytes, aborted: list[tuple[int, int]]) -> list[Record]:
    found: list[Record] = []
    out: set[int] = set()
    for position, head in batches(data):
        while aborted and aborted[0][0] <= head.last_offset:
            out.add(aborted.pop(0)[1])
        if head.is_control:
            marker = read_end_marker(data, head, position)
            if marker is not None and not marker.is_commit:
                out.discard(head.producer_id)
        elif not (head.is_transactional and head.producer_id in out):
            found += records(data, head, 1 << 20, position)
    return found
