from __future__ import annotations

import errno
import json
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from klamm.protocol.errors import KafkaStorageError
from klamm.protocol.wire import uuid_to_text
from klamm.storage import paths
from klamm.storage.clock import Clock
from klamm.storage.filesystem import OsFilesystem
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log_creation import CreationLeftOver, NewLog, create_logs
from klamm.storage.log_deletion import delete_log
from klamm.storage.log_dir import LogDir, LogDirError, LogDirLocked
from klamm.storage.log_loading import load_logs
from klamm.storage.paths import TopicPartition
from tests.storage.batches import all_offsets, fill
from tests.support.log_dirs import create_log
from tests.support.manual_clock import ManualClock
from tests.support.memory_filesystem import MemoryFilesystem

DATA = Path("/data")
TOPIC_ID = bytes(range(16))
SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)


def open_dir(filesystem: MemoryFilesystem, *, clock: Clock | None = None, load: bool = True) -> LogDir:
    log_dir = LogDir.open(
        DATA,
        node_id=1,
        cluster_id="cluster",
        clock=clock or ManualClock(),
        filesystem=filesystem,
        quarantine=Path("/cut"),
    )
    if load:
        load_logs(log_dir, lambda topic: SMALL)
    return log_dir


def create(log_dir: LogDir, topic: str = "t", partition: int = 0) -> Log:
    return create_log(log_dir, topic, partition, TOPIC_ID, SMALL)


def text(filesystem: MemoryFilesystem, name: str) -> str:
    return filesystem.read_bytes(DATA / name).decode()


def test_a_new_directory_is_identified_and_locked() -> None:
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    lines = text(filesystem, paths.META_PROPERTIES).splitlines()
    assert lines == ["cluster.id=cluster", f"directory.id={log_dir.meta.directory_id}", "node.id=1", "version=1"]
    with pytest.raises(LogDirLocked, match=r"another process holds \.lock"):
        open_dir(filesystem)
    log_dir.close()
    assert open_dir(filesystem).meta == log_dir.meta


def test_a_foreign_directory_is_refused_untouched() -> None:
    filesystem = MemoryFilesystem()
    open_dir(filesystem).close()
    before = filesystem.list_directory(DATA)
    for node_id, cluster_id in ((2, "cluster"), (1, "other")):
        with pytest.raises(LogDirError, match=r"meta\.properties: (node|cluster)\.id="):
            LogDir.open(DATA, node_id=node_id, cluster_id=cluster_id, filesystem=filesystem)
    assert filesystem.list_directory(DATA) == before
    open_dir(filesystem)


@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"version=7\nnode.id=1\ncluster.id=x\n", b"version=1\ncluster.id=x\n"]
)
def test_corrupt_meta_properties_are_refused(content: bytes) -> None:  # row 20
    filesystem = MemoryFilesystem()
    open_dir(filesystem).close()
    file = filesystem.open_file(DATA / paths.META_PROPERTIES)
    file.truncate(0)
    file.write_at(content, 0)
    with pytest.raises(LogDirError, match=r"/data/meta\.properties: "):
        open_dir(filesystem)
    assert filesystem.exists(DATA / paths.CLEAN_SHUTDOWN)


def test_a_read_only_directory_is_a_clear_error() -> None:  # row 24
    filesystem = MemoryFilesystem()
    filesystem.make_directories(DATA)
    filesystem.inject("create", errno.EROFS)
    with pytest.raises(LogDirError, match=r"/data: Read-only file system \(EROFS\)"):
        open_dir(filesystem)
    assert filesystem.list_directory(DATA) == []


def test_the_lock_holds_against_another_process_and_is_taken_first(tmp_path: Path) -> None:  # row 29
    log_dir = LogDir.open(tmp_path / "data", node_id=1)
    program = (
        "import sys; from pathlib import Path; from klamm.storage.log_dir import LogDir, LogDirLocked\n"
        "try: LogDir.open(Path(sys.argv[1]), node_id=2)\n"
        "except LogDirLocked: print('locked')"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "data")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "locked\n"
    log_dir.close()


