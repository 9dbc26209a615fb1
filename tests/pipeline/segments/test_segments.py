"""Planning and reading of log directories that stand still."""

from __future__ import annotations

import errno
import os
import pickle
import random
import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.pipeline.errors import BadOption, DataLoss, PipelineError, PoisonedBatch, UnknownTopic
from klamm.pipeline.ranges import OffsetRange, TopicPartition
from klamm.pipeline.segments import LogDirs, Piece, read_piece, reading
from klamm.pipeline.segments.files import OpenSegment
from klamm.protocol.records.batch import Record, batches, encode_batch
from klamm.protocol.records.compression import Codec
from klamm.protocol.records.message_set import encode_set
from klamm.storage.checkpoints import format_offsets, format_partition_metadata
from klamm.storage.paths import TopicPartition as StoredPartition
from tests.pipeline.segments.building import T0, Partition, as_rows, rows, stored, whole


def filled(log_dir: Path, seed: int, count: int = 60, *, gaps: bool = True) -> Partition:
    source = random.Random(seed)
    partition = Partition(log_dir)
    for _ in range(count):
        values = [source.randbytes(source.randint(0, 60)) for _ in range(source.randint(1, 4))]
        partition.produce(values, codec=source.choice(list(Codec)))
        if gaps and source.random() < 0.2:
            partition.next_offset += source.randint(1, 5)  # as compaction leaves it
    return partition


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return filled(tmp_path, 1)


def check_pieces(pieces: list[Piece], wanted: OffsetRange) -> None:
    assert (pieces[0].start, pieces[-1].end) == (wanted.start, wanted.end)
    assert all(here.end == there.start for here, there in pairwise(pieces))
    assert all(piece.start < piece.end and piece.size_bytes >= 0 for piece in pieces)


@given(
    st.integers(0, 3),
    st.integers(0, 130),
    st.integers(0, 130),
    st.integers(1, 5000),
    st.sampled_from(["", "no", "odd"]),
)
def test_pieces_are_the_range(seed: int, start: int, end: int, piece_bytes: int, index: str) -> None:
    with tempfile.TemporaryDirectory() as log_dir:
        partition = filled(Path(log_dir), seed)
        for path in partition.directory.glob("*.index"):
            if index == "no":
                path.unlink()
            elif index == "odd":
                path.write_bytes(random.Random(seed).randbytes(100) + path.read_bytes()[:33] + bytes(80))
        logs = partition.logs()
        limit = logs.end_offset(T0)
        assert limit == partition.next_offset or limit == max(one.offset for one in stored(partition)) + 1
        wanted = OffsetRange("t", 0, min(start, limit), min(end, limit))
        pieces = logs.plan(wanted, piece_bytes)
        if wanted.count <= 0:
            assert pieces == []
            return
        check_pieces(pieces, wanted)
        assert rows(pieces) == as_rows(one for one in stored(partition) if wanted.start <= one.offset < wanted.end)


def test_small_pieces_are_many_and_large_ones_few(partition: Partition) -> None:
    logs = partition.logs()
    segments = len(list(partition.directory.glob("*.log")))
    small, large = logs.plan(whole(logs), 1), logs.plan(whole(logs), 1 << 30)
    assert len(large) == 1
    assert len(small) > segments > 3
    size = sum(path.stat().st_size for path in partition.directory.glob("*.log"))
    assert sum(piece.size_bytes for piece in small) == large[0].size_bytes == size
    middle = logs.plan(whole(logs), 3000)
    assert all(3000 <= piece.size_bytes < 4600 for piece in middle[:-1])


def test_a_piece_may_be_pickled(partition: Partition) -> None:
    logs = pickle.loads(pickle.dumps(partition.logs()))
    pieces = pickle.loads(pickle.dumps(logs.plan(whole(logs), 2000)))
    assert rows(pieces) == as_rows(stored(partition))


