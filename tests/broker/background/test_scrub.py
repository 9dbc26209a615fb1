"""Which segments the scrubber looks at and when, and its findings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from klamm.broker.background.scrub import Scrubber, WorkerProcess
from klamm.broker.partitions.partition import Partition
from klamm.protocol.errors import CorruptMessage
from klamm.protocol.records.batch import batches, stamp
from klamm.storage.filesystem import OsFilesystem
from klamm.storage.log.log import Log
from klamm.storage.log.results import DamagedRange
from klamm.storage.log_dir import LogDir
from klamm.storage.scrub import scrub_state
from klamm.storage.scrub.scrub_worker import MAX_RANGES, Job, Pace, ScrubFailed, Verified, joined, verify
from tests.storage.batches import delete_unreachable
from tests.support.embedded import EmbeddedBroker, batch

DAY_MS = 24 * 3600 * 1000
CONFIG = {"segment.bytes": 1 << 20}


class Inline:
    """Verifies in this process; tells what it was asked, and lets something happen before it answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.positions: list[int] = []
        self.closed = 0
        self.before: Callable[[Job], None] = lambda _: None

    async def verify(self, job: Job) -> Verified:
        path = Path(job.path)
        self.asked.append((path.parent.name, job.base_offset))
        self.positions.append(job.end_position)
        self.before(job)
        pace = Pace()
        try:
            return verify(job, pace)
        except OSError as error:
            raise ScrubFailed(str(error)) from error

    async def close(self) -> None:
        self.closed += 1


def scrubber(broker: EmbeddedBroker) -> tuple[Scrubber, Inline]:
    found, inline = broker.broker.scrubber, Inline()
    found._verifier = lambda: inline
    found._bytes_per_second = lambda: 1 << 40  # type: ignore[method-assign]
    return found, inline


def partition_of(broker: EmbeddedBroker, topic: str = "t") -> tuple[Partition, Log, LogDir]:
    partition = broker.broker.partitions.get_partition(topic, 0)
    assert partition is not None and partition.log is not None
    return partition, partition.log, broker.broker.partitions.logs.directory_of(partition.key)


def fill(broker: EmbeddedBroker, topic: str = "t", count: int = 12, *, flush: bool = True) -> list[int]:
    """Batches of 200 KB, five in a segment, on the disk; the base offsets of the segments."""
    for _ in range(count):
        assert broker.produce(topic, batch(bytes(200_000))).error_code == 0
    _, log, _ = partition_of(broker, topic)
    if flush:
        log.local.flush()
    return [segment.base_offset for segment in log.local.segments.all]


def damage(log: Log, segment: int, batch_number: int, at: int = 500) -> int:
    """Flip a bit of a batch; its offset."""
    found = log.local.segments.all[segment]
    offset = found.base_offset + batch_number
    position = found.find_batch(offset)
    assert position is not None
    byte = found.file.read_at(1, position[0] + at)
    found.file.write_at(bytes([byte[0] ^ 4]), position[0] + at)
    return offset


def base_offsets(log: Log) -> list[int]:
    found, offset = [], 0
    while offset < log.log_end_offset:
        try:
            read = log.read_records(offset, max_bytes=1 << 30, max_offset=log.high_watermark)
        except CorruptMessage:
            offset += 1
            continue
        assert read.region is not None
        found += [head.base_offset for _, head in batches(read.region.read())]
        offset = found[-1] + 1
    return found


