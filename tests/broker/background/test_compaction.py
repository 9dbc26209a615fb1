from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from klamm.broker.background.compaction import Damaged, Failed, Swap, run_worker
from klamm.broker.partitions.partition import Partition
from klamm.protocol.messages.delete_topics import DeleteTopicsRequest
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.protocol.records.batch import Record, batches, encode_batch, records
from klamm.storage.compaction.cleaner import Job, Result
from klamm.storage.log.cleaned_segment import Cleaned
from klamm.storage.paths import TopicPartition
from tests.support.embedded import NOW_MS, EmbeddedBroker

KEY = TopicPartition("t", 0)
CONFIG = {"cleanup.policy": "compact", "segment.bytes": 1 << 20, "min.cleanable.dirty.ratio": 0.1}


def partition_of(broker: EmbeddedBroker) -> Partition:
    partition = broker.broker.partitions.get_partition("t", 0)
    assert partition is not None and partition.log is not None
    return partition


def fill(broker: EmbeddedBroker, rounds: int = 3) -> None:
    """Append keys k0 to k3, 600 KB of them, in each round; the last is in the active segment."""
    for number in range(rounds):
        content = [Record(i, NOW_MS, b"k%d" % i, b"%d" % number + bytes(150_000)) for i in range(4)]
        assert broker.produce("t", bytes(encode_batch(content))).error_code == 0


def dirty(broker: EmbeddedBroker, topic: str) -> None:
    """Two segments that can be compacted."""
    for _ in range(3):
        assert broker.produce(topic, bytes(encode_batch([Record(0, NOW_MS, b"k", bytes(600_000))]))).error_code == 0


def compact(broker: EmbeddedBroker) -> None:
    broker.run(broker.broker.compaction.round())


def fetch(broker: EmbeddedBroker, offset: int) -> list[tuple[int, bytes]]:
    """(offset, first byte of the value) of what a consumer gets."""
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[FetchTopic(topic="t", partitions=[wanted])]
    )
    data = broker.call(request, 11).responses[0].partitions[0].records
    return [
        (record.offset, (record.value or b"")[:1])
        for position, head in batches(data)
        for record in records(data, head, 1 << 20, position)
    ]


def test_a_dirty_log_is_compacted_in_a_worker_process_and_served_with_gaps(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", config=CONFIG)
        fill(broker)
        compact(broker)
        partition = partition_of(broker)
        log_dir = broker.broker.partitions.logs.directory_of(partition.key)
        assert log_dir.cleaner_offset(KEY) == 8
        for offset in range(8):
            assert fetch(broker, offset)[-4:] == [(4, b"1"), (5, b"1"), (6, b"1"), (7, b"1")]
        assert fetch(broker, 8) == [(8, b"2"), (9, b"2"), (10, b"2"), (11, b"2")]
        assert broker.broker.compaction.bytes_read > 2 * 1_200_000
        assert broker.broker.compaction.uncleanable_count == 0
        names = {path.name for path in (tmp_path / "data" / "t-0").iterdir()}
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".compaction"))]
    assert (tmp_path / "data" / "cleaner-offset-checkpoint").read_text() == "0\n1\nt 0 8\n"
    with EmbeddedBroker(tmp_path) as broker:
        assert fetch(broker, 0)[-4:] == [(4, b"1"), (5, b"1"), (6, b"1"), (7, b"1")]
        fill(broker, 1)
        compact(broker)
        assert [offset for offset, _ in fetch(broker, 0)][-4:] == [8, 9, 10, 11]


def test_all_of_a_log_is_durable_before_it_is_compacted(tmp_path: Path) -> None:
    """A marker in the active segment tells which records below go: a power cut must not take it back."""
    flushed: list[tuple[int, int]] = []

    async def look(job: Job, _: Swap) -> Result:
        log = partition_of(broker).log
        assert log is not None
        flushed.append((log.local.flushed_offset, log.log_end_offset))
        return Result(job.first_uncleanable, (), 0, 0)

    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", config=CONFIG)
        fill(broker)
        broker.broker.compaction._worker = look
        compact(broker)
    assert flushed == [(12, 12)]


