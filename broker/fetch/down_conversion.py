"""Down-conversion of batches to message sets, for old clients. Large regions are converted in a thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from klamm.protocol.records.down_convert import down_convert

if TYPE_CHECKING:
    from klamm.protocol.regions import FileRegion

CONVERT_IN_THREAD_BYTES = 64 << 10


async def converted(region: FileRegion, magic: int, first_offset: int) -> bytes:
    """Return the records of the region from `first_offset` on, in the format of that magic. Raises KafkaError."""
    if region.size > CONVERT_IN_THREAD_BYTES:
        return await asyncio.to_thread(_convert, region, magic, first_offset)
    return _convert(region, magic, first_offset)


def _convert(region: FileRegion, magic: int, first_offset: int) -> bytes:
    return down_convert(region.read(), magic, first_offset=first_offset)
