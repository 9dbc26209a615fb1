"""Find the records of many batches, and their parts. Formats: `protocol/records/batch.py`.

All positions are in one buffer with readable padding (`batch_headers.PADDING_BYTES`). A position is followed only once
it is known to lie in its record, and a record only once it is known to begin in its batch. A record of a few wrong
bytes makes the decoder read too far by less than the padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from klamm.protocol.errors import InvalidRecord
from klamm.protocol.records.batch import read_varint
from klamm.protocol.records.columnar.batch_headers import Bools, Bytes, Int64s
from klamm.protocol.records.columnar.varints import Malformed, refuse, varints

FEW: Final = 12
"""Up to so many batches, or records with headers, are walked one by one: numpy's calls would cost more."""

MIN_RECORD_BYTES: Final = 7  # length, attributes, two deltas, sizes of key and value, number of headers


def _steps() -> npt.NDArray[np.int16]:
    """Return record sizes by the first two bytes (little endian) of a record; 0 for a length that needs more."""
    raw = np.arange(1 << 16, dtype=np.int64)
    first, second = raw & 0xFF, raw >> 8
    length = np.where(first < 0x80, first, (first & 0x7F) | second << 7)
    steps = (length >> 1) + 1 + (first >= 0x80)
    steps[((first >= 0x80) & (second >= 0x80)) | (length & 1 == 1)] = 0
    return steps.astype(np.int16)


STEPS: Final = _steps()


def record_starts(data: Bytes, starts: Int64s, ends: Int64s, counts: Int64s) -> Int64s:
    """Return the positions of all records of the batches that have their records at [starts, ends), in batch order.

    Raises Malformed, with the row of a batch, unless the records' lengths add up to what the batch holds.
    """
    order = np.argsort(-counts, kind="stable")
    at, sorted_ends, sorted_counts = starts[order], ends[order], counts[order]
    slots = (np.cumsum(counts) - counts)[order]
    found = np.empty(int(counts.sum()), np.int64)
    steps = int(sorted_counts[FEW - 1]) if len(order) >= FEW else 0
    try:
        _lockstep(data, at, slots, sorted_counts, steps, found)
    except IndexError:
        row = int((at > sorted_ends).argmax())
        raise Malformed(int(order[row]), "a record's length reaches beyond the batch") from None
    except Malformed as error:
        raise Malformed(int(order[error.row]), error.reason) from None
    for row in range(int(np.searchsorted(-sorted_counts, -steps))):
        rest = int(sorted_counts[row]) - steps
        try:
            walked, end = _walk(data, int(at[row]), int(sorted_ends[row]), rest)
        except (InvalidRecord, IndexError) as error:
            raise Malformed(int(order[row]), getattr(error, "message", "a record is cut short")) from None
        found[slots[row] : slots[row] + rest] = walked
        at[row] = end
    wrong = at != sorted_ends
    if wrong.any():
        row = int(order[wrong.argmax()])
        raise Malformed(row, f"its {counts[row]} records do not fill it")
    return found


def _lockstep(data: Bytes, at: Int64s, slots: Int64s, counts: Int64s, steps: int, found: Int64s) -> None:
    """Advance each batch by up to `steps` records. `counts` descend; `at` and `slots` are updated."""
    pairs = np.ndarray((len(data) - 1,), "<u2", data, 0, (1,))
    active = np.searchsorted(-counts, -np.arange(steps), side="left").tolist()
    for count in active:
        here = at[:count]
        found[slots[:count]] = here
        slots[:count] += 1
        step = STEPS.take(pairs[here])
        if np.minimum.reduce(step) == 0:
            lengths, behind = varints(data, here)
            refuse(lengths < 0, "a record has a negative length")
            np.add(behind, lengths, out=here)
        else:
            here += step


def _walk(data: Bytes, at: int, end: int, count: int) -> tuple[Int64s, int]:
    """Return the positions of `count` records from `at`, and the position after them. InvalidRecord, IndexError."""
    content = data[at:end].tobytes()
    positions: list[int] = []
    found = positions.append
    pos = 0
    for _ in range(count):
        found(pos)
        byte = content[pos]
        if byte < 0x80:
            if byte & 1:
                raise InvalidRecord("a record has a negative length")
            pos += 1 + (byte >> 1)
            continue
        second = content[pos + 1]
        if second < 0x80 and not byte & 1:
            pos += 2 + ((byte & 0x7F | second << 7) >> 1)
            continue
        size, pos = read_varint(content, pos)
        if size < 0:
            raise InvalidRecord("a record has a negative length")
        pos += size
    return np.array(positions, np.int64) + at, at + pos


@dataclass(frozen=True, slots=True)
class Spans:
    """Parts of a buffer: positions [starts, ends), and which of them are null (None: no nulls)."""

    starts: Int64s
    ends: Int64s
    nulls: Bools | None = None

    def __getitem__(self, rows: slice) -> Self:
        return type(self)(self.starts[rows], self.ends[rows], None if self.nulls is None else self.nulls[rows])


