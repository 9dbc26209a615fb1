"""Long work leaves the loop to others between its turns."""

from __future__ import annotations

import asyncio
import logging

import pytest

from klamm.broker import turns
from klamm.broker.turns import Tasks, in_turns


async def run_beside(work: asyncio.Future[None] | asyncio.Task[None]) -> int:
    """How often somebody else had a turn until the work was done."""
    count = 0
    while not work.done():
        await asyncio.sleep(0)
        count += 1
    await work
    return count


def test_others_have_a_turn_after_so_many_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", float("inf"))
    seen: list[int] = []

    async def work() -> None:
        async for item in in_turns(range(10), 3):
            seen.extend([item])

    async def main() -> None:
        task = asyncio.ensure_future(work())
        sizes = []
        while not task.done():
            before = len(seen)
            await asyncio.sleep(0)
            sizes.append(len(seen) - before)
        assert [size for size in sizes if size] == [3, 3, 3, 1]

    asyncio.run(main())
    assert seen == list(range(10))


def test_others_have_a_turn_when_an_item_took_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", 0.0)

    async def work() -> None:
        async for _ in in_turns(range(10)):
            pass

    async def main() -> int:
        return await run_beside(asyncio.ensure_future(work()))

    assert asyncio.run(main()) >= 10


def test_what_is_iterated_over_may_change_meanwhile() -> None:
    known = dict.fromkeys(range(5))

    async def main() -> list[int]:
        found = []
        async for item in in_turns(known, 1):
            known[item + 100] = None
            found.append(item)
        return found

    assert asyncio.run(main()) == [0, 1, 2, 3, 4]


def test_a_failure_in_the_background_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("on purpose")

    async def main() -> None:
        tasks = Tasks()
        tasks.start(fail())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        tasks.cancel()

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert "on purpose" in caplog.text
