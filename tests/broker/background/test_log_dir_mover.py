"""Partitions that move from one log directory to another while they are written to, read, rolled, deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.background import log_dir_mover as log_dir_mover_module
from klamm.broker.partitions.partition import Partition
from klamm.protocol.errors import CorruptMessage, ErrorCode, KafkaStorageError
from klamm.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from klamm.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from klamm.protocol.messages.delete_topics import DeleteTopicsRequest
from klamm.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from klamm.protocol.records.batch import batches, records
from klamm.storage.copies import future_log as future_log_module
from klamm.storage.copies.future_log import FutureLog
from klamm.storage.log.results import DamagedRange
from klamm.storage.scrub import scrub_state
from tests.storage.batches import read_bytes
from tests.support.embedded import EmbeddedBroker, batch

VALUE = bytes(100_000)


class Dirs:
    """Two log directories, and the broker over them."""

    def __init__(self, path: Path, **config: object) -> None:
        self.path = path
        self.config = {"log.dirs": f"{path / 'a'},{path / 'b'}", "log.segment.bytes": 1 << 20, **config}
        self.written = 0

    @contextmanager
    def broker(self) -> Iterator[EmbeddedBroker]:
        with EmbeddedBroker(self.path, self.config) as broker:
            yield broker

    def names(self) -> dict[str, set[str]]:
        """The directories in each."""
        return {name: {each.name for each in (self.path / name).iterdir() if each.is_dir()} for name in ("a", "b")}

    def fill(self, broker: EmbeddedBroker, count: int, value: bytes = VALUE) -> None:
        for _ in range(count):
            sequence: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": self.written}
            assert broker.produce("t", batch(b"%d " % self.written + value, **sequence)).error_code == 0
            self.written += 1


def alter(broker: EmbeddedBroker, path: object, topic: str = "t", index: int = 0, version: int = 2) -> int:
    topics = [AlterReplicaLogDirTopic(name=topic, partitions=[index])]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(path), topics=topics)])
    code: int = broker.call(request, version).results[0].partitions[0].error_code
    return code


def described(broker: EmbeddedBroker) -> dict[str, list[tuple[int, int, bool]]]:
    """Return (size, lag, whether it is a future one) of the partitions of t, by log dir."""
    response = broker.call(DescribeLogDirsRequest(topics=None), 4)
    return {
        Path(result.log_dir).name: [
            (each.partition_size, each.offset_lag, each.is_future_key)
            for topic in result.topics
            if topic.name == "t"
            for each in topic.partitions
        ]
        for result in response.results
    }


def the(broker: EmbeddedBroker) -> Partition:
    partition = broker.broker.partitions.get_partition("t", 0)
    assert partition is not None
    return partition


def place(broker: EmbeddedBroker) -> str:
    return broker.broker.partitions.logs.directory_of(the(broker).key).path.name


def other(broker: EmbeddedBroker) -> Path:
    (target,) = (each.path for each in broker.broker.partitions.logs.log_dirs if each.path.name != place(broker))
    return target


def finish(broker: EmbeddedBroker) -> None:
    """Wait for the moves that were asked for."""
    while (task := broker.broker.log_dir_mover._task) is not None:
        broker.run(task)


def values(broker: EmbeddedBroker) -> list[int]:
    log = the(broker).log
    assert log is not None
    found, offset = [], log.log_start_offset
    while data := read_bytes(log, offset):
        for position, head in batches(data):
            assert head.base_offset == offset
            (record,) = records(data, head, 1 << 20, position)
            found.append(int((record.value or b"").split(b" ")[0]))
            offset = head.last_offset + 1
    assert offset == log.log_end_offset
    return found


@pytest.fixture
def dirs(tmp_path: Path) -> Dirs:
    return Dirs(tmp_path)


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("count", [0, 1, 35])
def test_a_partition_moves_and_goes_on(dirs: Dirs, count: int, version: int) -> None:
    with dirs.broker() as broker:
        broker.create_topic("t")
        dirs.fill(broker, count)
        before, target = place(broker), other(broker)
        assert alter(broker, target, version=version) == 0
        finish(broker)
        assert place(broker) == target.name
        assert dirs.names() == {before: set(), target.name: {"t-0"}}
        assert not (target / "t-0" / "klamm.move").exists()
        assert described(broker)[before] == []
        dirs.fill(broker, 3)
        assert values(broker) == list(range(count + 3))
        again: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": count}
        answer = broker.produce("t", batch(b"%d " % count + VALUE, **again))  # the fifth last at most: a duplicate
        assert (answer.error_code, answer.base_offset) == (0, count)
    with dirs.broker() as broker:
        assert place(broker) == target.name
        assert values(broker) == list(range(count + 3))


def test_it_is_written_to_and_rolled_while_it_moves(dirs: Dirs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dir_mover_module, "CHUNK_BYTES", 50_000)
    monkeypatch.setattr(log_dir_mover_module, "TAIL_BYTES", 300_000)
    with dirs.broker() as broker:
        broker.create_topic("t")
        dirs.fill(broker, 25)
        target = other(broker)
        assert alter(broker, target) == 0
        seen_future = 0
        while the(broker).is_moving:
            if dirs.written < 200:
                dirs.fill(broker, 1)
            futures = [each for each in described(broker)[target.name] if each[2]]
            seen_future += bool(futures)
            for size, lag, _ in futures:
                assert size <= the(broker).log.local.size_bytes and 0 <= lag <= dirs.written  # type: ignore[union-attr]
        assert seen_future and dirs.written > 26
        assert place(broker) == target.name
        assert values(broker) == list(range(dirs.written))


def test_deleted_records_stay_deleted(dirs: Dirs) -> None:
    with dirs.broker() as broker:
        broker.create_topic("t")
        dirs.fill(broker, 25)
        partitions = [DeleteRecordsPartition(partition_index=0, offset=13)]
        deleted = broker.call(
            DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=partitions)], timeout_ms=1000), 1
        )
        assert deleted.topics[0].partitions[0].low_watermark == 13
        assert alter(broker, other(broker)) == 0
        finish(broker)
        assert values(broker) == list(range(13, 25))
    with dirs.broker() as broker:
        assert values(broker) == list(range(13, 25))


def test_what_is_known_to_be_damaged_moves_with_it(dirs: Dirs) -> None:
    with dirs.broker() as broker:
        broker.create_topic("t")
        dirs.fill(broker, 25)
        log = the(broker).log
        assert log is not None
        damage = DamagedRange(0, 0, next(log.local.segments.all[0].last_batch_headers(1))[0], 0, 1, "wrong CRC")
        log.local.segments.all[0].damage = (damage,)
        assert alter(broker, other(broker)) == 0
        finish(broker)
        target = broker.broker.partitions.logs.directory_of(the(broker).key)
        moved = the(broker).log
        assert moved is not log and moved is not None and moved.local.segments.all[0].damage == (damage,)
        with pytest.raises(CorruptMessage):
            moved.read_records(0, max_bytes=1 << 20, max_offset=moved.high_watermark)
        (known,) = scrub_state.load(target.filesystem, target.path).damage
        assert known.ranges == (damage,), "a crash does not forget it"


def test_errors_are_those_of_apache_kafka(dirs: Dirs) -> None:
    with dirs.broker() as broker:
        broker.create_topic("t")
        broker.create_topic("x" * 240)
        target = other(broker)
        assert alter(broker, "/nowhere") == ErrorCode.LOG_DIR_NOT_FOUND
        assert alter(broker, f"{target}/") == ErrorCode.LOG_DIR_NOT_FOUND
        assert alter(broker, "/nowhere", "nope") == ErrorCode.LOG_DIR_NOT_FOUND
        assert alter(broker, target, "nope") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert alter(broker, target, "t", 9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert alter(broker, target, "t", -1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        codes = {alter(broker, each.path, "x" * 240) for each in broker.broker.partitions.logs.log_dirs}
        assert codes == {0, ErrorCode.INVALID_TOPIC_EXCEPTION}
        the(broker).go_offline("for a test")
        assert alter(broker, target) == ErrorCode.KAFKA_STORAGE_ERROR
        (target_dir,) = (each for each in broker.broker.partitions.logs.log_dirs if each.path == target)
        target_dir.offline_reason = "for a test"
        assert alter(broker, target) == ErrorCode.KAFKA_STORAGE_ERROR
        target_dir.offline_reason = None


class Held:
    """Moves stop before the given step until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
        self.gate = asyncio.Event()
        self.reached = asyncio.Event()
        work = getattr(log_dir_mover_module.LogDirMover, step)
        held = self

        async def wait(self: Any, *arguments: Any) -> Any:
            held.reached.set()
            await held.gate.wait()
            return await work(self, *arguments)

        monkeypatch.setattr(log_dir_mover_module.LogDirMover, step, wait)

    def hold(self, broker: EmbeddedBroker) -> None:
        broker.run(self.reached.wait())


