"""Every job of the upkeep runs, and none ends because it failed once."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from klamm.broker import upkeep as upkeep_module
from klamm.broker.upkeep import Job, Upkeep, _repeat
from tests.support.embedded import EmbeddedBroker, batch


def test_every_job_runs_in_a_broker_and_tells_its_period(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker, ThreadPoolExecutor(1) as disk:
        broker.create_topic("t")
        assert broker.produce("t", batch(b"x")).error_code == 0
        jobs = Upkeep(broker.broker, disk).jobs()
        assert len({job.name for job in jobs}) == len(jobs)
        for job in jobs:
            assert job.period_ms() > 0
            broker.run(job.run())


def test_nothing_stays_in_memory_for_longer_than_flush_ms(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker, ThreadPoolExecutor(1) as disk:
        broker.create_topic("t", config={"flush.ms": 100})
        partition = broker.broker.partitions.get("t", 0)
        assert partition is not None and partition.log is not None
        (job,) = (job for job in Upkeep(broker.broker, disk).jobs() if job.name == "flushes")
        assert job.period_ms() == 25
        written: list[int] = []
        for _ in range(40):
            assert broker.produce("t", batch(b"x")).error_code == 0
            written.append(broker.clock.wall_ms())
            broker.clock.advance(25)
            broker.run(job.run())
            unflushed = written[partition.log.flushed_offset :]
            assert all(broker.clock.wall_ms() - at_ms + 25 < 100 for at_ms in unflushed)


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
        asyncio.run(_repeat(Job("it", lambda: 300_000, run, first_ms=30_000)))
    assert pauses == [30.0, 300.0, 300.0]


def test_a_job_goes_on_after_it_failed_or_had_no_period(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(upkeep_module, "MIN_PAUSE_MS", 0)
    monkeypatch.setattr(upkeep_module, "FAILURE_PAUSE_MS", 0)
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
        task = asyncio.create_task(_repeat(Job("it", period_ms, run)))
        await asyncio.wait_for(done.wait(), 10)
        task.cancel()

    asyncio.run(main())
    assert calls == ["period", "run", "period", "run"]
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "upkeep: it: no period",
        "upkeep: it failed",
    ]
