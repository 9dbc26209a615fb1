"""The promises of the filesystem seam, held against the real one and its twin in memory."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from klamm.storage.filesystem import (
    Entry,
    Filesystem,
    OsFilesystem,
    is_transient,
    make_durable_directory,
    replace_file,
    unlink_if_exists,
)
from tests.support.memory_filesystem import Crash, MemoryFilesystem


class FilesystemContract:
    """The contract of every implementation."""

    @pytest.fixture
    def filesystem(self) -> Filesystem:
        raise NotImplementedError

    @pytest.fixture
    def root(self) -> Path:
        raise NotImplementedError

    def test_bytes_are_read_where_they_were_written(self, filesystem: Filesystem, root: Path) -> None:
        file = filesystem.open_file(root / "f", create=True)
        file.write_at(b"hello", 0)
        file.write_at(bytearray(b"J"), 0)
        file.write_at(memoryview(b"world!"), 7)
        assert file.read_at(100, 0) == b"Jello\0\0world!"
        assert file.read_at(3, 7) == b"wor"
        assert file.read_at(3, 13) == b""
        assert file.size() == 13
        assert filesystem.read_bytes(root / "f") == b"Jello\0\0world!"
        assert bytes(filesystem.map_file(root / "f")) == b"Jello\0\0world!"
        assert os.pread(file.fileno(), 5, 0) == b"Jello"

    def test_truncate_cuts_and_extends_with_zeros(self, filesystem: Filesystem, root: Path) -> None:
        file = filesystem.open_file(root / "f", create=True)
        file.write_at(b"hello", 0)
        file.truncate(2)
        file.truncate(4)
        assert file.read_at(10, 0) == b"he\0\0"

    def test_holes_are_not_in_the_data_ranges(self, filesystem: Filesystem, root: Path) -> None:
        file = filesystem.open_file(root / "f", create=True)
        assert file.data_ranges(0, 100) == []
        file.allocate(1 << 20)
        assert file.data_ranges(0, 1 << 20) == file.data_ranges(5000, 6000) == []
        file.write_at(b"x" * 10_000, 300_000)
        file.write_at(b"y", 0)
        (first, second) = file.data_ranges(0, 1 << 20)
        assert first[0] == 0 < first[1] < second[0] <= 300_000
        assert 310_000 <= second[1] < 400_000
        assert file.data_ranges(301_000, 302_000) == [(301_000, 302_000)]
        assert file.data_ranges(second[1], 2 << 20) == []

    def test_an_empty_file_maps_to_nothing(self, filesystem: Filesystem, root: Path) -> None:
        filesystem.open_file(root / "f", create=True)
        assert len(filesystem.map_file(root / "f")) == 0

    def test_missing_files_are_errors(self, filesystem: Filesystem, root: Path) -> None:
        for call in (
            filesystem.open_file,
            filesystem.open_read,
            filesystem.read_bytes,
            filesystem.map_file,
            filesystem.unlink,
        ):
            with pytest.raises(FileNotFoundError):
                call(root / "missing")
        with pytest.raises(FileNotFoundError):
            filesystem.open_file(root / "no" / "f", create=True)
        with pytest.raises(FileNotFoundError):
            filesystem.rename(root / "missing", root / "other")
        with pytest.raises(FileNotFoundError):
            filesystem.list_directory(root / "missing")
        assert not unlink_if_exists(filesystem, root / "missing")

    def test_open_without_create_keeps_the_content(self, filesystem: Filesystem, root: Path) -> None:
        filesystem.open_file(root / "f", create=True).write_at(b"x", 0)
        assert filesystem.open_file(root / "f", create=True).size() == 1
        assert filesystem.open_read(root / "f").read_at(1, 0) == b"x"

    def test_directories(self, filesystem: Filesystem, root: Path) -> None:
        make_durable_directory(filesystem, root / "a" / "b")
        filesystem.make_directories(root / "a" / "b")
        filesystem.open_file(root / "a" / "f", create=True).write_at(b"123", 0)
        found = {entry.name: (entry.is_directory, entry.size_bytes) for entry in filesystem.list_directory(root / "a")}
        assert found["f"] == (False, 3)
        assert found["b"][0]
        assert isinstance(filesystem.list_directory(root / "a")[0], Entry)
        with pytest.raises(OSError, match=r"not empty|Directory not empty"):
            filesystem.remove_directory(root / "a")
        filesystem.remove_directory(root / "a" / "b")
        filesystem.unlink(root / "a" / "f")
        filesystem.remove_directory(root / "a")
        assert not filesystem.exists(root / "a")

    def test_a_link_is_a_second_name_of_the_same_file(self, filesystem: Filesystem, root: Path) -> None:
        replace_file(filesystem, root / "a", b"one")
        filesystem.hard_link(root / "a", root / "b")
        filesystem.open_file(root / "a").write_at(b"ONE", 0)
        filesystem.unlink(root / "a")
        assert filesystem.read_bytes(root / "b") == b"ONE"
        replace_file(filesystem, root / "c", b"three")
        with pytest.raises(FileExistsError):
            filesystem.hard_link(root / "c", root / "b")
        with pytest.raises(FileNotFoundError):
            filesystem.hard_link(root / "missing", root / "d")

    def test_rename_replaces(self, filesystem: Filesystem, root: Path) -> None:
        for name in ("a", "b"):
            filesystem.open_file(root / name, create=True).write_at(name.encode(), 0)
        filesystem.rename(root / "a", root / "b")
        assert filesystem.read_bytes(root / "b") == b"a"
        assert not filesystem.exists(root / "a")
        filesystem.make_directories(root / "d")
        filesystem.rename(root / "d", root / "e")
        assert filesystem.exists(root / "e")

    def test_an_open_file_outlives_its_name(self, filesystem: Filesystem, root: Path) -> None:
        file = filesystem.open_file(root / "f", create=True)
        file.write_at(b"still here", 0)
        filesystem.unlink(root / "f")
        assert file.read_at(10, 0) == b"still here"

    def test_replace_file(self, filesystem: Filesystem, root: Path) -> None:
        replace_file(filesystem, root / "f", b"a longer content")
        replace_file(filesystem, root / "f", b"short")
        assert filesystem.read_bytes(root / "f") == b"short"
        assert [entry.name for entry in filesystem.list_directory(root)] == ["f"]

    def test_syncs_are_accepted(self, filesystem: Filesystem, root: Path) -> None:
        filesystem.open_file(root / "f", create=True).sync()
        filesystem.sync_directory(root)


class TestOsFilesystem(FilesystemContract):
    @pytest.fixture
    def filesystem(self) -> Filesystem:
        return OsFilesystem()

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return tmp_path

    def test_descriptors_close_with_the_last_reference(self, tmp_path: Path) -> None:
        filesystem = OsFilesystem()
        file = filesystem.open_file(tmp_path / "f", create=True)
        holder, fd = file, file.fileno()
        del file
        os.fstat(fd)
        del holder
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


class TestMemoryFilesystem(FilesystemContract):
    @pytest.fixture
    def filesystem(self) -> Filesystem:
        return MemoryFilesystem()

    @pytest.fixture
    def root(self, filesystem: Filesystem) -> Path:
        filesystem.make_directories(Path("/root"))
        return Path("/root")


ROOT = Path("/root")


@pytest.fixture
def memory() -> MemoryFilesystem:
    filesystem = MemoryFilesystem()
    make_durable_directory(filesystem, ROOT)
    return filesystem


def test_a_crash_forgets_bytes_names_and_renames_that_were_not_synced(memory: MemoryFilesystem) -> None:
    replace_file(memory, ROOT / "f", b"old")
    file = memory.open_file(ROOT / "f")
    file.write_at(b"new", 0)
    memory.open_file(ROOT / "unsynced name", create=True).sync()
    memory.rename(ROOT / "f", ROOT / "g")
    memory.crash()
    assert {entry.name for entry in memory.list_directory(ROOT)} == {"f"}
    assert memory.read_bytes(ROOT / "f") == b"old"
    with pytest.raises(OSError, match="before the crash"):
        file.read_at(1, 0)


def test_a_crash_brings_back_what_was_unlinked(memory: MemoryFilesystem) -> None:
    replace_file(memory, ROOT / "f", b"content")
    memory.unlink(ROOT / "f")
    memory.crash()
    assert memory.read_bytes(ROOT / "f") == b"content"


def test_a_kill_keeps_everything_but_locks(memory: MemoryFilesystem) -> None:
    memory.lock_file(ROOT / "lock")
    memory.open_file(ROOT / "f", create=True).write_at(b"x", 0)
    with pytest.raises(BlockingIOError):
        memory.lock_file(ROOT / "lock")
    memory.kill()
    assert memory.read_bytes(ROOT / "f") == b"x"
    memory.lock_file(ROOT / "lock").release()
    memory.lock_file(ROOT / "lock")


def test_a_random_crash_tears_writes_and_keeps_what_was_synced(memory: MemoryFilesystem) -> None:
    outcomes = set()
    for seed in range(40):
        replace_file(memory, ROOT / "f", b"s" * 2048)
        memory.open_file(ROOT / "f").write_at(b"u" * 2048, 2048)
        memory.crash(random.Random(seed))
        data = memory.read_bytes(ROOT / "f")
        assert data[:2048] == b"s" * 2048
        outcomes.add(data[2048:])
    assert {b"", b"u" * 2048} < outcomes
    assert any(b"\0" in outcome for outcome in outcomes)


def test_faults(memory: MemoryFilesystem) -> None:
    memory.space_bytes = 5
    file = memory.open_file(ROOT / "f", create=True)
    with pytest.raises(OSError, match="no space") as raised:
        file.write_at(b"1234567", 0)
    assert is_transient(raised.value)
    assert file.read_at(10, 0) == b"12345"
    memory.inject("sync", errno.EIO, "f", skip=1, times=1)
    file.sync()
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.sync()
    assert memory.syncs == 2
    memory.crash_after(1)
    file.sync()
    with pytest.raises(Crash):
        file.sync()