@pytest.mark.parametrize("again", ["{0}", "{0}/.", "{0}/../link", "{0}/../data"])
def test_one_directory_under_two_names_is_refused_and_stays_locked(tmp_path: Path, again: str) -> None:
    data = tmp_path / "data"
    (tmp_path / "link").symlink_to(data)
    log_dir = LogDir.open(data, node_id=1)
    for _ in range(2):
        with pytest.raises(LogDirLocked, match=r"is the same directory as .*/data: name it once"):
            LogDir.open(Path(again.format(data)), node_id=1)
    code = f"from klamm.storage.log_dir import *; LogDir.open(Path({str(data)!r}), node_id=1)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "LogDirLocked" in done.stderr, "it is still held against others"
    log_dir.leave()
    LogDir.open(data / ".", node_id=1).leave()


def test_partition_metadata_is_durable_before_the_first_data() -> None:
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    create(log_dir)
    filesystem.crash()
    expected = f"version: 0\ntopic_id: {uuid_to_text(TOPIC_ID)}\n"
    assert text(filesystem, "t-0/partition.metadata") == expected
    again = open_dir(filesystem)
    assert again.logs[TopicPartition("t", 0)].topic_id == TOPIC_ID


def test_a_half_created_partition_is_created_again() -> None:  # row 33
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    filesystem.inject("create", errno.ENOSPC, ".log")
    with pytest.raises(KafkaStorageError, match="ENOSPC"):
        create(log_dir)
    assert log_dir.logs == {}
    filesystem.heal()
    fill(create(log_dir), 1)


def test_a_clean_close_writes_the_marker_and_the_next_start_takes_it_away() -> None:
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    fill(create(log_dir), 30)
    assert log_dir.close(broker_epoch=5)
    assert json.loads(text(filesystem, paths.CLEAN_SHUTDOWN)) == {"version": 0, "brokerEpoch": 5}
    assert text(filesystem, paths.RECOVERY_POINT_CHECKPOINT) == "0\n1\nt 0 30\n"
    filesystem.crash()  # a clean close is durable
    again = open_dir(filesystem)
    assert again.was_clean
    assert not filesystem.exists(DATA / paths.CLEAN_SHUTDOWN)
    assert all_offsets(again.logs[TopicPartition("t", 0)]) == list(range(30))


def test_the_empty_marker_of_old_kafka_is_accepted() -> None:
    filesystem = MemoryFilesystem()
    open_dir(filesystem).close()
    filesystem.open_file(DATA / paths.CLEAN_SHUTDOWN).truncate(0)
    assert open_dir(filesystem).was_clean


def test_an_older_index_that_cannot_be_written_leaves_no_mark_of_a_clean_close() -> None:
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    log = create(log_dir)
    filesystem.inject("create", errno.ENOSPC, f"{0:020d}.timeindex")
    fill(log, 30)
    assert not log_dir.close()
    assert not filesystem.exists(DATA / paths.CLEAN_SHUTDOWN)
    filesystem.crash()
    again = open_dir(filesystem)
    assert not again.was_clean
    assert all_offsets(again.logs[TopicPartition("t", 0)]) == list(range(30))
    assert again.close()


def test_one_bad_partition_stops_nobody_and_keeps_what_is_known_of_it() -> None:
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    for topic in ("bad", "good"):
        log = create(log_dir, topic)
        fill(log, 3)
        log.local.flush()
    log_dir.checkpoint()
    filesystem.kill()
    filesystem.open_file(DATA / "bad-0" / f"{0:020d}.log").truncate(20)
    again = open_dir(filesystem)
    assert set(again.logs) == {TopicPartition("good", 0)}
    offline = again.offline[TopicPartition("bad", 0)]
    assert offline.topic_id == TOPIC_ID
    assert "below the recovery point 3" in offline.reason
    fill(again.logs[TopicPartition("good", 0)], 1)
    assert not again.close()  # or the next start would not look at it again
    assert text(filesystem, paths.RECOVERY_POINT_CHECKPOINT) == "0\n2\nbad 0 3\ngood 0 4\n"
    assert set(open_dir(filesystem).offline) == {TopicPartition("bad", 0)}


