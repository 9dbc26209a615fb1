"""Group commit: which requests share a flush, and which fail with it."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.background.flusher import Flusher
from klamm.protocol.errors import KafkaStorageError
from klamm.storage.log.durability import FlushNotTried
from klamm.storage.log.local_log import LocalLog
from tests.support.embedded import EmbeddedBroker, batch


class FakeLog:
    def __init__(self) -> None:
        self.log_end_offset = 1
        self.flushed: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.local = self
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


def test_a_failure_is_reported_and_takes_the_partition_offline() -> None:
    async def scenario(flusher: Flusher, partition: Any) -> None:
        partition.log.error = OSError(5, "Input/output error")
        with pytest.raises(KafkaStorageError):
            await flusher.flush(partition)
        assert partition.log is None and partition.visible == []
        with pytest.raises(KafkaStorageError):
            await flusher.flush(partition)

    run(scenario)


def test_a_flush_that_was_not_tried_takes_nothing_offline() -> None:
    async def scenario(flusher: Flusher, partition: Any) -> None:
        log = partition.log
        log.error = FlushNotTried("t-0: not flushed now: Too many open files (EMFILE)")
        with pytest.raises(FlushNotTried):
            await flusher.flush(partition)
        assert partition.log is log and partition.visible == []
        log.error = None
        await flusher.flush(partition)
        assert partition.visible == [1]

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


def rolled(broker: EmbeddedBroker, **config: object) -> Any:
    """A partition with a complete segment of one batch, and a second batch in the active one."""
    broker.create_topic("t", config={"segment.bytes": 1 << 20, **config})
    for _ in range(2):
        assert broker.produce("t", batch(bytes(600_000))).error_code == 0
    partition: Any = broker.broker.partitions.get_partition("t", 0)
    assert len(partition.log.local.segments.all) == 2
    return partition


def test_complete_segments_get_durable_and_their_recovery_point_moves(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        partition = rolled(broker)
        assert partition.log.local.recovery_point == 0
        broker.run(broker.broker.flusher.flush_rolled(broker.broker.partitions))
        assert (partition.log.local.recovery_point, partition.log.log_end_offset) == (1, 2)
        assert partition.log.local.unflushed_segments_end is None
        broker.broker.partitions.logs.checkpoint()
        assert "\nt 0 1\n" in (tmp_path / "data" / "recovery-point-offset-checkpoint").read_text()


def test_acks_and_the_loop_do_not_wait_for_complete_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, gate = threading.Event(), threading.Event()
    flush = LocalLog.flush

    def slow(log: LocalLog, up_to: int | None = None) -> int:
        started.set()
        assert gate.wait(10)
        return flush(log, up_to)

    with EmbeddedBroker(tmp_path) as broker:
        partition = rolled(broker)
        with monkeypatch.context() as patch:
            patch.setattr(LocalLog, "flush", slow)
            flushed = broker.loop.create_task(broker.broker.flusher.flush_rolled([partition]))
            while not started.is_set():
                broker.run(asyncio.sleep(0))
            assert broker.produce("t", batch(b"x")).error_code == 0
            assert partition.high_watermark == 3 and not partition.flush_pending
            patch.setattr(LocalLog, "flush", flush)
            broker.create_topic("strict", config={"flush.messages": 1})
            assert broker.produce("strict", batch(b"x")).error_code == 0
            assert not flushed.done()
            gate.set()
            broker.run(flushed)
        assert partition.log.local.recovery_point == 1


def test_a_complete_segment_that_cannot_be_synced_takes_the_partition_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(log: LocalLog, up_to: int | None = None) -> int:
        raise KafkaStorageError("fsync failed")

    with EmbeddedBroker(tmp_path) as broker:
        partition = rolled(broker)
        with monkeypatch.context() as patch:
            patch.setattr(LocalLog, "flush", fail)
            broker.run(broker.broker.flusher.flush_rolled([partition]))
        assert partition.log is None and "fsync failed" in partition.offline_reason


def test_logs_are_synced_at_once_in_as_many_threads_as_there_are() -> None:
    async def scenario(flusher: Flusher, partition: Any) -> None:
        with ThreadPoolExecutor(3) as executor:
            flusher = Flusher(executor, threads=3)
            partitions: list[Any] = [FakePartition() for _ in range(7)]
            meet = threading.Barrier(3)
            for each in partitions[:3]:
                each.log.gate.wait = lambda timeout: meet.wait(timeout) >= 0
            await asyncio.gather(*(flusher.flush(each) for each in partitions))
            assert [each.visible for each in partitions] == [[1]] * 7

    run(scenario)
