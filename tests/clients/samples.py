"""What the clients send in the tests: every shape of key, value and headers, in three partitions."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Container, Iterable
from typing import Final, NamedTuple

Header = tuple[str, bytes | None]

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS: Final = 3
FIRST_TIMESTAMP: Final = int(time.time()) * 1000 - 3_600_000
"""An hour ago: records older than the retention time may go at any moment."""


class Sent(NamedTuple):
    """A record as it was given to a producer; `timestamp` None leaves it to the producer."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    timestamp: int | None = None


class Received(NamedTuple):
    """A record as a consumer gave it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp: int


TIMESTAMPS: Final = "timestamps"
NULL_HEADERS: Final = "headers without value"
NAMELESS_HEADERS: Final = "headers with an empty name"
NOTHING: Final = "neither key nor value"


def sample(cannot_send: Container[str] = ()) -> list[Sent]:
    """All shapes, less what a producer `cannot_send`."""
    noise = random.Random(20).randbytes(3_000)
    text = ("Er wurde eines Morgens verhaftet. " * 40).encode()
    shapes: list[tuple[bytes | None, bytes | None, tuple[Header, ...]]] = [
        (b"key", b"value", ()),
        (None, b"no key", ()),
        (b"no value", None, ()),
        (None, None, ()),
        (b"", b"empty key", ()),
        (b"empty value", b"", ()),
        (bytes(range(256)), noise, ()),
        (b"text", text, ()),
        ("Schlüssel €".encode(), "Schloß 🏰".encode(), ()),
        (b"one header", b"1", (("name", b"value"),)),
        (b"same name", b"2", (("name", b"first"), ("name", b"second"), ("other", b"3"), ("name", b"first"))),
        (b"empty header", b"3", (("empty", b""),)),
        (b"null header", b"4", (("null", None), ("other", b"6"))),
        (b"nameless header", b"5", (("", b"no name"),)),
        (b"long headers", b"5", (("long", b"x" * 20_000), ("ümlaut", "größer".encode()))),
        (None, None, (("tombstone", b"yes"),)),
        (b"large", text * 40, ()),
    ]
    if NULL_HEADERS in cannot_send:
        shapes = [shape for shape in shapes if all(value is not None for _, value in shape[2])]
    if NAMELESS_HEADERS in cannot_send:
        shapes = [shape for shape in shapes if all(name for name, _ in shape[2])]
    if NOTHING in cannot_send:
        shapes = [shape for shape in shapes if shape[:2] != (None, None)]
    sent = []
    for index in range(2 * len(shapes)):
        key, value, headers = shapes[index % len(shapes)]
        # Not ascending, and some milliseconds apart or equal: order is by offset alone.
        timestamp = FIRST_TIMESTAMP + (index * 7 % 5) * 1000 if TIMESTAMPS not in cannot_send else None
        sent.append(Sent(index % PARTITIONS, key, value, headers, timestamp))
    return sent


def ends(sent: Iterable[Sent]) -> dict[int, int]:
    """The end offset of each partition after `sent` went into empty ones."""
    return dict(sorted(Counter(record.partition for record in sent).items()))


def difference(sent: Iterable[Sent], received: Iterable[Received], around_ms: tuple[int, int]) -> list[str]:
    """Return the differences of the received records; [] if they are the sent ones, in order, from offset 0 on.

    A timestamp that the producer chose lies within `around_ms`.
    """
    wrong = []
    for partition in range(PARTITIONS):
        ours = [record for record in sent if record.partition == partition]
        theirs = [record for record in received if record.partition == partition]
        if len(ours) != len(theirs):
            wrong.append(f"partition {partition}: {len(ours)} sent, {len(theirs)} received")
        for offset, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            where = f"partition {partition} offset {offset}"
            if other.offset != offset:
                wrong.append(f"{where}: received as offset {other.offset}")
            if one[1:4] != other[2:5]:
                wrong.append(f"{where}: {_short(one[1:4])} became {_short(other[2:5])}")
            low, high = around_ms if one.timestamp is None else (one.timestamp, one.timestamp)
            if not low <= other.timestamp <= high:
                wrong.append(f"{where}: timestamp {other.timestamp} not in [{low}, {high}]")
    return wrong


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 200 else f"{text[:150]}... ({len(text)} characters)"