def test_a_wrong_partition_metadata_takes_that_partition_offline() -> None:
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    create(log_dir)
    log_dir.close()
    filesystem.open_file(DATA / "t-0" / paths.PARTITION_METADATA).write_at(b"X", 0)
    assert "partition.metadata" in open_dir(filesystem).offline[TopicPartition("t", 0)].reason


def test_the_boot_id_distinguishes_a_power_cut_from_the_death_of_the_process() -> None:
    for power_cut in (True, False):
        filesystem = MemoryFilesystem()
        log_dir = open_dir(filesystem)
        log = create(log_dir)
        fill(log, 4)
        filesystem.open_file(log.local.segments.all[0].path).write_at(b"\xff", 100)  # damage in the middle
        log.local.segments.all[0].sync()
        filesystem.sync_directory(DATA / "t-0")
        if power_cut:
            filesystem.crash()
        else:
            filesystem.kill()
        again = open_dir(filesystem)
        if power_cut:
            assert again.logs[TopicPartition("t", 0)].log_end_offset == 1
        else:
            assert "a good batch follows" in again.offline[TopicPartition("t", 0)].reason


def test_a_power_cut_and_then_the_death_of_the_process_leave_what_the_first_start_kept() -> None:
    """Checkpoints from before the power cut count records that it took; the second start would miss them."""
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    log = create(log_dir)
    fill(log, 4)
    log.set_high_watermark(4)
    log_dir.checkpoint()
    filesystem.crash()
    assert open_dir(filesystem).logs[TopicPartition("t", 0)].log_end_offset == 0
    filesystem.kill()
    log_dir = open_dir(filesystem)
    assert not log_dir.offline
    assert log_dir.logs[TopicPartition("t", 0)].log_end_offset == 0


def test_deleting_renames_first_and_finishes_at_the_next_start() -> None:  # row 17
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    fill(create(log_dir), 20)
    create(log_dir, "other")
    renamed = delete_log(log_dir, TopicPartition("t", 0), remove=False)
    assert renamed.name.startswith("t-0.")
    assert renamed.name.endswith("-delete")
    uuid.UUID(hex=renamed.name[len("t-0.") : -len("-delete")])
    filesystem.crash()
    again = open_dir(filesystem)
    assert set(again.logs) == {TopicPartition("other", 0)}
    assert not filesystem.exists(renamed)


def test_a_deletion_that_cannot_be_finished_does_not_stop_the_start(caplog: pytest.LogCaptureFixture) -> None:
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    fill(create(log_dir), 20)
    create(log_dir, "other")
    renamed = delete_log(log_dir, TopicPartition("t", 0), remove=False)
    log_dir.close()
    filesystem.inject("unlink", errno.EIO, ".log")
    again = open_dir(filesystem)
    assert set(again.logs) == {TopicPartition("other", 0)}
    assert f"{renamed.name} stays until the next start: " in caplog.text
    again.close()
    filesystem.heal()
    open_dir(filesystem)
    assert not filesystem.exists(renamed)


def test_a_leftover_that_cannot_be_removed_takes_no_partition_offline() -> None:
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    log = create(log_dir)
    fill(log, 20)
    log.advance_log_start(log.local.segments.all[-1].base_offset)
    (deleted, *_) = log.local.retire_segments(log.detach_unreachable())
    log_dir.close()
    filesystem.inject("unlink", errno.EPERM, paths.DELETED_SUFFIX)
    again = open_dir(filesystem)
    assert set(again.logs) == {TopicPartition("t", 0)} and filesystem.exists(deleted)
    again.close()
    filesystem.heal()
    open_dir(filesystem)
    assert not filesystem.exists(deleted)