def test_nothing_is_compacted_while_the_cleaner_is_off_or_the_log_is_clean(tmp_path: Path) -> None:
    async def refuse(job: Job, _: Swap) -> Result:
        raise AssertionError(job)

    with EmbeddedBroker(tmp_path, {"log.cleaner.enable": "false"}) as broker:
        broker.create_topic("t", config=CONFIG)
        fill(broker)
        broker.broker.compaction._worker = refuse
        compact(broker)
    with EmbeddedBroker(tmp_path) as broker:
        compact(broker)
        broker.broker.compaction._worker = refuse
        compact(broker)


def test_a_damaged_log_is_left_alone_logged_once_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", config=CONFIG)
        fill(broker)
        with (tmp_path / "data" / "t-0" / f"{0:020d}.log").open("r+b") as file:
            file.seek(1000)
            file.write(b"\1")
        compact(broker)
        compact(broker)
        samples = {family.name: list(family.samples) for family in broker.broker.metrics.families()}
        assert samples["klamm_uncleanable_partitions"] == [("", 1)]
        assert not list((tmp_path / "data" / "t-0").glob("*.cleaned"))
        lines = [record.getMessage() for record in caplog.records if "compacted" in record.getMessage()]
        assert lines == [
            "t-0: cannot be compacted, skipped until the next start: %s.log: position 0 offset 0: wrong CRC"
            % ("0" * 20)
        ]


def test_a_worker_that_fails_is_tried_again(tmp_path: Path) -> None:
    outcomes = [Failed("no space left"), None]

    async def fail_once(job: Job, swap: Swap) -> Result:
        outcome = outcomes.pop(0)
        if outcome is not None:
            (tmp_path / "data" / "t-0" / f"{0:020d}.log.cleaned").write_bytes(b"a large part of the disk")
            raise outcome
        return await run_worker(job, swap)

    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", config=CONFIG)
        fill(broker)
        broker.broker.compaction._worker = fail_once
        compact(broker)
        assert broker.broker.compaction.uncleanable_count == 0
        assert not list((tmp_path / "data" / "t-0").glob("*.cleaned"))
        compact(broker)
        assert outcomes == []
        assert fetch(broker, 0)[0] == (4, b"1")


@pytest.mark.parametrize("threads", [0, 1, 2, 5])
def test_as_many_logs_at_once_as_there_are_threads(tmp_path: Path, threads: int) -> None:
    under_way: set[str] = set()
    counts, jobs = [], []

    async def count(job: Job, swap: Swap) -> Result:
        jobs.append(job)
        under_way.add(job.directory)
        for _ in range(100):  # let the others begin
            await asyncio.sleep(0.001)
        counts.append(len(under_way))
        under_way.remove(job.directory)
        return Result(job.first_uncleanable, (), 0, 0)

    values = {"log.cleaner.threads": threads, "log.cleaner.io.max.bytes.per.second": 1e6}
    with EmbeddedBroker(tmp_path, values) as broker:
        for name in "abc":
            broker.create_topic(name, config=CONFIG)
            dirty(broker, name)
        broker.broker.compaction._worker = count
        compact(broker)
    assert max(counts, default=0) == min(threads, 3)
    assert len({job.directory for job in jobs}) == len(jobs) == (3 if threads else 0)
    for job in jobs:
        assert job.map_bytes * threads == pytest.approx(128 << 20, abs=threads)
        assert job.bytes_per_second * threads == pytest.approx(1e6)


