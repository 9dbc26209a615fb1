"""Copies of partition directories: shared files, copied files, and files that are left out."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from klamm.storage.clock import SystemClock
from klamm.storage.copying import CHUNK_BYTES, Copied, copy_file, copy_partition
from klamm.storage.filesystem import OsFilesystem
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.recovery import loader
from tests.storage.batches import batch
from tests.support.memory_filesystem import MemoryFilesystem

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100)


def open_log(directory: Path) -> Log:
    return loader.open_log(
        loader.LogSource(directory, CONFIG, clock=SystemClock(), filesystem=OsFilesystem(), clean=True)
    )


def fill(directory: Path) -> None:
    log = open_log(directory)
    for number in range(30):
        log.append_as_leader(
            batch(1000 + number, value=b"v" * 50, producer_id=5, epoch=0, sequence=number), leader_epoch=0
        )
    assert len(log.local.segments.all) >= 3
    log.close()
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")


def test_a_copy_is_the_same_log_and_shares_only_what_never_changes(tmp_path: Path) -> None:
    source, target = tmp_path / "a" / "t-0", tmp_path / "b" / "t-0"
    fill(source)
    for name in ("klamm.compaction", "00000000000000000000.log.deleted", "x.tmp", "00000000000000000003.index.cleaned"):
        (source / name).write_bytes(b"left over")
    done = copy_partition(OsFilesystem(), source, target)
    names = {path.name for path in target.iterdir()}
    assert names == {path.name for path in source.iterdir() if path.read_bytes() != b"left over"}
    shared = {name for name in names if os.path.samefile(source / name, target / name)}
    logs = sorted(name for name in names if name.endswith(".log"))
    assert shared == {*logs[:-1], *(name for name in names if name.endswith(".snapshot"))}
    assert done.linked_bytes == sum((target / name).stat().st_size for name in shared)
    assert done.copied_bytes == sum((target / name).stat().st_size for name in names - shared)
    copy = open_log(target)
    assert copy.log_end_offset == 30
    copy.append_as_leader(batch(5000), leader_epoch=0)
    copy.close()
    (source / "klamm.compaction").unlink()
    assert open_log(source).log_end_offset == 30


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_where_there_are_no_links_all_is_copied(code: int) -> None:
    filesystem = MemoryFilesystem()
    for name in ("00000000000000000000.log", "00000000000000000007.log"):
        filesystem.make_directories(Path("/a/t-0"))
        filesystem.open_file(Path("/a/t-0") / name, create=True).write_at(b"batches", 0)
    filesystem.inject("link", code)
    assert copy_partition(filesystem, Path("/a/t-0"), Path("/b/t-0")) == Copied(0, 14)
    assert filesystem.read_bytes(Path("/b/t-0/00000000000000000000.log")) == b"batches"


def test_a_full_disk_is_an_error() -> None:
    filesystem = MemoryFilesystem()
    filesystem.make_directories(Path("/a/t-0"))
    filesystem.open_file(Path("/a/t-0/00000000000000000000.log"), create=True).write_at(b"batches", 0)
    filesystem.space_bytes = 3
    with pytest.raises(OSError, match="no space"):
        copy_partition(filesystem, Path("/a/t-0"), Path("/b/t-0"))


def test_the_copy_survives_a_power_cut_once_its_name_is_synced() -> None:
    filesystem = MemoryFilesystem()
    filesystem.make_directories(Path("/a/t-0"))
    for name in ("00000000000000000000.log", "00000000000000000007.log"):
        file = filesystem.open_file(Path("/a/t-0") / name, create=True)
        file.write_at(name.encode(), 0)
        file.sync()
    copy_partition(filesystem, Path("/a/t-0"), Path("/b/t-0"))
    for directory in ("/b", "/"):
        filesystem.sync_directory(Path(directory))
    filesystem.crash()
    for name in ("00000000000000000000.log", "00000000000000000007.log"):
        assert filesystem.read_bytes(Path("/b/t-0") / name) == name.encode()


def test_what_was_preallocated_is_not_written_again(tmp_path: Path) -> None:
    content = b"x" + bytes(3 * CHUNK_BYTES) + b"y" + bytes(5 * CHUNK_BYTES)
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(content)
    target.write_bytes(b"an older one" * CHUNK_BYTES)
    assert copy_file(OsFilesystem(), source, target) == len(content)
    assert target.read_bytes() == content
    assert target.stat().st_blocks * 512 <= 3 * CHUNK_BYTES