def test_a_pass_goes_through_what_is_on_the_disk_in_order(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        for topic in ("b", "a"):
            broker.create_topic(topic, config=CONFIG)
            bases = fill(broker, topic)
        broker.create_topic("empty")
        _, log, log_dir = partition_of(broker, "b")
        flushed_bytes = log.local.segments.all[-1].size_bytes
        fill(broker, "b", 1, flush=False)
        found, inline = scrubber(broker)
        broker.run(found.round())
        assert inline.asked == [("a-0", base) for base in bases] + [("b-0", base) for base in bases]
        assert inline.positions[-1] == flushed_bytes
        assert inline.closed == 1
        assert found.read_bytes == sum(inline.positions)
        assert log_dir.scrub.ended_ms is not None and log_dir.scrub.cursor is None
        samples = {family.name: list(family.samples) for family in broker.broker.metrics.families()}
        assert samples["klamm_scrubbed_bytes_total"] == [("", found.read_bytes)]
        assert samples["klamm_damaged_ranges"] == [("", 0)]


def test_the_next_pass_begins_in_time_for_the_interval(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", config=CONFIG)
        fill(broker, count=1)
        found, inline = scrubber(broker)
        inline.before = lambda _: broker.clock.advance(DAY_MS)  # that is how long a pass takes
        broker.run(found.round())
        broker.run(found.round())
        broker.clock.advance(4 * DAY_MS)
        broker.run(found.round())
        assert len(inline.asked) == 1
        broker.clock.advance(DAY_MS)
        broker.run(found.round())
        assert len(inline.asked) == 2
        broker.clock.jump_wall(-100 * DAY_MS)
        broker.run(found.round())
        assert len(inline.asked) == 3, "a clock that was set back delays nothing"


def test_nothing_is_read_when_it_is_off(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, {"klamm.scrub.bytes.per.second": "0"}) as broker:
        broker.create_topic("t", config=CONFIG)
        fill(broker)
        found = broker.broker.scrubber
        inline = Inline()
        found._verifier = lambda: inline
        broker.run(found.round())
        assert not inline.asked


def test_a_restart_goes_on_where_it_was(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", config=CONFIG)
        bases = fill(broker)
        found, inline = scrubber(broker)

        def stop_in_the_second(job: Job) -> None:
            if job.base_offset == bases[1]:
                raise asyncio.CancelledError

        inline.before = stop_in_the_second
        with pytest.raises(asyncio.CancelledError):
            broker.run(found.round())
        assert inline.closed == 1
        found.save()
    with EmbeddedBroker(tmp_path) as broker:
        found, inline = scrubber(broker)
        broker.run(found.round())
        assert [base for _, base in inline.asked] == bases[1:]


@pytest.mark.parametrize("at", [8, 500], ids=["length", "records"])
def test_damage_is_reported_and_the_rest_is_served(tmp_path: Path, caplog: pytest.LogCaptureFixture, at: int) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", config=CONFIG)
        fill(broker)
        _, log, log_dir = partition_of(broker)
        bad = [damage(log, 0, 1, at), damage(log, 1, 0, at), damage(log, 2, 0, at)]
        found, inline = scrubber(broker)
        broker.run(found.round())
        assert inline.asked.count(("t-0", 0)) == 2, "it looks twice"
        good = [offset for offset in range(log.log_end_offset) if offset not in bad]
        assert base_offsets(log) == good
        for offset in bad:
            with pytest.raises(CorruptMessage):
                log.read_records(offset, max_bytes=1 << 20, max_offset=log.high_watermark)
        assert log_dir.scrub.damaged_count == 3
        lines = [record.getMessage() for record in caplog.records if "damaged: segment=" in record.getMessage()]
        assert len(lines) == 3 and "offsets=[1, 2)" in lines[0]
        broker.run(found.round())
        state = scrub_state.load(OsFilesystem(), log_dir.path)
        assert [each.first_offset for each in state.damage[0].ranges] == bad
    with EmbeddedBroker(tmp_path) as broker:
        _, log, log_dir = partition_of(broker)
        assert log_dir.scrub.damaged_count == 3
        assert base_offsets(log) == good


def test_a_worker_can_tell_of_a_segment_that_is_damaged_all_over(tmp_path: Path) -> None:
    count, path = 2001, tmp_path / "a.log"
    content = bytearray()
    for offset in range(count):
        stored = bytearray(batch(b"x"))
        stamp(stored, offset, 0)
        stored[-1] ^= offset % 2
        content += stored
    path.write_bytes(content)
    stat = path.stat()

    async def run() -> Verified:
        worker = WorkerProcess()
        try:
            return await worker.verify(Job(str(path), 0, len(content), count, stat.st_dev, stat.st_ino, 1e9))
        finally:
            await worker.close()

    found = asyncio.run(run()).damage
    assert found is not None and len(found) == MAX_RANGES
    assert (found[0].first_offset, found[-1].next_offset) == (1, count - 1)


def test_of_many_ranges_the_nearest_count_as_one() -> None:
    ranges = [DamagedRange(0, at, at + 10, at, at + 10, "wrong CRC") for at in (0, 15, 100, 115, 120, 500)]
    assert list(joined(ranges, 6)) == ranges
    assert [(each.position, each.end_position) for each in joined(ranges, 3)] == [(0, 25), (100, 130), (500, 510)]
    assert [(each.first_offset, each.next_offset) for each in joined(ranges, 1)] == [(0, 510)]
    assert not list(joined([], 3))


def test_a_log_dir_that_cannot_be_verified_does_not_leave_the_others_alone(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, {"log.dirs": f"{tmp_path}/a,{tmp_path}/b"}) as broker:
        for topic in ("t", "u"):
            broker.create_topic(topic, config=CONFIG)
            fill(broker, topic, 1)
        found, inline = scrubber(broker)

        def fail_the_first(_: Job) -> None:
            if len(inline.asked) == 1:
                raise RuntimeError("not foreseen")

        inline.before = fail_the_first
        with pytest.raises(RuntimeError):
            broker.run(found.round())
        assert len(inline.asked) == inline.closed == 2


def test_what_is_not_damaged_any_more_is_served_again(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", config=CONFIG)
        fill(broker)
        _, log, log_dir = partition_of(broker)
        damage(log, 0, 1)
        found, _ = scrubber(broker)
        broker.run(found.round())
        assert log_dir.scrub.damaged_count == 1
        log.local.segments.all[0].damage = ()
        damage(log, 0, 1)
        log.local.segments.all[0].damage = tuple(log_dir.scrub.damage[0].ranges)
        broker.clock.advance(8 * DAY_MS)
        broker.run(found.round())
        assert log_dir.scrub.damaged_count == 0
        assert base_offsets(log) == list(range(log.log_end_offset))


def test_a_segment_that_goes_while_it_is_read_is_no_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", config=CONFIG)
        bases = fill(broker)
        partition, log, log_dir = partition_of(broker)
        found, inline = scrubber(broker)

        def go(job: Job) -> None:
            if job.base_offset == bases[0]:  # retention
                log.advance_log_start(bases[1])
                delete_unreachable(log)
            elif job.base_offset == bases[1]:  # cut and written again
                log.truncate_to(bases[1] + 2)
                partition.append_coordinator_records(bytearray(batch(bytes(200_000))), now_ms=broker.clock.wall_ms())
                log.local.flush()

        inline.before = go
        broker.run(found.round())
        assert log_dir.scrub.damaged_count == 0
        assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_another_file_of_the_same_name_is_not_what_was_meant(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"garbage" * 100)
    stat = path.stat()
    job = Job(str(path), 0, 700, 10, stat.st_dev, stat.st_ino, 1e9)
    found = verify(job, Pace())
    assert found.damage is not None and len(found.damage) == 1
    for other in (
        Job(str(path), 0, 700, 10, stat.st_dev, stat.st_ino + 1, 1e9),
        Job(str(path), 0, 701, 10, stat.st_dev, stat.st_ino, 1e9),
        Job(str(path) + "x", 0, 700, 10, stat.st_dev, stat.st_ino, 1e9),
    ):
        assert verify(other, Pace()).damage is None


def test_a_worker_process_verifies_and_is_replaced_when_it_dies(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(bytes(batch(b"x")))
    stat = path.stat()
    job = Job(str(path), 0, stat.st_size, 10, stat.st_dev, stat.st_ino, 1e9)

    async def run() -> None:
        worker = WorkerProcess()
        try:
            assert await worker.verify(job) == Verified((), stat.st_size)
            assert worker._process is not None
            worker._process.kill()
            await worker._process.wait()
            with pytest.raises(ScrubFailed):
                await worker.verify(job)
            assert await worker.verify(job) == Verified((), stat.st_size)
        finally:
            await worker.close()

    asyncio.run(run())
