"""Decode zig-zag varints at many positions at once.

Numpy reads single bytes several times faster than words at arbitrary positions, and nearly all numbers in a record have
one or two bytes. So these come first; only longer ones take the general path, eight bytes in a word. A varint has at
most five bytes (32 bits), or ten (64 bits), as in the plain decoder; it need not have the shortest form.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from klamm.protocol.records.columnar.batch_headers import Bools, Bytes, Int64s

Uint64s = npt.NDArray[np.uint64]

_TOP_BITS: Final = np.uint64(0x8080808080808080)
_LOW_BITS: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
_PAIRS: Final = np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00)
_FOURS: Final = np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000)
_EIGHT: Final = np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000)
_1, _2, _4, _32, _56, _63 = (np.uint64(bits) for bits in (1, 2, 4, 32, 56, 63))


class Malformed(Exception):
    """The data of row `row` is invalid."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row
        self.reason = reason


def refuse(bad: Bools, reason: str) -> None:
    """Raise Malformed for the first bad row, if any."""
    if bad.any():
        raise Malformed(int(bad.argmax()), reason)


def words(data: Bytes) -> Uint64s:
    """Return the eight bytes at every position, little endian, without a copy."""
    return np.ndarray((max(len(data) - 7, 0),), "<u8", data, 0, (1,))


def varints(data: Bytes, at: Int64s, *, bits: int = 32) -> tuple[Int64s, Int64s]:
    """Return (values, positions after) of the varints at `at`. Raises Malformed, and IndexError beyond the buffer."""
    first = data.take(at)
    if not len(first) or first.max() < 0x80:
        return ((first >> 1) ^ -(first & 1)).view(np.int8).astype(np.int64), at + 1
    more = first > 0x7F
    second = data.take(at + more)  # the same byte again where there is no second one
    longer = more & (second > 0x7F)
    raw = (first & 0x7F).astype(np.uint16)
    raw |= (second.astype(np.uint16) << 7) * more
    values = ((raw >> 1) ^ -(raw & 1)).view(np.int16).astype(np.int64)
    after = at + 1
    after += more
    if longer.any():
        rows = np.flatnonzero(longer)
        values[rows], after[rows] = _long(data, at[rows], bits, rows)
    return values, after


def raw_varints(data: Bytes, at: Int64s) -> tuple[Uint64s, Int64s]:
    """Return undecoded numbers and their sizes in bytes. Size 0: longer than eight bytes, the rest is missing."""
    word = words(data)[at]
    ends = ~word & _TOP_BITS
    kept = (ends & -ends) - _1  # all bits below the top bit of the last byte
    word &= kept
    word &= _LOW_BITS
    word = (word & _PAIRS[0]) | ((word & _PAIRS[1]) >> _1)
    word = (word & _FOURS[0]) | ((word & _FOURS[1]) >> _2)
    word = (word & _EIGHT[0]) | ((word & _EIGHT[1]) >> _4)
    lengths = ((np.bitwise_count(kept) + np.uint8(1)) >> np.uint8(3)).astype(np.int64)
    lengths[ends == 0] = 0
    return word, lengths


def _long(data: Bytes, at: Int64s, bits: int, rows: Int64s) -> tuple[Int64s, Int64s]:
    word, lengths = raw_varints(data, at)
    goes_on = lengths == 0
    if bits == 32:
        bad = goes_on | (lengths > 5) | (word >> _32 != 0)
        if bad.any():
            raise Malformed(int(rows[bad.argmax()]), "a varint is too long")
    elif goes_on.any():
        _longest(data, at, word, lengths, np.flatnonzero(goes_on), rows)
    return decoded(word), at + lengths


def decoded(raw: Uint64s) -> Int64s:
    """Return the values of zig-zag numbers."""
    return (raw >> _1).view(np.int64) ^ -(raw & _1).view(np.int64)


def _longest(data: Bytes, at: Int64s, word: Uint64s, lengths: Int64s, which: Int64s, rows: Int64s) -> None:
    """Add the ninth byte, and the tenth, which has one bit."""
    ninth = data.take(at[which] + 8)
    tenth = data.take(at[which] + 9)
    ten = ninth > 0x7F
    bad = ten & (tenth > 1)
    if bad.any():
        raise Malformed(int(rows[which[bad.argmax()]]), "a varint is too long")
    top = (ninth & 0x7F).astype(np.uint64) << _56
    top |= np.where(ten, tenth, 0).astype(np.uint64) << _63
    word[which] |= top
    lengths[which] = 9 + ten