def test_batches_larger_than_what_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "READ_BYTES", 100)
    monkeypatch.setattr(reading, "MIN_READ_BYTES", 70)
    partition = filled(tmp_path, 2)
    partition.produce([bytes(5000)])
    partition.produce([b"x"])
    logs = partition.logs()
    assert rows(logs.plan(whole(logs), 1000)) == as_rows(stored(partition))


def test_old_formats(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    for magic in (0, 1, 0):
        for codec in (Codec.NONE, Codec.GZIP, Codec.LZ4):
            listed = [Record(partition.next_offset + i, 5, b"k", b"v%d" % i) for i in range(6)]
            partition.append(encode_set(listed[:1], magic))
            partition.append(encode_set(listed[1:], magic, codec=codec))
            partition.next_offset = listed[-1].offset + 1
    partition.produce([b"new"])
    logs = partition.logs()
    expected = as_rows(stored(partition))
    for piece_bytes in (1, 300, 10**6):
        assert rows(logs.plan(whole(logs), piece_bytes)) == expected
    for start in range(0, 55, 7):
        pieces = logs.plan(OffsetRange("t", 0, start, min(start + 10, 55)), 1)
        assert rows(pieces) == [row for row in expected if start <= row[0] < start + 10]


# content


def test_partitions_are_what_directories_are_called(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    unique = "0" * 32
    for name in ("t-1", "t-0", "x.y-z-12", f"t-3.{unique}-delete", f"t-4.{unique}-future", f"t-5.{unique}-stray"):
        (a / name).mkdir(parents=True)
    for name in ("t-2", "__consumer_offsets-0", "__cluster_metadata-0", "lost+found", "t-", "t-01"):
        (b / name).mkdir(parents=True)
    (b / "u-0").touch()
    logs = LogDirs([a, b])
    assert logs.topics() == {"t": [0, 1, 2], "x.y-z": [12]}
    assert logs.topics(internal=True) == {"__consumer_offsets": [0], "t": [0, 1, 2], "x.y-z": [12]}
    assert logs.directory(TopicPartition("t", 2)) == b / "t-2"
    with pytest.raises(UnknownTopic, match="t-3: no such partition in"):
        logs.directory(TopicPartition("t", 3))


def test_the_replicas_of_two_brokers_are_distinguished(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "t-0").mkdir(parents=True)
    with pytest.raises(BadOption, match=r"t-0 is in .* and in .*: give one broker's only"):
        LogDirs([tmp_path / "a", tmp_path / "b"]).topics()


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="nowhere is not a directory"):
        LogDirs([tmp_path / "nowhere"])
    with pytest.raises(BadOption, match="no directory"):
        LogDirs([])


def test_checkpoints_and_metadata(partition: Partition) -> None:
    logs = partition.logs()
    assert (logs.start_offset(T0), logs.high_watermark(T0), logs.topic_id(T0)) == (0, None, bytes(16))
    offsets = {StoredPartition("t", 0): 7, StoredPartition("u", 0): 3}
    (partition.log_dir / "log-start-offset-checkpoint").write_bytes(format_offsets(offsets))
    (partition.log_dir / "replication-offset-checkpoint").write_bytes(format_offsets(offsets))
    (partition.directory / "partition.metadata").write_bytes(format_partition_metadata(bytes(range(16))))
    assert (logs.start_offset(T0), logs.high_watermark(T0), logs.topic_id(T0)) == (7, 7, bytes(range(16)))
    (partition.log_dir / "log-start-offset-checkpoint").write_bytes(b"junk")
    with pytest.raises(BadOption, match=r"log-start-offset-checkpoint: version"):
        logs.start_offset(T0)


def test_a_partition_without_segments(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    logs = LogDirs([tmp_path])
    assert (logs.start_offset(T0), logs.end_offset(T0)) == (0, 0)
    assert logs.plan(OffsetRange("t", 0, 0, 0)) == []
    with pytest.raises(DataLoss, match="offset 0 is gone"):
        logs.plan(OffsetRange("t", 0, 0, 1))


@pytest.mark.parametrize("size", [1, 3000, 5000])
def test_heads_are_found_however_large_batches_are(tmp_path: Path, size: int) -> None:
    source = random.Random(size)
    partition = Partition(tmp_path, segment_bytes=10**9)
    for _ in range(300):
        partition.produce([bytes(source.choice([1, size, source.randrange(6000)]))])
    data = partition.file(".log").read_bytes()
    (segment,) = partition.logs().segments(T0)
    with OpenSegment(segment) as file:
        found = [
            (position, head) for position, head, first in file.batch_headers(0) if first[:61] == data[position:][:61]
        ]
    assert found == list(batches(data))


# the end of a directory that no broker uses


@pytest.mark.parametrize("with_index", [True, False])
@pytest.mark.parametrize("tail", ["torn", "zeros", "wrong crc", "noise", "older"])
def test_the_log_ends_before_what_is_not_valid(tmp_path: Path, tail: str, with_index: bool) -> None:
    partition = filled(tmp_path, 3)
    end = partition.logs().end_offset(T0)
    expected = as_rows(stored(partition))
    batch = bytes(encode_batch([Record(end, 0, None, bytes(100))], base_offset=end if tail != "older" else 3))
    bytes_ = {
        "torn": batch[:-1], "zeros": bytes(500), "wrong crc": batch[:-1] + b"\x07",
        "noise": random.Random(5).randbytes(400), "older": batch,
    }  # fmt: skip
    with partition.file(".log").open("ab") as log:
        log.write(bytes_[tail])
    if not with_index:
        for path in partition.directory.glob("*.index"):
            path.unlink()
    logs = partition.logs()
    assert logs.end_offset(T0) == end
    if tail == "older":  # a valid batch that contradicts the last one: it may be that one's offset that is wrong
        with pytest.raises(PoisonedBatch, match="t-0 offset 3 at position"):
            rows(logs.plan(whole(logs), 1))
    else:
        assert rows(logs.plan(whole(logs), 1)) == expected


def test_an_index_that_is_ahead_of_its_log(partition: Partition) -> None:
    with partition.file(".index").open("ab") as index:
        index.write((10**6).to_bytes(4, "big") * 2 + bytes(4096))
    assert rows(partition.logs().plan(whole(partition.logs()), 1)) == as_rows(stored(partition))


def test_a_last_segment_that_is_empty(partition: Partition) -> None:
    end = partition.logs().end_offset(T0)
    partition.next_offset = end
    partition.roll()
    assert partition.logs().end_offset(T0) == end


def test_nothing_above_the_high_watermark_of_a_clean_shutdown(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.produce([b"x"] * 3, producer=9)
    partition.produce([b"y"])
    partition.end(9, is_commit=True)
    logs = partition.logs()
    for high_watermark, stable in ((0, 0), (3, 0), (4, 0), (5, 5), (9, 5)):
        content = format_offsets({StoredPartition("t", 0): high_watermark})
        (tmp_path / "replication-offset-checkpoint").write_bytes(content)
        (tmp_path / ".kafka_cleanshutdown").unlink(missing_ok=True)
        assert (logs.end_offset(T0), logs.end_offset(T0, read_committed=False)) == (5, 5)
        (tmp_path / ".kafka_cleanshutdown").touch()
        assert logs.end_offset(T0) == stable
        assert logs.end_offset(T0, read_committed=False) == min(high_watermark, 5)


# damage


def test_a_damaged_batch_is_reported_with_file_and_position(partition: Partition) -> None:
    logs = partition.logs()
    (piece,) = logs.plan(whole(logs), 1 << 20)
    path = sorted(partition.directory.glob("*.log"))[2]
    before = [one.offset for one in stored(partition) if one.offset < int(path.stem)]
    content = bytearray(path.read_bytes())
    content[70] ^= 0xFF
    path.write_bytes(content)
    found = []
    with pytest.raises(PoisonedBatch) as raised:
        for batch in read_piece(piece):
            found += batch["offset"].to_pylist()
    assert str(raised.value).startswith(f"t-0 offset {int(path.stem)} at position 0 of {path}: its CRC is 0x")
    assert found == before


def test_a_truncated_segment_is_reported(partition: Partition) -> None:
    logs = partition.logs()
    pieces = logs.plan(whole(logs), 1 << 20)
    path = sorted(partition.directory.glob("*.log"))[1]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(PoisonedBatch, match=rf"t-0 offset \d+ at position \d+ of {path}: \d+ bytes are no whole batch"):
        rows(pieces)


def test_a_timestamp_that_is_too_large_is_reported(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.append(encode_batch([Record(0, 2**62, None, None)]))
    logs = partition.logs()
    with pytest.raises(PoisonedBatch, match="t-0: record at offset 0: timestamp"):
        rows(logs.plan(whole(logs)))


@given(st.integers(0, 2**32))
def test_damaged_directories_give_right_rows_or_an_error(seed: int) -> None:
    """The last batch keeps its base offset: no checksum covers it, and nothing that follows contradicts it."""
    source = random.Random(seed)
    with tempfile.TemporaryDirectory() as log_dir, pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "PAUSE_S", 0)
        partition = filled(Path(log_dir), seed % 3, count=30, gaps=False)
        expected = as_rows(stored(partition))
        logs = partition.logs()
        wanted = whole(logs)
        last = partition.file(".log")
        *_, (last_position, _) = batches(last.read_bytes())
        for _ in range(source.randint(1, 4)):
            path = source.choice(sorted(partition.directory.iterdir()))
            content = bytearray(path.read_bytes())
            at = source.randrange(len(content))
            if path != last or not last_position <= at < last_position + 8:
                content[at] = source.choice([0, 0x80, 0xFF, source.randrange(256)])
            path.write_bytes(content)
        try:
            found = rows(logs.plan(wanted, source.choice([1, 500, 10**6])))
        except PipelineError:
            return
        assert found == expected


def test_what_the_disk_refuses_is_one_line(partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = partition.logs()
    pieces = logs.plan(whole(logs))

    def refused(path: object = None, *_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", refused)
        with pytest.raises(PipelineError, match=f"logDirs: {partition.log_dir}: Permission denied"):
            logs.topics()
        with pytest.raises(PipelineError, match=f"t-0: {partition.directory}: Permission denied"):
            logs.end_offset(T0)
    monkeypatch.setattr(os, "preadv", broken)
    with pytest.raises(PipelineError, match="t-0: Input/output error"):
        rows(pieces)


# transactions

SCRIPT = st.lists(
    st.tuples(st.sampled_from(["data", "data", "commit", "abort", "plain", "roll"]), st.integers(1, 3)), max_size=50
)


@given(SCRIPT, st.sampled_from(["whole", "none", "some"]), st.integers(1, 900), st.data())
def test_read_committed(script: list[tuple[str, int]], index: str, piece_bytes: int, data: st.DataObject) -> None:
    """However pieces are cut, with a transaction index, without one, and with some of its entries missing."""
    with tempfile.TemporaryDirectory() as log_dir:
        partition = Partition(Path(log_dir), segment_bytes=600)
        visible: list[int] = []
        pending: dict[int, list[int]] = {}
        for number, (what, producer) in enumerate(script):
            offset = partition.next_offset
            if what == "data":
                partition.produce([b"x"], producer=producer)
                pending.setdefault(producer, []).append(offset)
            elif what == "plain":
                partition.produce([b"x"])
                visible.append(offset)
            elif what == "roll":
                if offset > partition._base >= 0:
                    partition.roll()
            else:
                indexed = index == "whole" or (index == "some" and number % 2 == 0)
                partition.end(producer, is_commit=what == "commit", indexed=indexed)
                done = pending.pop(producer, [])
                visible += done if what == "commit" else []
        if partition._base < 0:
            return
        logs = partition.logs()
        stable = min((offsets[0] for offsets in pending.values()), default=partition.next_offset)
        assert logs.end_offset(T0) == stable
        assert logs.end_offset(T0, read_committed=False) == partition.next_offset
        start = data.draw(st.integers(0, stable))
        pieces = logs.plan(OffsetRange("t", 0, start, stable), piece_bytes)
        assert [row[0] for row in rows(pieces)] == sorted(at for at in visible if start <= at < stable)
        dirty = logs.plan(OffsetRange("t", 0, start, partition.next_offset), piece_bytes)
        everything = sorted([*visible, *(one.offset for one in stored(partition))])
        assert [r[0] for r in rows(dirty, read_committed=False)] == sorted({at for at in everything if at >= start})


def test_beyond_the_last_stable_offset_read_committed_is_refused(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.produce([b"x"], producer=9)
    with pytest.raises(PipelineError, match="t-0: the transaction of producer 9 at offset 0 is open"):
        rows(partition.logs().plan(OffsetRange("t", 0, 0, 1)))


def test_a_producer_snapshot_shortens_the_search(tmp_path: Path) -> None:
    from klamm.storage.log.producer_state_entry import ProducerStateEntry, format_snapshot

    partition = Partition(tmp_path)
    partition.produce([b"x"] * 3, producer=9)
    partition.produce([b"x"] * 3)
    known = ProducerStateEntry(9, 0)
    known.first_transaction_offset = 2  # not what the batches say, so that it shows where the answer is from
    (partition.directory / f"{3:020d}.snapshot").write_bytes(format_snapshot([known]))
    (partition.directory / f"{99:020d}.snapshot").write_bytes(b"of another time")
    assert partition.logs().end_offset(T0) == 2
    (partition.directory / f"{4:020d}.snapshot").write_bytes(b"damaged")
    assert partition.logs().end_offset(T0) == 2
    partition.end(9, is_commit=True)
    assert partition.logs().end_offset(T0) == 7


# what changes before a piece is read


def test_what_retention_deleted_is_data_loss(partition: Partition) -> None:
    logs = partition.logs()
    pieces = logs.plan(whole(logs), 2000)
    first, second, *_ = sorted(partition.directory.glob("*.log"))
    first.unlink()
    start = int(second.stem)
    with pytest.raises(DataLoss, match=f"t-0: offset 0 is gone, the log starts at {start} now"):
        rows(pieces)
    assert rows(pieces, fail_on_data_loss=False) == as_rows(stored(partition))
    with pytest.raises(DataLoss, match=f"t-0: offset 0 is gone, the log starts at {start}"):
        logs.plan(OffsetRange("t", 0, 0, 30))


def test_a_recreated_topic_is_not_the_one_that_was_planned(partition: Partition) -> None:
    (partition.directory / "partition.metadata").write_bytes(format_partition_metadata(bytes(range(16))))
    logs = partition.logs()
    (piece,) = logs.plan(replace(whole(logs), topic_id=logs.topic_id(T0)))
    assert len(rows([piece])) > 0
    (partition.directory / "partition.metadata").write_bytes(format_partition_metadata(bytes(reversed(range(16)))))
    with pytest.raises(DataLoss, match="deleted and created again"):
        rows([piece])


def test_a_log_that_lost_its_end(partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PAUSE_S", 0)
    logs = partition.logs()
    pieces = logs.plan(whole(logs))
    end = int(partition.file(".log").stem)
    partition.file(".log").write_bytes(b"")
    with pytest.raises(DataLoss, match=f"offset {end} is gone, the log ends there, before {pieces[-1].end}"):
        rows(pieces)
