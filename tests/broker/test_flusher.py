"""Group commit: who shares a flush, and who is told of a failure."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from klamm.broker.flusher import Flusher
from klamm.protocol.errors import KafkaStorageError


class FakeLog:
    def __init__(self) -> None:
        self.log_end_offset = 1
        self.flushed: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.missing = 0

    def flush(self, up_to: int) -> int:
        assert self.gate.wait(10)
        if self.error is not None:
            raise self.error
        self.flushed.append(up_to)
        return up_to - self.missing


class FakePartition:
    def __init__(self) -> None:
        self.name = "t-0"
        self.log: FakeLog | None = FakeLog()
        self.offline_reason = ""
        self.visible: list[int] = []

    def flushed(self, up_to: int) -> None:
        self.visible.append(up_to)

    def go_offline(self, reason: str) -> None:
        self.log, self.offline_reason = None, reason


def run(scenario: Any) -> None:
    async def go() -> None:
        with ThreadPoolExecutor(1) as executor:
            await scenario(Flusher(executor), FakePartition())

    asyncio.run(go())


def test_callers_of_the_same_moment_share_one_flush() -> None:
    async def scenario(flusher: Flusher, partition: Any) -> None:
        log = partition.log
        await asyncio.gather(*(flusher.flush(partition) for _ in range(5)))
        assert log.flushed == [1] and partition.visible == [1]

    run(scenario)


def test_an_append_during_a_flush_gets_the_next_one() -> None:
    async def scenario(flusher: Flusher, partition: Any) -> None:
        log = partition.log
        log.gate.clear()
        first = flusher.flush(partition)
        await asyncio.sleep(0)
        log.log_end_offset = 2
        second = flusher.flush(partition)
        assert second is not first
        log.gate.set()
        await asyncio.gather(first, second)
        assert log.flushed == [1, 2]
        await flusher.drain()

    run(scenario)


def test_a_failure_is_told_and_takes_the_partition_offline() -> None:
    async def scenario(flusher: Flusher, partition: Any) -> None:
        partition.log.error = OSError(5, "Input/output error")
        with pytest.raises(KafkaStorageError):
            await flusher.flush(partition)
        assert partition.log is None and partition.visible == []
        with pytest.raises(KafkaStorageError):
            await flusher.flush(partition)

    run(scenario)


def test_a_flush_that_did_not_get_there_is_a_failure() -> None:
    async def scenario(flusher: Flusher, partition: Any) -> None:
        partition.log.missing = 1
        with pytest.raises(KafkaStorageError, match="flushed up to 0 of 1"):
            await flusher.flush(partition)
        assert partition.log is None and partition.visible == []

    run(scenario)


def test_a_caller_that_goes_away_takes_nobody_with_it() -> None:
    async def scenario(flusher: Flusher, partition: Any) -> None:
        log = partition.log
        log.gate.clear()

        async def wait() -> None:
            await asyncio.shield(flusher.flush(partition))

        gone, stays = asyncio.create_task(wait()), asyncio.create_task(wait())
        await asyncio.sleep(0)
        gone.cancel()
        log.gate.set()
        await stays
        assert partition.visible == [1]

    run(scenario)