def test_the_end_of_a_round_ends_its_workers(tmp_path: Path) -> None:
    ended = []

    async def wait(job: Job, swap: Swap) -> Result:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(job.directory)
        raise AssertionError

    with EmbeddedBroker(tmp_path, {"log.cleaner.threads": 2}) as broker:
        for name in "ab":
            broker.create_topic(name, config=CONFIG)
            dirty(broker, name)
        broker.broker.compaction._worker = wait
        with pytest.raises(TimeoutError):
            broker.run(asyncio.wait_for(broker.broker.compaction.round(), 0.5))
        assert len(ended) == 2


def place_of(job: Job) -> tuple[str, bool]:
    """The name of its directory, and whether it is there."""
    directory = Path(job.directory)
    return directory.name, directory.exists()


class Busy:
    """Workers that wait until they are let go; notes how each ended, and whether the directory was there then."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.gate = asyncio.Event()
        self.ended: list[tuple[str, bool]] = []

    async def __call__(self, job: Job, swap: Swap) -> Result:
        self.began.set()
        try:
            await self.gate.wait()
        finally:
            await asyncio.sleep(0.01)  # as a process that is being killed
            self.ended.append(place_of(job))
        return Result(job.first_uncleanable, (), 0, 0)


@contextmanager
def under_way(broker: EmbeddedBroker, worker: Callable[[Job, Swap], Awaitable[Result]]) -> Iterator[None]:
    """A round goes on meanwhile."""
    broker.broker.compaction._worker = worker
    task = broker.loop.create_task(broker.broker.compaction.round())
    yield
    task.cancel()
    broker.run(asyncio.wait([task]))


def delete(broker: EmbeddedBroker, topic: str) -> None:
    request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000)
    assert broker.call(request, 3).responses[0].error_code == 0


def test_a_topic_is_deleted_when_its_compaction_has_ended(tmp_path: Path) -> None:
    """Else a worker that goes on finds the files of a topic of the same name."""
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", config=CONFIG)
        fill(broker)
        busy = Busy()
        with under_way(broker, busy):
            broker.run(busy.began.wait())
            delete(broker, "t")
            assert busy.ended == [("t-0", True)]
            broker.create_topic("t", config=CONFIG)
            assert not partition_of(broker).file_work


def test_a_partition_moves_when_its_compaction_has_ended(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, {"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"}) as broker:
        broker.create_topic("t", config=CONFIG)
        fill(broker)
        partition, busy = partition_of(broker), Busy()
        source = broker.broker.partitions.logs.directory_of(partition.key)
        (target,) = (each for each in broker.broker.partitions.logs.log_dirs if each is not source)
        with under_way(broker, busy):
            broker.run(busy.began.wait())
            broker.run(broker.broker.log_dir_mover.move_partition(partition, target))
            assert busy.ended == [("t-0", True)]
        while (task := broker.broker.log_dir_mover._task) is not None:
            broker.run(task)
        assert broker.broker.partitions.logs.directory_of(partition.key) is target
        broker.broker.compaction._worker = run_worker
        compact(broker)
        assert target.cleaner_offset(KEY) == 8


def test_a_swap_that_has_begun_is_finished_before_its_compaction_ends(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", config=CONFIG)
        fill(broker)
        partition = partition_of(broker)
        storage_log = partition.log
        assert storage_log is not None
        before = storage_log.local.segments.all[0]

        async def end_in_the_swap(job: Job, swap: Swap) -> Result:
            async def ending(group: Cleaned) -> None:
                (run,) = partition.file_work
                broker.loop.call_soon(lambda: broker.loop.create_task(run.end()))
                await swap(group)

            return await run_worker(job, ending)

        broker.broker.compaction._worker = end_in_the_swap
        compact(broker)
        assert not partition.file_work
        assert storage_log.local.segments.all[0] is not before and not storage_log.local.segment_swap.is_under_way
        assert fetch(broker, 8) == [(8, b"2"), (9, b"2"), (10, b"2"), (11, b"2")]


def test_a_worker_stays_in_its_directory_whatever_is_made_in_its_place(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", config=CONFIG)
        fill(broker, 4)
        compacted: list[Cleaned] = []
        directory, renamed = tmp_path / "data" / "t-0", tmp_path / "data" / "renamed"

        async def rename_at_the_first(job: Job, swap: Swap) -> Result:
            async def keep(group: Cleaned) -> None:
                if not compacted:
                    directory.rename(renamed)
                    directory.mkdir()
                compacted.append(group)

            size = sum(source.size_bytes for source in job.sources)
            result = await run_worker(replace(job, bytes_per_second=8 * size), keep)
            assert list(directory.iterdir()) == []
            directory.rmdir()
            renamed.rename(directory)
            return result

        broker.broker.compaction._worker = rename_at_the_first
        compact(broker)
        assert len(compacted) > 1
        assert len(list(directory.glob("*.log.cleaned"))) == len(compacted)
        fill(broker, 2)
        broker.broker.compaction._worker = run_worker
        compact(broker)
        assert not list(directory.glob("*.cleaned")), "a job begins without what an earlier one left"
        assert fetch(broker, 20)[-1] == (23, b"1")


def test_a_free_thread_finds_what_becomes_due_while_another_is_busy(tmp_path: Path) -> None:
    busy, done = Busy(), asyncio.Semaphore(0)

    async def work(job: Job, swap: Swap) -> Result:
        if job.directory.endswith("a-0"):
            return await busy(job, swap)
        done.release()
        return Result(job.first_uncleanable, (), 0, 0)

    with EmbeddedBroker(tmp_path, {"log.cleaner.threads": 2, "log.cleaner.backoff.ms": 0}) as broker:
        broker.create_topic("a", config=CONFIG)
        dirty(broker, "a")
        with under_way(broker, work):
            broker.run(busy.began.wait())
            broker.create_topic("b", config=CONFIG)
            for _ in range(2):  # again, too, while the other is at its first
                dirty(broker, "b")
                broker.run(done.acquire())
            assert not busy.ended


def test_what_is_ready_is_swapped_in_at_once_and_stays(tmp_path: Path) -> None:
    """No room for a second log is needed, and a later failure takes nothing back."""
    seen: list[tuple[Cleaned, int]] = []

    def sizes() -> list[int]:
        log = partition_of(broker).log
        assert log is not None
        return [segment.size_bytes for segment in log.local.segments.all]

    async def fail_in_the_third(job: Job, swap: Swap) -> Result:
        async def counting(group: Cleaned) -> None:
            if len(seen) == 2:
                raise Failed("no space left")
            await swap(group)
            seen.append((group, sizes()[len(seen)]))

        return await run_worker(job, counting)

    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", config=CONFIG)
        fill(broker, 8)
        before = sizes()
        broker.broker.compaction._worker = fail_in_the_third
        compact(broker)
        assert [group.size_bytes for group, _ in seen] == [size for _, size in seen]
        after = sizes()
        assert after[0] < before[0] and after[1] < before[1] and after[2:] == before[2:]
        assert not list((tmp_path / "data" / "t-0").glob("*.cleaned"))
        broker.broker.compaction._worker = run_worker
        compact(broker)
        assert sum(sizes()) < sum(after)
        assert {value for _, value in fetch(broker, 0)[-8:]} <= {b"6", b"7"}


def test_a_worker_that_breaks_makes_the_log_uncleanable(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker(tmp_path) as broker:

        async def never(group: Cleaned) -> None:
            raise AssertionError(group)

        job = Job(str(tmp_path), (), 0, 0, 0, 0, 0, 0, 0, "not a limit")  # type: ignore[arg-type]
        assert broker.run(run_worker(job, never)).groups == ()
        job = Job(str(tmp_path), None, 0, 0, 0, 0, 0, 0, 0, 0)  # type: ignore[arg-type]
        with pytest.raises(Damaged, match="the worker ended with code 1"):
            broker.run(run_worker(job, never))
        assert "Traceback" in capfd.readouterr().err
