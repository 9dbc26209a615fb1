"""Directories that change while they are planned and read: at no step is anything missing or doubled."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.pipeline.errors import DataLoss, UnknownTopic
from klamm.pipeline.ranges import OffsetRange
from klamm.pipeline.segments import LogDirs, files, read_piece, reading, retries
from klamm.protocol.records.batch import Record, encode_batch
from klamm.storage.filesystem import OsFilesystem
from klamm.storage.log.swap_manifest import SwapManifest, announce, carry_out
from klamm.storage.paths import SEGMENT_SUFFIXES, offset_file
from tests.pipeline.segments.building import T0, Partition, Row, rows, stored, whole

Latest = dict[bytes | None, tuple[int, bytes | None]]


@pytest.fixture(autouse=True)
def small_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make reads so small that a piece takes many."""
    monkeypatch.setattr(reading, "READ_BYTES", 300)
    monkeypatch.setattr(reading, "MIN_READ_BYTES", 300)
    monkeypatch.setattr(retries, "PAUSE_S", 0)


def latest(found: list[Row]) -> Latest:
    offsets = [row[0] for row in found]
    assert offsets == sorted(set(offsets)), "an offset came twice, or late"
    return {key: (offset, value) for offset, key, value in found}


class Readers:
    """Readers of a directory: at every step another one starts, and the others read a little."""

    def __init__(self, partition: Partition) -> None:
        self._logs = partition.logs()
        self._wanted = whole(self._logs)
        self.expected = latest(rows(self._logs.plan(self._wanted)))
        self._planned = [self._logs.plan(self._wanted, size) for size in (1, 700, 1 << 20)]
        self._running: list[tuple[list[Row], Iterator[list[Row]]]] = []
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        assert latest(rows(self._logs.plan(self._wanted, 1))) == self.expected
        for pieces in self._planned:
            assert latest(rows(pieces)) == self.expected
        self._running.append(([], self._reading(self._planned[self.steps % 3])))
        for found, running in self._running:
            found += next(running, [])

    def finish(self) -> None:
        for found, running in self._running:
            for part in running:
                found += part
            assert latest(found) == self.expected

    @staticmethod
    def _reading(pieces: list[Any]) -> Iterator[list[Row]]:
        for piece in pieces:
            for batch in read_piece(piece):
                yield list(zip(*(batch[name].to_pylist() for name in ("offset", "key", "value")), strict=True))


class Watched(OsFilesystem):
    """Tells after each change of a name."""

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__()
        self._changed = changed

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        self._changed()

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self._changed()


def compacted(log_dir: Path) -> tuple[Partition, list[int]]:
    """Some segments, and beside the first its successor, `.cleaned`. The base offsets of those it stands for."""
    source = random.Random(4)
    partition = Partition(log_dir, segment_bytes=1000, keys=60)
    for _ in range(60):
        partition.produce([source.randbytes(20) for _ in range(source.randint(1, 3))])
    bases = sorted(int(path.stem) for path in partition.directory.glob("*.log"))
    sources, end = bases[1:4], bases[4]
    assert len(bases) > 6
    kept = {row.key: row for row in stored(partition) if row.offset >= sources[0] and row.offset < end}
    with partition.file(".log.cleaned", sources[0]).open("wb") as log:
        for row in sorted(kept.values()):
            log.write(encode_batch([row], base_offset=row.offset))
    partition.file(".index.cleaned", sources[0]).touch()
    newest = {row.key: row.offset for row in stored(partition)}
    assert any(row.offset == newest[key] for key, row in kept.items()), "some of the latest values are in there"
    assert len(kept) < end - sources[0]
    return partition, sources


def test_at_every_step_of_a_swap(tmp_path: Path) -> None:
    partition, sources = compacted(tmp_path)
    readers = Readers(partition)
    filesystem = Watched(readers.step)
    swap = SwapManifest(sources[0], tuple(sources))
    announce(filesystem, partition.directory, swap)
    for path in carry_out(filesystem, partition.directory, swap):
        filesystem.unlink(path)
    readers.finish()
    assert readers.steps > 12
    assert not partition.file(".log", sources[1]).exists()


def test_at_every_step_of_a_swap_by_kafka(tmp_path: Path) -> None:
    """All files of a segment, the lowest first, before those of the next; the old first one, too, goes `.deleted`."""
    partition, sources = compacted(tmp_path)
    readers = Readers(partition)

    def renamed(offset: int, old: str, new: str) -> None:
        for suffix in SEGMENT_SUFFIXES:
            path = offset_file(partition.directory, offset, suffix + old)
            if path.exists():
                path.rename(offset_file(partition.directory, offset, suffix + new))
                readers.step()

    renamed(sources[0], ".cleaned", ".swap")
    for offset in sources:
        renamed(offset, "", ".deleted")
    renamed(sources[0], ".swap", "")
    for path in partition.directory.glob("*.deleted"):
        path.unlink()
        readers.step()
    readers.finish()
    assert readers.steps > 12


def test_at_every_step_of_a_split(tmp_path: Path) -> None:
    partition = Partition(tmp_path, segment_bytes=1000)
    for _ in range(30):
        partition.produce([b"x" * 30])
    bases = sorted(int(path.stem) for path in partition.directory.glob("*.log"))
    base, after = bases[1], bases[2]
    half = (base + after) // 2
    listed = [row for row in stored(partition) if base <= row.offset < after]
    for target, part in (
        (base, [r for r in listed if r.offset < half]),
        (half, [r for r in listed if r.offset >= half]),
    ):
        content = b"".join(encode_batch([row], base_offset=row.offset) for row in part)
        partition.file(".log.cleaned", target).write_bytes(content)
    readers = Readers(partition)
    swap = SwapManifest(base, (base,), (half,))
    announce(Watched(readers.step), partition.directory, swap)
    carry_out(Watched(readers.step), partition.directory, swap)
    readers.finish()
    assert partition.file(".log", half).exists()


