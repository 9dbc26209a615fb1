"""Split a few large batches into many chains of records, so that lockstep is fast for them, too.

The start of a record is only known from the record before it. But a record can be recognised: its attributes are 0, and
it is followed by a record with attributes 0 and an offset delta one higher. Such places are searched at intervals in a
batch without gaps; their deltas give the number of records in between. It is a guess, which is right if every chain
ends exactly where the next begins: `fields.record_starts` verifies that.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from klamm.protocol.records.columnar.batch_headers import Bools, Bytes, Int64s
from klamm.protocol.records.columnar.fields import MIN_RECORD_BYTES, STEPS
from klamm.protocol.records.columnar.varints import decoded, raw_varints

CHAINS: Final = 256
"""The wanted number of chains of all batches together."""
MIN_CHAIN_RECORDS: Final = 64
_SEARCH_RECORDS: Final = 4
_MAX_SEARCH_BYTES: Final = 4096
_MARGIN_BYTES: Final = 32


def split(
    data: Bytes, starts: Int64s, ends: Int64s, counts: Int64s, without_gaps: Bools
) -> tuple[Int64s, Int64s, Int64s] | None:
    """Return starts, ends and counts of chains, in the order of the batches; None when none was split."""
    length = max(int(counts.sum()) // CHAINS, MIN_CHAIN_RECORDS)
    large = np.flatnonzero(without_gaps & (counts >= 2 * length))
    if not len(large):
        return None
    batches, at, deltas = _found(data, starts[large], ends[large], counts[large], length)
    if not len(at):
        return None
    # The chains that were found go between the first ones of the batches.
    batches = np.append(np.arange(len(starts)), large[batches])
    at, deltas = np.append(starts, at), np.append(np.zeros_like(starts), deltas)
    order = np.lexsort((deltas, batches))
    batches, at, deltas = batches[order], at[order], deltas[order]
    is_last = np.append(batches[1:] != batches[:-1], True)
    chain_ends = np.where(is_last, ends[batches], np.append(at[1:], 0))
    chain_counts = np.where(is_last, counts[batches], np.append(deltas[1:], 0)) - deltas
    if (chain_counts <= 0).any() and (counts > 0).all():
        return None
    return at, chain_ends, chain_counts


def _found(data: Bytes, starts: Int64s, ends: Int64s, counts: Int64s, length: int) -> tuple[Int64s, Int64s, Int64s]:
    """Return rows of batches, positions of records in them, and their offset deltas: about one for `length` records."""
    numbers = counts // length
    batches = np.repeat(np.arange(len(starts)), numbers - 1)
    steps = np.arange(len(batches)) - np.repeat(np.cumsum(numbers - 1) - (numbers - 1), numbers - 1) + 1
    sizes = ends - starts
    guesses = starts[batches] + sizes[batches] * steps // numbers[batches]
    width = min(_SEARCH_RECORDS * int((sizes // counts).max()), _MAX_SEARCH_BYTES)
    rows = np.repeat(np.arange(len(guesses)), width)
    at, behind, rows = _alike(data, (guesses[:, None] + np.arange(width)).ravel(), ends[batches[rows]], rows)
    deltas = _offset_deltas(data, at)
    right = (deltas > 0) & (deltas < counts[batches[rows]] - 1) & (_offset_deltas(data, behind) == deltas + 1)
    at, deltas, rows = at[right], deltas[right], rows[right]
    rows, firsts = np.unique(rows, return_index=True)
    return batches[rows], at[firsts], deltas[firsts]


def _alike(data: Bytes, at: Int64s, ends: Int64s, rows: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Return the positions of `at` where two consecutive records seem to begin, the second positions, and the rows."""
    limits = ends - _MARGIN_BYTES
    behind = _behind(data, np.minimum(at, limits))
    likely = np.flatnonzero((at < limits) & (behind > 0) & (behind < limits))
    at, behind, rows = at[likely], behind[likely], rows[likely]
    likely = np.flatnonzero(_behind(data, behind))
    return at[likely], behind[likely], rows[likely]


def _behind(data: Bytes, at: Int64s) -> Int64s:
    """Return the positions after records that begin at `at`; 0 for an invalid one, or one too large for `STEPS`."""
    pairs = np.ndarray((len(data) - 1,), "<u2", data, 0, (1,))
    steps = STEPS.take(pairs[at])
    attributes = data.take(at + 1 + (data.take(at) > 0x7F))
    return np.where((steps >= MIN_RECORD_BYTES) & (attributes == 0), at + steps, 0)


def _offset_deltas(data: Bytes, at: Int64s) -> Int64s:
    """Return the offset deltas of the records that seem to begin at `at`; -1 for an invalid one."""
    timestamps = at + 2 + (data.take(at) > 0x7F)
    _, lengths = raw_varints(data, timestamps)
    raw, delta_lengths = raw_varints(data, timestamps + lengths)
    return np.where((lengths > 0) & (delta_lengths > 0), decoded(raw), -1)
