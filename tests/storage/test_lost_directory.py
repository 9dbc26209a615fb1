"""A partition without its directory (row 12 of the storage faults)."""

from __future__ import annotations

from pathlib import Path

from klamm.storage.filesystem import remove_tree
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log_deletion import delete_log
from klamm.storage.log_dir import LogDir
from klamm.storage.log_loading import load_logs
from klamm.storage.paths import TopicPartition
from tests.storage.batches import fill
from tests.support.log_dirs import create_log
from tests.support.manual_clock import ManualClock
from tests.support.memory_filesystem import MemoryFilesystem

DATA = Path("/data")
WRITTEN, EMPTY, DROPPED = (TopicPartition(name, 0) for name in ("written", "empty", "dropped"))


def open_dir(filesystem: MemoryFilesystem) -> LogDir:
    log_dir = LogDir.open(DATA, node_id=1, cluster_id="c", clock=ManualClock(), filesystem=filesystem)
    load_logs(log_dir, lambda _: LogConfig(), expected=lambda partition: partition != DROPPED)
    return log_dir


def test_rows_12_33_only_a_partition_that_never_had_data_may_be_created_again() -> None:
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    for partition in (WRITTEN, EMPTY, DROPPED):
        log = create_log(log_dir, partition.topic, partition.partition, bytes(16), LogConfig())
        if partition != EMPTY:
            fill(log, 3)
    log_dir.close()
    for partition in (WRITTEN, EMPTY, DROPPED):
        remove_tree(filesystem, DATA / str(partition))
    for _ in range(2):  # it stays known
        log_dir = open_dir(filesystem)
        assert log_dir.offline.keys() == {WRITTEN}
        assert "directory is missing" in log_dir.offline[WRITTEN].reason
        log_dir.close()
    log_dir = open_dir(filesystem)
    delete_log(log_dir, TopicPartition("written", 0))
    create_log(log_dir, "written", 0, bytes(16), LogConfig())
    log_dir.close()
    assert not open_dir(filesystem).offline