def test_appends_and_rolls_while_a_piece_is_read(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    for _ in range(10):
        partition.produce([bytes(50)])
    logs = partition.logs()
    expected = rows(logs.plan(whole(logs)))
    (piece,) = logs.plan(whole(logs))
    found: list[Row] = []
    for batch in read_piece(piece):
        found += zip(*(batch[name].to_pylist() for name in ("offset", "key", "value")), strict=True)
        for _ in range(3):
            partition.produce([bytes(50)])
    assert found == expected


def test_the_last_segment_is_rolled_after_its_end_was_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches appended between must not be passed over for the new segment."""
    partition = Partition(tmp_path, segment_bytes=10**6)
    for _ in range(4):
        partition.produce([b"old"])
    logs = partition.logs()
    (piece,) = logs.plan(OffsetRange("t", 0, 0, 12))  # of which the last 8 come in the nick of time

    def append_and_roll(*_: object) -> Any:
        monkeypatch.setattr(LogDirs, "segments", listing)
        for _ in range(4):
            partition.produce([b"old"])
        partition.roll()
        for _ in range(4):
            partition.produce([b"new"])
        return logs.segments(T0)

    listing = LogDirs.segments
    batches = read_piece(piece)
    monkeypatch.setattr(reading, "READ_BYTES", 10**6)
    monkeypatch.setattr(reading, "MIN_READ_BYTES", 10**6)
    first = next(batches)
    assert first.num_rows == 4
    monkeypatch.setattr(LogDirs, "segments", append_and_roll)
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(range(4, 12))


def test_a_segment_that_is_deleted_while_it_is_read(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    for _ in range(40):
        partition.produce([bytes(50)])
    logs = partition.logs()
    (piece,) = logs.plan(whole(logs))
    _, second, *_ = (int(path.stem) for path in sorted(partition.directory.glob("*.log")))
    found: list[int] = []
    for batch in read_piece(piece, fail_on_data_loss=False):
        found += batch["offset"].to_pylist()
        for path in sorted(partition.directory.glob("*.log"))[:-1]:
            path.unlink()
    last = int(partition.file(".log").stem)
    assert found == [*range(second), *range(last, piece.end)], "the file that was open is read to its end"


def test_a_partition_that_moves_to_another_log_directory(tmp_path: Path) -> None:
    here, there = tmp_path / "a", tmp_path / "b"
    there.mkdir()
    partition = Partition(here)
    for _ in range(40):
        partition.produce([bytes(50)])
    logs = LogDirs([here, there])
    expected = rows(logs.plan(whole(logs)))
    (piece,) = logs.plan(whole(logs))
    found: list[Row] = []
    for batch in read_piece(piece):
        found += zip(*(batch[name].to_pylist() for name in ("offset", "key", "value")), strict=True)
        if partition.directory.exists():
            partition.directory.rename(there / "t-0")
    assert found == expected
    (there / "t-0").rename(there / f"t-0.{'0' * 32}-delete")
    with pytest.raises(UnknownTopic, match="t-0: no such partition"):
        rows([piece])


def test_a_directory_that_never_stands_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = Partition(tmp_path)
    partition.produce([b"x"])
    names = iter(range(10**6))
    monkeypatch.setattr(files, "_names", lambda _: frozenset([f"{next(names)}.log"]))
    with pytest.raises(DataLoss, match="changes all the time"):
        partition.logs().end_offset(T0)


ACTIONS = st.lists(
    st.sampled_from(["append", "append", "roll", "delete", "start", "read", "read", "read"]), max_size=80
)


@given(ACTIONS, st.integers(1, 2000))
def test_a_busy_topic_with_deletions(actions: list[str], piece_bytes: int) -> None:
    """Each reader gets all records of its range, or an error with the offset from which they are gone."""
    with tempfile.TemporaryDirectory() as log_dir:
        partition = Partition(Path(log_dir), segment_bytes=400)
        partition.produce([b"first"])
        everything: dict[int, Record] = {}
        readers: list[tuple[OffsetRange, list[int], Iterator[Any]]] = []
        for action in actions:
            if action == "append":
                partition.produce([b"x" * 40] * 2)
            elif action == "roll":
                partition.roll() if not partition.file(".log", partition.next_offset).exists() else None
            elif action == "delete":
                for path in sorted(partition.directory.glob("*.log"))[:-1][:1]:
                    path.rename(path.with_suffix(".log.deleted"))
            elif action == "start":
                logs = partition.logs()
                wanted = OffsetRange("t", 0, logs.start_offset(T0), partition.next_offset)
                pieces = logs.plan(wanted, piece_bytes)
                readers.append((wanted, [], (batch for piece in pieces for batch in read_piece(piece))))
            everything |= {row.offset: row for row in stored(partition)}
            for wanted, found, batches in readers:
                try:
                    batch = next(batches, None)
                except DataLoss as error:
                    at = found[-1] + 1 if found else wanted.start
                    assert str(error).startswith(f"t-0: offset {at} is gone, the log starts at ")
                    assert at < partition.logs().start_offset(T0)
                    found += range(at, wanted.end)  # it is done
                    continue
                found += batch["offset"].to_pylist() if batch is not None else []
        for wanted, found, batches in readers:
            try:
                for batch in batches:
                    found += batch["offset"].to_pylist()
            except DataLoss:
                found += range(found[-1] + 1 if found else wanted.start, wanted.end)
            assert found == [offset for offset in sorted(everything) if wanted.start <= offset < wanted.end]
