"""The alarm of a coordinator: one timer of the loop, turns that end, failures that are tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from klamm.broker.coordinator.alarm import RETRY_MS, TURN_MS, Alarm
from klamm.broker.coordinator.machine import Now
from klamm.broker.coordinator.timers import Timers

Key = tuple[str, ...]


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> Now:
        return Now(self.ms, self.ms)


async def turn() -> None:
    """Let the loop do what is ready."""
    await asyncio.sleep(0)


def run(test: Callable[[], object]) -> None:
    async def body() -> None:
        await test()  # type: ignore[misc]

    asyncio.run(body())


def test_a_key_that_is_set_to_now_by_its_own_tick_lets_the_loop_turn() -> None:
    async def body() -> None:
        clock, timers, count = Clock(), Timers[Key](), 0

        def due(key: Key, now: Now) -> None:
            nonlocal count
            count += 1
            assert count < 10, "the tick does not end"
            timers.set(key, now.ms - 1)

        alarm = Alarm(timers, clock, due)
        timers.set(("a",), 0)
        alarm.tick()
        assert count == 1 and ("a",) in timers
        clock.ms += 1
        alarm.tick()
        assert count == 2
        alarm.close()

    run(body)


def test_many_keys_are_due_in_turns() -> None:
    async def body() -> None:
        clock, timers, seen = Clock(), Timers[Key](), list[Key]()

        def due(key: Key, now: Now) -> None:
            seen.append(key)
            clock.ms += TURN_MS // 2  # each of them takes that long

        alarm = Alarm(timers, clock, due)
        for number in range(7):
            timers.set((str(number),), 0)
        turns = set[int]()
        alarm.tick()
        while len(seen) < 7:
            turns.add(len(seen))
            await turn()
        assert turns == {2, 4, 6}
        assert seen == [(str(number),) for number in range(7)]
        alarm.close()

    run(body)


def test_what_fails_is_tried_again() -> None:
    async def body() -> None:
        clock, timers, seen = Clock(), Timers[Key](), list[int]()

        def due(key: Key, now: Now) -> None:
            seen.append(now.ms)
            raise ValueError(key)

        alarm = Alarm(timers, clock, due)
        timers.set(("a",), 0)
        alarm.tick()
        clock.ms = RETRY_MS
        alarm.tick()
        assert seen == [0, RETRY_MS]
        alarm.close()

    run(body)