@pytest.mark.parametrize("step", ["_copy", "_throttle"])
def test_naming_its_own_directory_ends_a_move(dirs: Dirs, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    held = Held(monkeypatch, step)
    with dirs.broker() as broker:
        broker.create_topic("t")
        dirs.fill(broker, 25)
        before, target = place(broker), other(broker)
        assert alter(broker, target) == 0
        held.hold(broker)
        assert [each[2] for each in described(broker)[target.name]] == [True]
        broker.loop.call_soon(held.gate.set)
        assert alter(broker, dirs.path / before) == 0
        finish(broker)
        assert place(broker) == before
        assert dirs.names() == {before: {"t-0"}, target.name: set()}
        assert values(broker) == list(range(25))


def test_a_topic_that_is_deleted_while_it_moves_leaves_nothing(dirs: Dirs, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch, "_throttle")
    with dirs.broker() as broker:
        broker.create_topic("t")
        dirs.fill(broker, 25)
        assert alter(broker, other(broker)) == 0
        held.hold(broker)
        broker.loop.call_soon(held.gate.set)
        assert broker.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 3).responses[0].error_code == 0
        finish(broker)
        broker.run(broker.broker.partitions.removed())
        assert dirs.names() == {"a": set(), "b": set()}
        broker.create_topic("t")
        dirs.written = 0
        dirs.fill(broker, 2)
        assert values(broker) == [0, 1]