def test_a_topic_of_the_same_name_begins_at_zero() -> None:
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    fill(create(log_dir), 20)
    log_dir.checkpoint()
    delete_log(log_dir, TopicPartition("t", 0))
    fill(create(log_dir), 1)
    filesystem.kill()
    again = open_dir(filesystem)
    assert again.offline == {}
    assert all_offsets(again.logs[TopicPartition("t", 0)]) == [0]


def test_the_directory_name_of_a_deleted_log_fits_the_filesystem() -> None:
    name = paths.delete_directory(DATA / ("x" * 249 + "-7"), uuid.uuid4()).name
    assert len(name) == 255
    assert paths.is_delete_directory(name)
    assert paths.parse_partition_directory(name) is None


def test_unknown_directories_are_left_alone() -> None:  # row 13
    filesystem = MemoryFilesystem()
    for name in ("t-0.0123456789abcdef0123456789abcdef-stray", "lost+found", "__cluster_metadata-0", "a-b-x"):
        filesystem.make_directories(DATA / name)
    log_dir = open_dir(filesystem)
    assert (log_dir.logs, log_dir.offline) == ({}, {})
    assert len([entry for entry in filesystem.list_directory(DATA) if entry.is_directory]) == 4


@pytest.mark.parametrize(
    "name", [paths.RECOVERY_POINT_CHECKPOINT, paths.LOG_START_CHECKPOINT, paths.HIGH_WATERMARK_CHECKPOINT]
)
@pytest.mark.parametrize("content", [b"", b"junk", b"0\n1\n", b"0\n1\nt 0 x\n", b"9\n0\n", b"\xff\x00"])
def test_garbage_checkpoints_fall_back_to_a_scan(name: str, content: bytes) -> None:  # row 19
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    fill(create(log_dir), 20)
    log_dir.close()
    file = filesystem.open_file(DATA / name, create=True)
    file.truncate(0)
    file.write_at(content, 0)
    again = open_dir(filesystem)
    log = again.logs[TopicPartition("t", 0)]
    assert all_offsets(log) == list(range(20))
    assert log.local.recovery_point == (0 if name == paths.RECOVERY_POINT_CHECKPOINT else 20)


def test_the_log_start_survives_and_is_never_above_what_is_durable() -> None:
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    log = create(log_dir)
    fill(log, 20)
    log.advance_log_start(17)
    log_dir.checkpoint()
    assert log.local.recovery_point == 20
    filesystem.crash()
    again = open_dir(filesystem).logs[TopicPartition("t", 0)]
    assert (again.log_start_offset, again.log_end_offset) == (17, 20)


def test_records_deleted_while_a_checkpoint_is_written_and_a_power_cut() -> None:
    """The log start may move in memory after the flush that a checkpoint begins with."""
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    log, other = create(log_dir), create(log_dir, "u")
    fill(log, 20)
    log.local.flush()
    fill(other, 5)
    other.advance_log_start(3)

    def delete_records() -> None:
        filesystem.before_change = None
        fill(log, 10)
        log.advance_log_start(25)

    filesystem.before_change = delete_records  # when the other one is flushed
    log_dir.checkpoint()
    assert log.log_start_offset == 25
    filesystem.crash()
    again = open_dir(filesystem)
    assert again.offline == {}
    assert again.logs[TopicPartition("t", 0)].log_end_offset == 20
    assert again.logs[TopicPartition("u", 0)].log_start_offset == 3


def test_a_log_start_that_was_written_stays_though_the_recovery_point_is_below() -> None:
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    log = create(log_dir)
    fill(log, 20)
    log.advance_log_start(17)
    log_dir.checkpoint()
    filesystem.unlink(DATA / paths.RECOVERY_POINT_CHECKPOINT)
    filesystem.sync_directory(DATA)
    filesystem.crash()
    again = open_dir(filesystem)
    again.write_checkpoints()
    assert "t 0 17" in text(filesystem, paths.LOG_START_CHECKPOINT)


