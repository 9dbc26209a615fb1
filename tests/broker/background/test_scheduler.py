"""Every job of the scheduler runs, and none ends because it failed once."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from klamm.broker import turns
from klamm.broker.background import scheduler as scheduler_module
from klamm.broker.background.scheduler import Job, Scheduler, repeat
from klamm.broker.partitions.partition import Partition
from klamm.broker.partitions.partition_manager import PartitionManager
from tests.support.embedded import EmbeddedBroker, batch


def test_every_job_runs_in_a_broker_and_tells_its_period(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker, ThreadPoolExecutor(1) as disk:
        broker.create_topic("t")
        assert broker.produce("t", batch(b"x")).error_code == 0
        jobs = Scheduler(broker.broker, disk).jobs()
        assert len({job.name for job in jobs}) == len(jobs)
        for job in jobs:
            assert job.period_ms() > 0
            broker.run(job.run())


def test_nothing_stays_in_memory_for_longer_than_flush_ms(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker, ThreadPoolExecutor(1) as disk:
        broker.create_topic("t", config={"flush.ms": 100})
        partition = broker.broker.partitions.get_partition("t", 0)
        assert partition is not None and partition.log is not None
        (job,) = (job for job in Scheduler(broker.broker, disk).jobs() if job.name == "flushes")
        assert job.period_ms() == 25
        written: list[int] = []
        for _ in range(40):
            assert broker.produce("t", batch(b"x")).error_code == 0
            written.append(broker.clock.wall_ms())
            broker.clock.advance(25)
            broker.run(job.run())
            unflushed = written[partition.log.local.flushed_offset :]
            assert all(broker.clock.wall_ms() - at_ms + 25 < 100 for at_ms in unflushed)


def test_a_look_is_at_what_has_changed_and_not_at_all_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedBroker(tmp_path) as broker, ThreadPoolExecutor(1) as disk:
        broker.create_topic("many", partitions=20)
        broker.create_topic("timed", partitions=2, config={"flush.ms": 1000})
        broker.create_topic("compacted", config={"cleanup.policy": "compact"})
        broker.create_topic("t", partitions=2, config={"segment.bytes": 1 << 20})
        partitions = broker.broker.partitions
        assert {partition.topic for partition in partitions.with_flush_rule()} == {"timed"}
        assert {partition.topic for partition, _ in partitions.compacted()} == {"compacted"}
        assert partitions.rolled() == []
        for _ in range(2):
            assert broker.produce("t", batch(bytes(700_000))).error_code == 0
        (partition,) = partitions.rolled()
        assert (partition.name, partition.log and partition.log.local.flushed_offset) == ("t-0", 0)
        (job,) = (job for job in Scheduler(broker.broker, disk).jobs() if job.name == "flushes of rolled segments")

        def all_of_them(self: PartitionManager) -> None:
            raise AssertionError("a walk over all partitions, each second")

        monkeypatch.setattr(PartitionManager, "__iter__", all_of_them)
        broker.run(job.run())
        assert partition.log is not None and partition.log.local.flushed_offset == 1
        assert partitions.rolled() == []
        monkeypatch.undo()


def test_without_flush_ms_there_is_a_look_each_second(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker, ThreadPoolExecutor(1) as disk:
        broker.create_topic("t")
        (job,) = (job for job in Scheduler(broker.broker, disk).jobs() if job.name == "flushes")
        assert job.period_ms() == scheduler_module.LONGEST_FLUSH_TICK_MS


def test_what_was_rolled_before_the_start_is_flushed_after_it(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path).__enter__()
    broker.create_topic("t", config={"segment.bytes": 1 << 20})
    for _ in range(2):
        assert broker.produce("t", batch(bytes(700_000))).error_code == 0
    broker.crash()
    with EmbeddedBroker(tmp_path) as broker, ThreadPoolExecutor(1) as disk:
        (partition,) = broker.broker.partitions.rolled()
        (job,) = (job for job in Scheduler(broker.broker, disk).jobs() if job.name == "flushes of rolled segments")
        broker.run(job.run())
        assert partition.log is not None and partition.log.local.recovery_point == 1


def test_the_first_pause_may_be_shorter_than_the_period(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise asyncio.CancelledError

    async def run() -> None:
        pass

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(repeat(Job("it", lambda: 300_000, run, first_ms=30_000)))
    assert pauses == [30.0, 300.0, 300.0]


def test_a_job_goes_on_after_it_failed_or_had_no_period(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scheduler_module, "MIN_PAUSE_MS", 0)
    monkeypatch.setattr(scheduler_module, "FAILURE_PAUSE_MS", 0)
    calls: list[str] = []
    done = asyncio.Event()

    def period_ms() -> int:
        calls.append("period")
        if len(calls) == 1:
            raise KeyError("no.such.key")
        return 0

    async def run() -> None:
        calls.append("run")
        if calls.count("run") == 1:
            raise OSError("disk")
        done.set()
        await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(repeat(Job("it", period_ms, run)))
        await asyncio.wait_for(done.wait(), 10)
        task.cancel()

    asyncio.run(main())
    assert calls == ["period", "run", "period", "run"]
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "scheduler: it: the period cannot be computed",
        "scheduler: it failed",
    ]


def test_flushes_of_many_partitions_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", float("inf"))
    count = 2 * turns.MOST + 1
    with EmbeddedBroker(tmp_path) as broker, ThreadPoolExecutor(1) as disk:
        broker.create_topic("t", partitions=count, config={"flush.ms": 1000})
        for index in range(count):
            assert broker.produce("t", batch(b"x"), partition=index).error_code == 0
        broker.clock.advance(1000)
        flushed = [0]
        real = Partition.flushed

        def counted(partition: Partition, up_to: int) -> None:
            flushed[-1] += 1
            real(partition, up_to)

        monkeypatch.setattr(Partition, "flushed", counted)
        (job,) = (job for job in Scheduler(broker.broker, disk).jobs() if job.name == "flushes")

        async def main() -> None:
            task = asyncio.ensure_future(job.run())
            while not task.done():
                flushed.append(0)
                await asyncio.sleep(0)
            await task

        broker.run(main())
        assert sum(flushed) == count
        assert max(flushed) <= turns.MOST
