"""The aborted transactions in a stretch of the log.

A transaction ends with the next marker of its producer. Most end in the same stretch. For one that ends after it, the
transaction indexes are read first: they hold the aborted ones. If they have no entry, it was committed, or the index is
missing. (There is no index before the first abort, so a missing one proves nothing.) Then the headers of the following
batches decide. The outcomes are kept for the next stretch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from klamm.pipeline.errors import PipelineError
from klamm.pipeline.ranges import TopicPartition
from klamm.pipeline.segments.ends import marker
from klamm.pipeline.segments.files import HEAD_BYTES, OpenSegment, Segment
from klamm.pipeline.segments.retries import retried
from klamm.protocol.records.batch import CONTROL_FLAG, NO_PRODUCER_ID, TRANSACTIONAL_FLAG, read_header
from klamm.protocol.records.columnar.batch_headers import BatchHeaders, Bytes
from klamm.storage.log.transaction_index import ENTRY, AbortedTransaction, entries
from klamm.storage.paths import TXN_INDEX_SUFFIX

if TYPE_CHECKING:
    from klamm.pipeline.segments.directories import LogDirs


class _Outcome(NamedTuple):
    """The offset of the marker that ended a transaction, and whether it is an abort."""

    marker_offset: int
    is_abort: bool


class TransactionOutcomes:
    """The outcomes of the transactions of one partition, stretch after stretch."""

    def __init__(self, logs: LogDirs, partition: TopicPartition, end: int) -> None:
        self._logs = logs
        self._partition = partition
        self._end = end
        # By producer id: the outcome of the transaction that was open after the last stretch.
        self._known: dict[int, _Outcome] = {}

    def aborted(self, data: Bytes, batch_headers: BatchHeaders, start: int, end: int) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of the aborted transactions with batches here, as `columns` wants.

        Raises PipelineError when one is still open: the range reaches beyond the last stable offset.
        """
        found: list[tuple[int, int]] = []
        open_: dict[int, int] = {}
        transactional = (batch_headers.attributes & TRANSACTIONAL_FLAG != 0) & (
            batch_headers.producer_ids > NO_PRODUCER_ID
        )
        inside = transactional & (batch_headers.last_offsets >= start) & (batch_headers.base_offsets < end)
        for row in np.flatnonzero(inside).tolist():
            producer_id = int(batch_headers.producer_ids[row])
            if not batch_headers.attributes[row] & CONTROL_FLAG:
                open_.setdefault(producer_id, int(batch_headers.base_offsets[row]))
            elif producer_id in open_:
                at = int(batch_headers.positions[row])
                content = data[at : at + HEAD_BYTES].tobytes()
                ended = marker(read_header(content), content)
                if ended is not None:
                    first = open_.pop(producer_id)
                    if not ended.is_commit:
                        found.append((producer_id, first))
        if open_:
            self._look_ahead(open_, int(batch_headers.last_offsets[-1]) + 1)
            found += [(producer_id, first) for producer_id, first in open_.items() if self._known[producer_id].is_abort]
        return found

    def _look_ahead(self, open_: dict[int, int], behind: int) -> None:
        """Find out how these transactions end, at or above the offset `behind`."""
        wanted = {
            producer_id: first
            for producer_id, first in open_.items()
            if producer_id not in self._known or self._known[producer_id].marker_offset < behind
        }
        if wanted:
            retried(lambda: self._ask_indexes(wanted, behind), str(self._partition))
        if wanted:
            retried(lambda: self._ask_headers(wanted, behind), str(self._partition))
        if wanted:
            producer_id, first = min(wanted.items(), key=lambda item: item[1])
            raise PipelineError(
                f"{self._partition}: the transaction of producer {producer_id} at offset {first} is open, "
                f"so read_committed cannot read up to {self._end}"
            )

    def _ask_indexes(self, wanted: dict[int, int], behind: int) -> None:
        for segment in self._segments(behind):
            for aborted in _entries(segment):
                first = wanted.get(aborted.producer_id)
                if first is not None and aborted.first_offset <= first and behind <= aborted.last_offset:
                    self._known[aborted.producer_id] = _Outcome(aborted.last_offset, True)
                    del wanted[aborted.producer_id]
                if not wanted or aborted.last_stable_offset >= self._end:
                    return

    def _ask_headers(self, wanted: dict[int, int], behind: int) -> None:
        for segment in self._segments(behind):
            with OpenSegment(segment) as file:
                for _, header, data in file.batch_headers(file.position_of(behind)):
                    if header.producer_id not in wanted or not header.is_control or header.base_offset < behind:
                        continue
                    ended = marker(header, data)
                    if ended is not None:
                        self._known[header.producer_id] = _Outcome(header.base_offset, not ended.is_commit)
                        del wanted[header.producer_id]
                        if not wanted:
                            return

    def _segments(self, behind: int) -> list[Segment]:
        listed = self._logs.segments(self._partition)
        return [one for one in listed if one.next_base_offset is None or one.next_base_offset > behind]


def _entries(segment: Segment) -> list[AbortedTransaction]:
    """Return the entries of the index, nothing if there is none."""
    try:
        content = segment.file(TXN_INDEX_SUFFIX).read_bytes()
    except FileNotFoundError:
        return []
    return list(entries(content[: len(content) // ENTRY.size * ENTRY.size]))