@dataclass(frozen=True, slots=True)
class Fields:
    """The parts of records, a row each; `tails` are the headers as stored, their count first."""

    timestamp_deltas: Int64s
    offset_deltas: Int64s
    keys: Spans
    values: Spans
    header_counts: Int64s
    header_positions: Int64s
    tails: Spans


def read_fields(data: Bytes, starts: Int64s, ends: Int64s) -> Fields:
    """Read the records at [starts, ends). Raises Malformed, with the row, for a record that its parts do not fill."""
    _, at = varints(data, starts)
    timestamp_deltas, at = varints(data, at + 1, bits=64)
    offset_deltas, at = varints(data, at)
    keys, at = _content(data, at, ends, "key")
    values, at = _content(data, at, ends, "value")
    counts, positions = varints(data, at)
    has_headers = counts != 0
    refuse((positions != ends) & ~has_headers, "a record's parts do not fill it")
    refuse((counts < 0) | (counts > (ends - positions) >> 1), "a record has more headers than room for them")
    return Fields(timestamp_deltas, offset_deltas, keys, values, counts, positions, Spans(at, ends))


def _content(data: Bytes, at: Int64s, ends: Int64s, what: str) -> tuple[Spans, Int64s]:
    sizes, starts = varints(data, at)
    nulls = None
    if len(sizes) and sizes.min() < 0:
        refuse(sizes < -1, f"a record has a {what} of negative size")
        nulls = sizes < 0
        sizes = np.maximum(sizes, 0)
    behind = starts + sizes
    refuse(behind > ends, f"a record's {what} does not fit into it")
    return Spans(starts, behind, nulls), behind


@dataclass(frozen=True, slots=True)
class Headers:
    """The headers of all rows, one after another; `counts` has the number of each row."""

    counts: Int64s
    names: Spans
    values: Spans


def read_headers(data: Bytes, counts: Int64s, positions: Int64s, ends: Int64s) -> Headers | None:
    """Read the headers at [positions, ends), after their count; None when there are none.

    Raises Malformed, with the row of a record, for headers that do not fill it.
    """
    total = int(counts.sum())
    if total == 0:
        return None
    headers = Headers(
        counts, *(Spans(np.empty(total, np.int64), np.empty(total, np.int64), _none(total)) for _ in "kv")
    )
    slots = np.cumsum(counts) - counts
    rows = np.flatnonzero(counts)
    at = positions[rows]
    step = 0
    while len(rows) >= FEW:
        at = _header_step(data, at, ends[rows], rows, slots[rows] + step, headers)
        step += 1
        done = counts[rows] == step
        refuse_rows(done & (at != ends[rows]), rows, "a record's headers do not fill it")
        rows, at = rows[~done], at[~done]
    for row, position in zip(rows.tolist(), at.tolist(), strict=True):
        first = int(slots[row])
        _walk_headers(data, position, int(ends[row]), row, range(first + step, first + int(counts[row])), headers)
    return headers


def _none(count: int) -> Bools:
    return np.zeros(count, np.bool_)


def refuse_rows(bad: Bools, rows: Int64s, reason: str) -> None:
    """Raise Malformed as `refuse` does, for a selection of rows."""
    if bad.any():
        raise Malformed(int(rows[bad.argmax()]), reason)


def _header_step(data: Bytes, at: Int64s, ends: Int64s, rows: Int64s, slots: Int64s, headers: Headers) -> Int64s:
    """Read the next header of each of these rows; return the positions after them."""
    try:
        names, at = _content(data, at, ends, "header key")
        refuse(names.nulls if names.nulls is not None else _none(0), "a record has a header without a key")
        values, at = _content(data, at, ends, "header value")
    except Malformed as error:
        raise Malformed(int(rows[error.row]), error.reason) from None
    for spans, part in ((headers.names, names), (headers.values, values)):
        spans.starts[slots], spans.ends[slots] = part.starts, part.ends
        if part.nulls is not None and spans.nulls is not None:
            spans.nulls[slots] = part.nulls
    return at


def _walk_headers(data: Bytes, at: int, end: int, row: int, slots: range, headers: Headers) -> None:
    content = data[at:end].tobytes()
    pos = 0
    try:
        for slot in slots:
            for spans, least in ((headers.names, 0), (headers.values, -1)):
                size, pos = read_varint(content, pos)
                if size < least:
                    raise InvalidRecord("a record has a header part of negative size")
                spans.starts[slot] = at + pos
                pos += max(size, 0)
                spans.ends[slot] = at + pos
                if size < 0 and spans.nulls is not None:
                    spans.nulls[slot] = True
    except (InvalidRecord, IndexError) as error:
        raise Malformed(row, getattr(error, "message", "a record's headers are cut short")) from None
    if pos != len(content):
        raise Malformed(row, "a record's headers do not fill it")
