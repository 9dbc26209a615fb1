"""Reading DER (X.690): values of tag, length and content, one after the other.

    tag:1 | length:1 below 128, else 1 byte 0x80 + count and `count` bytes, big endian | content

Only what certificates and keystores need: tags of one byte, definite lengths.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

SEQUENCE, SET, OBJECT_IDENTIFIER, OCTET_STRING, INTEGER, BIT_STRING = 0x30, 0x31, 0x06, 0x04, 0x02, 0x03
MAX_LENGTH_BYTES = 4


class BadDer(ValueError):
    """The bytes are no DER, or not of the expected shape."""


class DerValue(NamedTuple):
    """`whole` is the value with its tag and length, `content` without."""

    tag: int
    content: bytes
    whole: bytes

    def values(self) -> Iterator[DerValue]:
        """The values that the content consists of. Raises BadDer."""
        yield from read_all(self.content)


def read(data: bytes, position: int = 0) -> DerValue:
    """Read the value at `position`; more may follow. Raises BadDer."""
    if position + 2 > len(data):
        raise BadDer("the data ends inside a value")
    tag, length, start = data[position], data[position + 1], position + 2
    if tag & 0x1F == 0x1F:
        raise BadDer("a tag of several bytes")
    if length & 0x80:
        count = length & 0x7F
        if not 1 <= count <= MAX_LENGTH_BYTES or start + count > len(data):
            raise BadDer("an impossible length")
        length = int.from_bytes(data[start : start + count], "big")
        start += count
    end = start + length
    if end > len(data):
        raise BadDer("the data ends inside a value")
    return DerValue(tag, data[start:end], data[position:end])


def read_all(data: bytes) -> Iterator[DerValue]:
    """Read one value after the other, up to the end. Raises BadDer."""
    position = 0
    while position < len(data):
        value = read(data, position)
        yield value
        position += len(value.whole)


def expect(tag: int, value: DerValue) -> DerValue:
    """Return the value if it has this tag. Raises BadDer."""
    if value.tag != tag:
        raise BadDer(f"tag {value.tag:#x} where {tag:#x} should be")
    return value


def object_identifier(content: bytes) -> str:
    """Return the dotted text of an object identifier. Raises BadDer."""
    if not content or content[-1] & 0x80:
        raise BadDer("an object identifier without an end")
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))
