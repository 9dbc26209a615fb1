"""The timer of a coordinator: one timer of the loop, turns that end, failures that are tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from klamm.broker.coordinator.runtime.timer import RETRY_MS, TURN_MS, CoordinatorTimer
from klamm.broker.coordinator.runtime.timer_queue import TimerQueue
from klamm.broker.coordinator.runtime.types import Now
from klamm.broker.coordinator.transaction import coordinator
from klamm.protocol.messages.find_coordinator import FindCoordinatorRequest
from klamm.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.support.embedded import EmbeddedBroker

Key = tuple[str, ...]


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> Now:
        return Now(self.ms, self.ms)


async def turn() -> None:
    """Let the loop run its ready callbacks."""
    await asyncio.sleep(0)


def run(test: Callable[[], object]) -> None:
    async def body() -> None:
        await test()  # type: ignore[misc]

    asyncio.run(body())


def test_a_key_that_is_set_to_now_by_its_own_tick_lets_the_loop_turn() -> None:
    async def body() -> None:
        clock, timers, count = Clock(), TimerQueue[Key](), 0

        def due(key: Key, now: Now) -> None:
            nonlocal count
            count += 1
            assert count < 10, "the tick does not end"
            timers.set(key, now.ms - 1)

        timer = CoordinatorTimer(timers, clock, due)
        timers.set(("a",), 0)
        timer.tick()
        assert count == 1 and ("a",) in timers
        clock.ms += 1
        timer.tick()
        assert count == 2
        timer.close()

    run(body)


def test_many_keys_are_due_in_turns() -> None:
    async def body() -> None:
        clock, timers, seen = Clock(), TimerQueue[Key](), list[Key]()

        def due(key: Key, now: Now) -> None:
            seen.append(key)
            clock.ms += TURN_MS // 2  # each of them takes that long

        timer = CoordinatorTimer(timers, clock, due)
        for number in range(7):
            timers.set((str(number),), 0)
        turns = set[int]()
        timer.tick()
        while len(seen) < 7:
            turns.add(len(seen))
            await turn()
        assert turns == {2, 4, 6}
        assert seen == [(str(number),) for number in range(7)]
        timer.close()

    run(body)


def test_what_fails_is_tried_again() -> None:
    async def body() -> None:
        clock, timers, seen = Clock(), TimerQueue[Key](), list[int]()

        def due(key: Key, now: Now) -> None:
            seen.append(now.ms)
            raise ValueError(key)

        timer = CoordinatorTimer(timers, clock, due)
        timers.set(("a",), 0)
        timer.tick()
        clock.ms = RETRY_MS
        timer.tick()
        assert seen == [0, RETRY_MS]
        timer.close()

    run(body)


def test_transactional_ids_expire_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "EXPIRED_TOGETHER", 2)
    with EmbeddedBroker(tmp_path, {"transaction.state.log.num.partitions": 1}) as broker:
        broker.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4)
        for number in range(5):
            request = InitProducerIdRequest(transactional_id=f"x{number}", transaction_timeout_ms=1000)
            assert broker.call(request, 4).error_code == 0
        transactions = broker.broker.transactions

        async def tick() -> int:
            transactions.runtime.timer.tick()
            return len(transactions.state_machine)

        broker.run(start(transactions))
        broker.clock.advance(8 * 24 * 3_600_000)
        left = []
        for _ in range(4):
            left.append(broker.run(tick()))
            broker.clock.advance(coordinator.EXPIRY_PAUSE_MS)
        assert left == [3, 1, 0, 0]


async def start(transactions: coordinator.TransactionCoordinator) -> None:
    transactions.start()
