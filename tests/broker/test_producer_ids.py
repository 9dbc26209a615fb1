"""Producer ids come from blocks that were made durable first."""

from __future__ import annotations

import asyncio

from klamm.broker.producer_ids import ProducerIds


def test_ids_are_distinct_and_blocks_are_taken_only_when_needed() -> None:
    blocks: list[int] = []

    async def allocate() -> tuple[int, int]:
        await asyncio.sleep(0)
        blocks.append(len(blocks) * 3)
        return blocks[-1], 3

    async def scenario() -> list[int]:
        ids = ProducerIds(allocate)
        first = await asyncio.gather(*(ids.next() for _ in range(3)))
        assert blocks == [0]
        return [*first, *await asyncio.gather(*(ids.next() for _ in range(4)))]

    assert sorted(asyncio.run(scenario())) == list(range(7))
    assert blocks == [0, 3, 6]
