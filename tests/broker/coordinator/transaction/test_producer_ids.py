"""Producer ids come from blocks that were made durable first."""

from __future__ import annotations

import asyncio

import pytest

from klamm.broker.coordinator.transaction.producer_ids import NO_PRODUCER_ID, ProducerIds


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


def test_an_id_is_taken_at_once_from_a_block_that_is_begun() -> None:
    async def allocate() -> tuple[int, int]:
        return 7, 2

    async def scenario() -> list[int]:
        ids = ProducerIds(allocate)
        taken = [ids.take(), ids.take()]
        await asyncio.sleep(0)
        return [*taken, ids.take(), ids.take(), ids.take()]

    assert asyncio.run(scenario()) == [NO_PRODUCER_ID, NO_PRODUCER_ID, 7, 8, NO_PRODUCER_ID]


def test_a_block_that_cannot_be_had_is_asked_for_again() -> None:
    failures = [OSError("no metadata store"), OSError("no metadata store")]

    async def allocate() -> tuple[int, int]:
        if failures:
            raise failures.pop()
        return 7, 2

    async def scenario() -> int:
        ids = ProducerIds(allocate)
        assert ids.take() == NO_PRODUCER_ID
        with pytest.raises(OSError, match="no metadata store"):
            await ids.next()
        with pytest.raises(OSError, match="no metadata store"):
            await ids.next()
        return await ids.next()

    assert asyncio.run(scenario()) == 7
