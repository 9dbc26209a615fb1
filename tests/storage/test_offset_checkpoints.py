"""The offset checkpoints of a log directory, and changes while they are written."""

from __future__ import annotations

from collections.abc import ItemsView
from pathlib import Path

from klamm.storage import paths
from klamm.storage.log.log import Log
from klamm.storage.offset_checkpoints import OffsetCheckpoints
from klamm.storage.paths import TopicPartition
from tests.storage.batches import fill, open_log
from tests.support.memory_filesystem import MemoryFilesystem

T, U = TopicPartition("t", 0), TopicPartition("u", 0)
DATA = Path("/data")


def known(filesystem: MemoryFilesystem) -> OffsetCheckpoints:
    filesystem.make_directories(DATA)
    found = OffsetCheckpoints(filesystem, DATA)
    found.read()
    return found


def some_log(filesystem: MemoryFilesystem, log_start_offset: int) -> Log:
    log = open_log(filesystem)
    fill(log, 9)
    log.local.flush()
    log.advance_log_start(log_start_offset)
    return log


def test_what_is_written_is_known_after_a_power_cut() -> None:
    filesystem = MemoryFilesystem()
    offsets, log = known(filesystem), some_log(filesystem, 4)
    offsets.write({T: log, U: log}, lambda: ())
    offsets.note_cleaned({T: log}, T, log, 6)
    filesystem.sync_directory(DATA.parent)
    filesystem.crash()
    again = known(filesystem)
    assert [again.offset_of(paths.RECOVERY_POINT_CHECKPOINT, T), again.offset_of(paths.LOG_START_CHECKPOINT, T)] == [
        9,
        4,
    ]
    assert [again.offset_of(paths.CLEANER_CHECKPOINT, T), again.offset_of(paths.CLEANER_CHECKPOINT, U)] == [6, 0]
    assert again.offset_of(paths.LOG_START_CHECKPOINT, TopicPartition("v", 0)) == 0


def test_nothing_is_above_what_it_is_lowered_to() -> None:
    filesystem = MemoryFilesystem()
    offsets, log = known(filesystem), some_log(filesystem, 4)
    offsets.write({T: log}, lambda: (), {T: 3})
    assert {offset for _, _, offset in offsets} == {3}


def test_a_partition_that_leaves_while_it_is_written_is_not_forgotten() -> None:
    """The loop moves a partition while a thread writes the checkpoint: it is in `leaving` before it leaves the logs."""
    filesystem = MemoryFilesystem()
    offsets, log = known(filesystem), some_log(filesystem, 4)
    offsets.write({T: log, U: log}, lambda: ())
    leaving: set[TopicPartition] = set()

    class Logs(dict[TopicPartition, Log]):
        def items(self) -> ItemsView[TopicPartition, Log]:
            leaving.add(T)
            del self[T]
            return super().items()

    offsets.write(Logs({T: log, U: log}), lambda: leaving)
    assert offsets.offset_of(paths.LOG_START_CHECKPOINT, T) == 4
    offsets.forget_all_but(lambda: leaving)
    assert (offsets.offset_of(paths.LOG_START_CHECKPOINT, T), offsets.offset_of(paths.LOG_START_CHECKPOINT, U)) == (
        4,
        0,
    )


def test_a_log_that_was_replaced_meanwhile_was_not_compacted() -> None:
    filesystem = MemoryFilesystem()
    offsets, log = known(filesystem), some_log(filesystem, 0)
    offsets.note_cleaned({}, T, log, 6)
    assert offsets.offset_of(paths.CLEANER_CHECKPOINT, T) == 0


def test_a_file_that_is_garbage_is_as_if_it_were_empty() -> None:
    filesystem = MemoryFilesystem()
    offsets, log = known(filesystem), some_log(filesystem, 4)
    offsets.write({T: log}, lambda: ())
    for name, trusted in ((paths.LOG_START_CHECKPOINT, True), (paths.RECOVERY_POINT_CHECKPOINT, False)):
        filesystem.open_file(DATA / name).write_at(b"garbage", 0)
        again = OffsetCheckpoints(filesystem, DATA)
        assert again.read() is trusted
        assert again.offset_of(name, T) == 0
