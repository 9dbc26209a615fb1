"""CRC-32C (Castagnoli), the checksum of record batches.

The package `crc32c` uses the processor's instruction; where it cannot be imported, `crcmod` takes over at about
a fiftieth of its speed. A test holds both to the same values. Message sets of magic 0 and 1 use zlib's CRC-32.
"""

from __future__ import annotations

from collections.abc import Callable

BytesLike = bytes | bytearray | memoryview


def portable_crc32c() -> Callable[..., int]:
    """Return crcmod's implementation, built on demand: `(data, value=0) -> int`."""
    from crcmod.predefined import mkCrcFun

    compute = mkCrcFun("crc-32c")

    def crc32c(data: BytesLike, value: int = 0) -> int:
        return int(compute(bytes(data), value))

    return crc32c


crc32c: Callable[..., int]
"""`crc32c(data, value=0)`: the checksum of `data`, continuing from `value`."""

try:
    from crc32c import crc32c as _hardware
except ImportError:  # pragma: no cover - only where no wheel of crc32c exists
    crc32c = portable_crc32c()
else:
    crc32c = _hardware
