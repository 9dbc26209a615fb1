"""The reader of a piece, wherever its offsets are by now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from klamm.pipeline.arrow import record_batch
from klamm.pipeline.errors import DataLoss, PoisonedBatch
from klamm.pipeline.ranges import NO_TOPIC_ID
from klamm.pipeline.segments.directories import LogDirs
from klamm.pipeline.segments.files import OpenSegment, Vanished, covering
from klamm.pipeline.segments.pieces import Piece
from klamm.pipeline.segments.retries import ATTEMPTS, PAUSE_S, refusals_named, retried
from klamm.pipeline.segments.transactions import TransactionOutcomes
from klamm.protocol.errors import InvalidRecord
from klamm.protocol.records.batch import LOG_OVERHEAD_BYTES
from klamm.protocol.records.columnar import PADDING_BYTES, BatchHeaders, Columns, DamagedBatch, columns, padded, scan
from klamm.protocol.records.columnar.batch_headers import Bytes

READ_BYTES: Final = 16 << 20
"""The bytes read and decoded at once, unless a batch is larger."""
MIN_READ_BYTES: Final = 64 << 10


def read_piece(
    piece: Piece, *, headers: bool = False, read_committed: bool = True, fail_on_data_loss: bool = True
) -> Iterator[Any]:
    """Yield the records of a piece as Arrow record batches. Raises DataLoss, PoisonedBatch, UnknownTopic."""
    for part in read_columns(piece, read_committed=read_committed, fail_on_data_loss=fail_on_data_loss):
        try:
            yield record_batch(part, piece.topic, piece.partition, headers=headers)
        except InvalidRecord as error:
            raise PoisonedBatch(f"{piece.topic_partition}: {error.message}") from None


def read_columns(piece: Piece, *, read_committed: bool = True, fail_on_data_loss: bool = True) -> Iterator[Columns]:
    """Yield the records of a piece. Each part is valid until the next one, which is read into the same buffer.

    Records skipped because `fail_on_data_loss` is False are not reported here.
    """
    reader = _Reader(piece, read_committed, fail_on_data_loss)
    with refusals_named(str(piece.topic_partition)):
        while reader.offset < piece.end:
            with reader.opened() as segment:
                yield from reader.records(segment)


class _Reader:
    def __init__(self, piece: Piece, read_committed: bool, fail_on_data_loss: bool) -> None:
        self.offset = piece.start
        self._piece = piece
        self._logs = LogDirs(piece.directories)
        self._fail_on_data_loss = fail_on_data_loss
        self._outcomes = TransactionOutcomes(self._logs, piece.topic_partition, piece.end) if read_committed else None
        self._buffer: Bytes = padded(0)
        self._bytes_left = piece.size_bytes
        self._waited = 0

    def opened(self) -> OpenSegment:
        """Open the segment with the next offset. Raises DataLoss."""
        return retried(self._open, str(self._piece.topic_partition))

    def _open(self) -> OpenSegment:
        partition = self._piece.topic_partition
        if self._piece.topic_id not in (NO_TOPIC_ID, self._logs.topic_id(partition)):
            raise DataLoss(f"{partition}: offset {self.offset} is gone, the topic was deleted and created again")
        listed = self._logs.segments(partition)
        segment = covering(listed, self.offset)
        if segment is None:
            first = listed[0].base_offset if listed else self._piece.end
            if self._fail_on_data_loss:
                raise DataLoss(f"{partition}: offset {self.offset} is gone, the log starts at {first} now")
            self.offset = min(first, self._piece.end)
            segment = listed[0] if listed else None
            if segment is None:
                raise Vanished(f"{partition} has no segments")
        return OpenSegment(segment)

    def records(self, segment: OpenSegment) -> Iterator[Columns]:
        """Yield records up to the end of the piece, or of the segment; advance `offset`."""
        position = self._position(segment)
        after = segment.segment.next_base_offset
        while True:
            end = self._piece.end if after is None else min(self._piece.end, after)
            for at, batch_headers in self._chunks(segment, position, end):
                yield from self._decoded(segment, at, batch_headers, end)
                if batch_headers.last_offsets[-1] >= self.offset:
                    self.offset = int(batch_headers.last_offsets[-1]) + 1
                    self._waited = 0
                position = at + batch_headers.end
            if self.offset >= end:
                return
            left = segment.size() - position
            if after is not None:
                if left > 0:
                    raise self._poisoned(segment, position, self.offset, f"{left} bytes are no whole batch")
                self.offset = end
                return
            after = self._sealed(segment, position, left)
            if after is None:
                return

    def _position(self, segment: OpenSegment) -> int:
        piece, base_offset = self._piece, segment.segment.base_offset
        if self.offset == piece.start and segment.segment.path == piece.path:
            header = segment.valid_header(piece.position)
            if header is not None and base_offset <= header.base_offset <= piece.start:
                return piece.position
        return segment.position_of(self.offset) if self.offset > base_offset else 0

    def _sealed(self, segment: OpenSegment, position: int, left: int) -> int | None:
        """Look again after the last segment ended too early; if it is complete now, read it up to its end.

        Return the start of the next segment, or None when everything must be looked up again. Raises DataLoss,
        PoisonedBatch.
        """
        listed = retried(lambda: self._logs.segments(self._piece.topic_partition), str(self._piece.topic_partition))
        base_offset = segment.segment.base_offset
        now = covering(listed, base_offset)
        if now is not None and now.base_offset == base_offset and now.next_base_offset is not None:
            return now.next_base_offset if segment.is_at(now.path) else None
        self._waited += 1
        if self._waited > ATTEMPTS:
            if left > 0:
                raise self._poisoned(segment, position, self.offset, f"{left} bytes are no whole batch")
            what = f"offset {self.offset} is gone, the log ends there, before {self._piece.end}"
            raise DataLoss(f"{self._piece.topic_partition}: {what}")
        time.sleep(PAUSE_S)
        return None

    def _chunks(self, segment: OpenSegment, position: int, end: int) -> Iterator[tuple[int, BatchHeaders]]:
        """Yield (position, headers) of the whole batches read into the buffer, up to the offset `end`."""
        need, behind = 0, segment.segment.base_offset
        while True:
            wanted = max(min(READ_BYTES, self._bytes_left), MIN_READ_BYTES, need)
            if len(self._buffer) < wanted + PADDING_BYTES:
                self._buffer = padded(wanted)
            size = segment.read_into(self._buffer.data[:wanted], position)
            try:
                batch_headers = scan(self._buffer, size, end_offset=end)
            except DamagedBatch as error:
                raise self._damaged(segment, position, error) from None
            if len(batch_headers):
                self._check_order(segment, position, batch_headers, behind)
                yield position, batch_headers
                position += batch_headers.end
                behind = int(batch_headers.last_offsets[-1]) + 1
                self._bytes_left -= batch_headers.end
                need = 0
                if behind >= end:
                    self._check_end(segment, position, behind)
                    return
            elif size < wanted:
                return
            else:
                need = int.from_bytes(self._buffer.data[8:LOG_OVERHEAD_BYTES], "big") + LOG_OVERHEAD_BYTES

    def _check_order(self, segment: OpenSegment, position: int, batch_headers: BatchHeaders, behind: int) -> None:
        """Check base offsets against their neighbours: no CRC covers them, and a wrong one would skip records."""
        first, last = int(batch_headers.base_offsets[0]), int(batch_headers.last_offsets[-1])
        if first < behind:
            raise self._poisoned(segment, position, first, f"its base offset should be {behind} at least")
        after = segment.segment.next_base_offset
        if after is not None and last >= after and not segment.segment.is_swap:
            at = position + int(batch_headers.positions[-1])
            raise self._poisoned(segment, at, last, f"the next segment begins with offset {after}")

    def _check_end(self, segment: OpenSegment, position: int, behind: int) -> None:
        for at, header, _ in segment.batch_headers(position):
            if header.base_offset < behind:
                reason = f"the batch before it ends with offset {behind - 1}"
                raise self._poisoned(segment, at, header.base_offset, reason)
            return

    def _decoded(self, segment: OpenSegment, position: int, batch_headers: BatchHeaders, end: int) -> Iterator[Columns]:
        data = self._buffer
        try:
            aborted = (
                self._outcomes.aborted(data, batch_headers, self.offset, end) if self._outcomes is not None else ()
            )
            yield from columns(data, batch_headers, start_offset=self.offset, end_offset=end, aborted=aborted)
        except DamagedBatch as error:
            raise self._damaged(segment, position, error) from None

    def _damaged(self, segment: OpenSegment, position: int, error: DamagedBatch) -> PoisonedBatch:
        return self._poisoned(segment, position + error.position, error.base_offset, error.reason)

    def _poisoned(self, segment: OpenSegment, position: int, offset: int, reason: str) -> PoisonedBatch:
        where = f"position {position} of {segment.segment.path}"
        return PoisonedBatch(f"{self._piece.topic_partition} offset {offset} at {where}: {reason}")