def test_a_copy_that_cannot_be_made_is_given_up(dirs: Dirs, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: FutureLog, max_bytes: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FutureLog, "copy_some", fail)
    with dirs.broker() as broker:
        broker.create_topic("t")
        dirs.fill(broker, 25)
        before, target = place(broker), other(broker)
        assert alter(broker, target) == 0
        finish(broker)
        assert dirs.names() == {before: {"t-0"}, target.name: set()}
        dirs.fill(broker, 1)
        assert values(broker) == list(range(26))


def test_segments_that_were_replaced_are_copied_again(dirs: Dirs, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = iter([True, True])
    monkeypatch.setattr(FutureLog, "is_stale", property(lambda self: next(stale, False)))
    with dirs.broker() as broker:
        broker.create_topic("t")
        dirs.fill(broker, 25)
        target = other(broker)
        assert alter(broker, target) == 0
        finish(broker)
        assert dirs.names()[target.name] == {"t-0"}
        assert values(broker) == list(range(25))


def test_the_throttle_is_kept(dirs: Dirs, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(log_dir_mover_module, "CHUNK_BYTES", 500_000)
    with dirs.broker() as broker:
        sleep = asyncio.sleep

        async def pause(seconds: float) -> None:
            if seconds > 0.001:
                pauses.append(seconds)
                broker.clock.advance(int(seconds * 1000) + 1)
            await sleep(0)

        broker.create_topic("t")
        dirs.fill(broker, 25)
        monkeypatch.setattr(log_dir_mover_module, "THROTTLE", "log.retention.check.interval.ms")  # any number: 300000
        monkeypatch.setattr(asyncio, "sleep", pause)
        assert alter(broker, other(broker)) == 0
        finish(broker)
    assert sum(pauses) == pytest.approx(25 * len(VALUE) / 300_000, rel=0.2)


# -- a crash at any step


class Dead(BaseException):
    """The process ends here."""


CRASHES = ["begin", "copy_some", "open", "catch_up", "replace_current_log", "finish"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", CRASHES)
def test_a_crash_at_any_step_loses_nothing_and_the_move_goes_on(
    dirs: Dirs, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    module = future_log_module if step in ("begin", "finish") else FutureLog
    work = getattr(module, step)

    def die(*arguments: Any) -> Any:
        if after:
            work(*arguments)
        raise KafkaStorageError("the process ends here")

    broker = EmbeddedBroker(dirs.path, dirs.config).__enter__()
    broker.create_topic("t")
    dirs.fill(broker, 25)
    target = other(broker)
    with monkeypatch.context() as patch:
        patch.setattr(module, step, die)
        patch.setattr(future_log_module, "drop", lambda *_: None)  # the dead do not tidy up
        code = alter(broker, target)
        assert (code == 0) == (step != "begin")
        finish(broker)
        dirs.fill(broker, 2)
        broker.crash()
    with dirs.broker() as broker:
        assert values(broker) == list(range(27))
        finish(broker)
        dirs.fill(broker, 2)
        assert values(broker) == list(range(29))
        found = dirs.names()
        assert sorted(found["a"] | found["b"]) == ["t-0"] and len(found["a"]) + len(found["b"]) == 1
        if (step, after) != ("begin", False):
            resumed = step in ("begin", "copy_some") or (step, after) == ("open", False) or step == "finish"
            assert not resumed or place(broker) == target.name
    with dirs.broker() as broker:
        assert values(broker) == list(range(29))
        assert not list(dirs.path.glob("*/t-0/klamm.move"))


def test_a_stop_after_the_third_step_leaves_the_partition_in_one_place(
    dirs: Dirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = FutureLog.open

    def stop_then(self: FutureLog, *arguments: Any) -> None:
        work(self, *arguments)
        broker.broker.log_dir_mover._is_stopping = True

    with dirs.broker() as broker, monkeypatch.context() as patch:
        patch.setattr(FutureLog, "open", stop_then)
        broker.create_topic("t")
        dirs.fill(broker, 25)
        before, target = place(broker), other(broker)
        assert alter(broker, target) == 0
        finish(broker)
    found = dirs.names()
    assert found[before] == {"t-0"}
    assert [name.split(".")[0] for name in found[target.name]] == ["t-0"] and "t-0" not in found[target.name]
    with dirs.broker() as broker:
        finish(broker)
        assert dirs.names() == {before: set(), target.name: {"t-0"}}
        assert values(broker) == list(range(25))


def test_a_move_does_not_begin_again_without_end(dirs: Dirs, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[FutureLog] = []
    work = FutureLog.open

    def count(self: FutureLog, *arguments: Any) -> None:
        opened.append(self)
        work(self, *arguments)

    monkeypatch.setattr(FutureLog, "open", count)
    monkeypatch.setattr(FutureLog, "is_stale", property(lambda self: True))
    with dirs.broker() as broker:
        broker.create_topic("t")
        dirs.fill(broker, 25)
        before, target = place(broker), other(broker)
        assert alter(broker, target) == 0
        finish(broker)
        assert len(opened) == log_dir_mover_module.MOST_TRIES
        assert dirs.names() == {before: {"t-0"}, target.name: set()}
        assert values(broker) == list(range(25))


def test_what_a_move_could_not_delete_is_deleted_with_the_topic(dirs: Dirs, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise KafkaStorageError("for a test")

    with dirs.broker() as broker:
        broker.create_topic("t")
        dirs.fill(broker, 25)
        before, target = place(broker), other(broker)
        with monkeypatch.context() as patch:
            patch.setattr(future_log_module, "finish", fail)
            assert alter(broker, target) == 0
            finish(broker)
        assert place(broker) == target.name
        assert dirs.names() == {before: {"t-0"}, target.name: {"t-0"}}
        assert alter(broker, dirs.path / before) == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 3).responses[0].error_code == 0
        assert dirs.names() == {"a": set(), "b": set()}


def test_a_stop_in_the_middle_is_gone_on_with(dirs: Dirs, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch, "_throttle")
    with dirs.broker() as broker:
        broker.create_topic("t")
        dirs.fill(broker, 25)
        target = other(broker)
        assert alter(broker, target) == 0
        held.hold(broker)
        broker.loop.call_soon(held.gate.set)
    assert any(name.endswith("-future") for name in dirs.names()[target.name])
    monkeypatch.undo()
    with dirs.broker() as broker:
        finish(broker)
        assert place(broker) == target.name
        assert values(broker) == list(range(25))