def test_truncation_lowers_the_checkpoints_first() -> None:
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    log = create(log_dir)
    fill(log, 20)
    log.high_watermark = 20
    log.local.flush()
    log_dir.checkpoint()
    log.truncate_to(4)
    filesystem.kill()
    again = open_dir(filesystem)
    assert again.offline == {}
    assert again.logs[TopicPartition("t", 0)].log_end_offset == 4


def test_a_failed_fsync_takes_the_whole_directory_offline() -> None:  # row 26
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    first, second = create(log_dir, "a"), create(log_dir, "b")
    fill(first, 1)
    fill(second, 1)
    filesystem.inject("sync", errno.EIO, "a-0/00000000000000000000.log", times=1)
    with pytest.raises(KafkaStorageError):
        first.local.flush()
    syncs = filesystem.syncs
    for log in (first, second):
        with pytest.raises(KafkaStorageError, match="offline"):
            fill(log, 1)
        assert all_offsets(log) == [0]
    with pytest.raises(KafkaStorageError):
        create(log_dir, "c")
    assert not log_dir.close()
    assert filesystem.syncs == syncs
    assert not open_dir(filesystem).was_clean


def test_checkpoints_are_written_only_when_something_changed() -> None:
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    create(log_dir)
    log_dir.checkpoint()
    changes = filesystem.changes
    log_dir.checkpoint()
    assert filesystem.changes == changes


def test_a_full_disk_does_not_stop_checkpointing_for_good() -> None:  # row 23
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    log = create(log_dir)
    fill(log, 3)
    log.local.flush()
    filesystem.space_bytes = 0
    with pytest.raises(KafkaStorageError, match="ENOSPC"):
        log_dir.checkpoint()
    filesystem.space_bytes = None
    log_dir.checkpoint()
    assert text(filesystem, paths.RECOVERY_POINT_CHECKPOINT) == "0\n1\nt 0 3\n"


def test_many_logs_are_created_with_one_sync_of_the_directory() -> None:
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    before = filesystem.directory_syncs
    create_logs(log_dir, [NewLog("t", partition, TOPIC_ID, SMALL) for partition in range(10)])
    assert filesystem.directory_syncs - before == 11
    filesystem.crash()
    assert len(open_dir(filesystem).logs) == 10


@pytest.mark.parametrize("stays", [False, True])
def test_a_log_that_cannot_be_made_leaves_nothing_and_stops_no_other(stays: bool) -> None:  # row 22
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    filesystem.inject("create", errno.ENOSPC, "t-1/partition.metadata.tmp")
    if stays:
        filesystem.inject("list", errno.EIO, "t-1")
    made = create_logs(log_dir, [NewLog("t", partition, TOPIC_ID, SMALL) for partition in range(3)])
    assert [isinstance(each, Log) for each in made] == [True, False, True]
    assert isinstance(made[1], CreationLeftOver) == stays
    assert filesystem.exists(DATA / "t-1") == stays
    filesystem.heal()
    assert isinstance(create_log(log_dir, "t", 1, TOPIC_ID, SMALL), Log)


def test_logs_are_not_made_when_their_directory_cannot_be_synced() -> None:
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    filesystem.inject("sync_directory", errno.EIO, "data")
    with pytest.raises(CreationLeftOver, match="EIO"):
        create_log(log_dir, "t", 0, TOPIC_ID, SMALL)
    assert log_dir.logs == {}


def test_a_real_directory(tmp_path: Path) -> None:
    log_dir = LogDir.open(tmp_path / "data", node_id=1, clock=ManualClock(), filesystem=OsFilesystem())
    load_logs(log_dir, lambda topic: SMALL)
    fill(create_log(log_dir, "t", 0, TOPIC_ID, SMALL), 50)
    assert log_dir.close()
    again = LogDir.open(tmp_path / "data", node_id=1, clock=ManualClock())
    log = load_logs(again, lambda topic: SMALL).logs[TopicPartition("t", 0)]
    assert all_offsets(log) == list(range(50))
    delete_log(again, TopicPartition("t", 0))
    assert not list((tmp_path / "data").glob("t-0*"))
    again.close()
