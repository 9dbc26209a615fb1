"""Logs with messages of the formats 0 and 1, as a directory of Kafka before 0.11 has them, bytes made by hand.

`test_old_kafka.py` has logs that an old Kafka itself wrote.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.protocol.errors import UnsupportedForMessageFormat
from klamm.protocol.records.batch import BatchHeader, Record, batches, crc_is_valid, encode_batch, records
from klamm.protocol.records.compression import Codec
from klamm.protocol.records.message_set import encode_message, encode_set
from klamm.storage import paths
from klamm.storage.compaction.cleanable import cleanable, make_job
from klamm.storage.compaction.cleaner import Cleaner
from klamm.storage.log import retention
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log.segment import Segment
from tests.storage.batches import DIRECTORY, all_offsets, all_records, batch, fill, open_log, read_bytes
from tests.support.manual_clock import START_MS, ManualClock
from tests.support.memory_filesystem import MemoryFilesystem

CONFIG = LogConfig(index_interval_bytes=200, compacted=True)  # there are gaps
OLD_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)

MESSAGE_0 = bytes.fromhex(
    "0000000000000007"  # offset 7
    "00000010"  # size 16
    "1fecd70a"  # crc-32 of what follows
    "00"  # magic 0
    "00"  # attributes: no codec
    "00000001"  # key size
    "6b"
    "00000001"  # value size
    "76"
)
MESSAGE_1 = bytes.fromhex(
    "0000000000000008"  # offset 8
    "00000017"  # size 23
    "94b83fca"  # crc-32 of what follows
    "01"  # magic 1
    "08"  # attributes: LogAppendTime
    "0000018bcfe56800"  # timestamp 1_700_000_000_000
    "00000001"  # key size
    "6b"
    "ffffffff"  # no value
)


@dataclass
class Entry:
    """One message, or a wrapper with several in it, and the records to be read from it."""

    data: bytes
    records: list[Record]
    magic: int

    @property
    def last_offset(self) -> int:
        return self.records[-1].offset


@dataclass
class OldLog:
    """A partition directory that is written by hand, entry after entry."""

    rng: random.Random
    entries: list[Entry] = field(default_factory=list)
    next_offset: int = 0

    def add(self, magic: int, codec: Codec, count: int, *, gap: int = 0, append_time: bool = False) -> None:
        offset = self.next_offset + gap
        made = []
        for _ in range(count):
            time = START_MS + self.rng.randrange(60) if magic else -1
            made.append(Record(offset, time, b"key-%d" % self.rng.randrange(9), b"v" * self.rng.randrange(60)))
            offset += 1 + (self.rng.randrange(3) if gap else 0)
        if append_time and magic:
            made = [record._replace(timestamp=made[0].timestamp) for record in made]
        if magic == 2:
            data: bytes = bytes(encode_batch(made, codec=codec, base_offset=made[0].offset, leader_epoch=4))
        else:
            data = encode_set(made, magic, codec=codec, log_append_time=append_time)
        if magic < 2 and codec == Codec.NONE:
            for record in made:
                one = encode_set([record], magic, log_append_time=append_time)
                self.entries.append(Entry(one, [record], magic))
        else:
            self.entries.append(Entry(data, made, magic))
        self.next_offset = made[-1].offset + 1

    def write(self, filesystem: MemoryFilesystem, *, segment_entries: int = 1000) -> None:
        filesystem.make_directories(DIRECTORY)
        for first in range(0, len(self.entries), segment_entries):
            part = self.entries[first : first + segment_entries]
            base_offset = part[0].records[0].offset if first else 0
            path = paths.offset_file(DIRECTORY, base_offset, paths.LOG_SUFFIX)
            filesystem.open_file(path, create=True).write_at(b"".join(entry.data for entry in part), 0)

    @property
    def records(self) -> list[tuple[int, int]]:
        return [(record.offset, record.timestamp) for entry in self.entries for record in entry.records]


def random_log(seed: int, *, magics: tuple[int, ...] = (0, 1, 2), steps: int = 12) -> OldLog:
    rng = random.Random(seed)
    log = OldLog(rng)
    for magic in sorted(rng.choice(magics) for _ in range(steps)):
        codec = rng.choice(OLD_CODECS)
        log.add(magic, codec, rng.randrange(1, 6), gap=rng.choice([0, 0, 1, 5]), append_time=rng.random() < 0.3)
    return log


def old_log(magic: int, count: int = 20, codec: Codec = Codec.NONE) -> tuple[OldLog, MemoryFilesystem]:
    made = OldLog(random.Random(1))
    for _ in range(count):
        made.add(magic, codec, 3 if codec else 1)
    filesystem = MemoryFilesystem()
    made.write(filesystem)
    return made, filesystem


def check_reads(log: Log, made: OldLog) -> None:
    """Check that a fetch of any offset gets the entry that holds it or follows it, as it is stored."""
    start = 0
    for index, entry in enumerate(made.entries):
        for offset in range(start, entry.last_offset + 1):
            if offset >= log.log_start_offset:
                rest = b"".join(later.data for later in made.entries[index:])
                assert rest.startswith(read_bytes(log, offset))
                assert read_bytes(log, offset).startswith(entry.data)
        start = entry.last_offset + 1


def test_golden_bytes() -> None:
    assert encode_message(0, 7, -1, b"k", b"v") == MESSAGE_0
    assert encode_message(1, 8, 1_700_000_000_000, b"k", None, 8) == MESSAGE_1
    data = MESSAGE_0 + MESSAGE_1
    (_, first), (_, second) = batches(data)
    assert (first.base_offset, first.last_offset, first.magic, first.max_timestamp) == (7, 7, 0, -1)
    assert (second.base_offset, second.magic, second.max_timestamp, second.is_log_append_time) == (
        8, 1, 1_700_000_000_000, True,
    )  # fmt: skip
    assert crc_is_valid(data, first)
    assert crc_is_valid(data, second, first.size_bytes)
    assert not crc_is_valid(data[:-1] + b"\1", second, first.size_bytes)


@given(seed=st.integers(0, 2**32), clean=st.booleans(), segment_entries=st.sampled_from([3, 1000]))
def test_any_mixture_is_read_and_searched(seed: int, clean: bool, segment_entries: int) -> None:
    made = random_log(seed)
    filesystem = MemoryFilesystem()
    made.write(filesystem, segment_entries=segment_entries)
    log = open_log(filesystem, config=CONFIG, clean=clean)
    assert log.log_end_offset == made.next_offset
    check_reads(log, made)
    assert all_records(log) == made.records
    for start in (0, made.next_offset // 2):
        log.advance_log_start(start)
        visible = [(offset, time) for offset, time in made.records if offset >= start]
        largest = max((time for _, time in visible), default=-1)
        if largest < 0:
            continue
        for timestamp in range(START_MS - 1, largest + 1, 7):
            expected = next((time, offset) for offset, time in visible if time >= timestamp)
            found = log.timestamp_search(timestamp).run()
            assert found is not None
            assert found[:2] == expected
        found = log.timestamp_search(None).run()
        assert found is not None
        assert found[:2] == (largest, next(offset for offset, time in visible if time == largest))


@given(seed=st.integers(0, 2**32), share=st.integers(0, 100))
def test_truncated_they_go_on_with_new_batches(seed: int, share: int) -> None:
    made = random_log(seed)
    filesystem = MemoryFilesystem()
    made.write(filesystem)
    log = open_log(filesystem, config=CONFIG)
    offset = made.next_offset * share // 100
    log.truncate_to(offset)
    left = [entry for entry in made.entries if entry.last_offset < offset]
    expected = [(record.offset, record.timestamp) for entry in left for record in entry.records]
    assert all_records(log) == expected
    end = log.log_end_offset
    assert end == (left[-1].last_offset + 1 if left else 0)
    for clean in (True, False):
        log.append_as_leader(batch(START_MS + 99), leader_epoch=7)
        expected.append((log.log_end_offset - 1, START_MS + 99))
        assert log.leader_epochs.latest == 7
        log.close()
        log = open_log(filesystem, config=CONFIG, clean=clean)
        assert all_records(log) == expected
        assert log.timestamp_search(START_MS + 99).run() == (START_MS + 99, end, 7)


@given(seed=st.integers(0, 2**32), cut=st.integers(8, 40), data=st.data())
def test_torn_tails_are_cut(seed: int, cut: int, data: st.DataObject) -> None:
    made = random_log(seed)
    filesystem = MemoryFilesystem()
    made.write(filesystem)
    file = filesystem.open_file(paths.offset_file(DIRECTORY, 0, paths.LOG_SUFFIX))
    last = made.entries[-1]
    file.truncate(file.size() - min(cut, len(last.data)))
    if data.draw(st.booleans()):  # as Kafka's preallocation leaves it
        file.truncate(file.size() + 100_000)
    log = open_log(filesystem, config=CONFIG, power_loss=data.draw(st.booleans()))
    assert log.log_end_offset == (made.entries[-2].last_offset + 1 if len(made.entries) > 1 else 0)
    made.entries.pop()
    check_reads(log, made)


@pytest.mark.parametrize("magic", [0, 1])
def test_damage_in_the_middle_is_found_and_never_cut(magic: int) -> None:
    from klamm.storage.recovery.loader import LogDamaged

    made, filesystem = old_log(magic)
    path = paths.offset_file(DIRECTORY, 0, paths.LOG_SUFFIX)
    filesystem.open_file(path).write_at(b"\x55", len(made.entries[0].data) + 20)
    before = filesystem.read_bytes(path)
    with pytest.raises(LogDamaged, match=r"wrong CRC; a good batch follows"):
        open_log(filesystem, config=CONFIG)
    assert filesystem.read_bytes(path) == before


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_a_search_by_time_in_format_0_is_unsupported(codec: Codec) -> None:  # row 70
    made, filesystem = old_log(0, codec=codec)
    for clean in (False, True):
        log = open_log(filesystem, config=CONFIG, clean=clean)
        for timestamp in (None, 0, START_MS):
            with pytest.raises(UnsupportedForMessageFormat):
                log.timestamp_search(timestamp).run()
        log.roll()  # an empty segment after it does not change that
        with pytest.raises(UnsupportedForMessageFormat):
            log.timestamp_search(0).run()
        log.close()
    log = open_log(filesystem, config=CONFIG, clean=True)
    log.append_as_leader(batch(START_MS), leader_epoch=0)
    assert log.timestamp_search(0).run() == (START_MS, made.next_offset, 0)
    assert log.timestamp_search(START_MS + 1).run() is None
    assert log.timestamp_search(None).run() == (START_MS, made.next_offset, 0)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_indexes_are_the_same_however_they_are_made(magic: int, codec: Codec) -> None:
    """Start without any index (Kafka 0.8 and 0.9 had no time index), and again after a kill."""
    made, filesystem = old_log(magic, 60, codec)
    open_log(filesystem, config=CONFIG, clean=True).close()
    names = [paths.offset_file(DIRECTORY, 0, suffix) for suffix in (paths.INDEX_SUFFIX, paths.TIME_INDEX_SUFFIX)]
    first = [filesystem.read_bytes(path) for path in names]
    log = open_log(filesystem, config=CONFIG)
    log.close()
    assert [filesystem.read_bytes(path) for path in names] == first
    offsets = [relative for relative, _ in struct.iter_unpack(">ii", first[0])]
    assert offsets
    assert set(offsets) <= {entry.last_offset for entry in made.entries}
    times = list(struct.iter_unpack(">qi", first[1]))
    if magic == 0:
        assert times == []
    else:
        largest = max(time for _, time in made.records)
        assert times[-1] == (largest, next(e.last_offset for e in made.entries if largest in [r[1] for r in e.records]))


def test_epochs_are_forgotten_when_messages_without_them_follow() -> None:
    made = OldLog(random.Random(3))
    made.add(2, Codec.NONE, 2)
    made.add(1, Codec.NONE, 2)
    filesystem = MemoryFilesystem()
    made.write(filesystem)
    log = open_log(filesystem, config=CONFIG)
    assert list(log.leader_epochs) == []
    log.append_as_leader(batch(), leader_epoch=6)
    assert list(log.leader_epochs) == [(6, 4)]
    log.close()
    filesystem.unlink(DIRECTORY / paths.LEADER_EPOCH_CHECKPOINT)
    assert list(open_log(filesystem, config=CONFIG, clean=True).leader_epochs) == [(6, 4)]


@pytest.mark.parametrize("magic", [0, 1])
def test_retention_is_by_timestamp_and_without_one_by_when_the_file_was_written(magic: int) -> None:
    clock = ManualClock()
    made = OldLog(random.Random(4))
    for _ in range(12):
        made.add(magic, Codec.NONE, 1)
    filesystem = MemoryFilesystem(clock.wall_ms)
    made.write(filesystem, segment_entries=4)
    config = LogConfig(retention_ms=1000)
    log = open_log(filesystem, config=config, clock=clock)
    log.high_watermark = log.log_end_offset
    assert retention.breach(log, clock.wall_ms() + 900) is None
    found = retention.breach(log, clock.wall_ms() + 1100)
    assert found is not None
    assert (found.by_time, found.count) == (3, 3)


def test_a_segment_without_timestamps_rolls_by_its_age() -> None:
    clock = ManualClock()
    made, _ = old_log(0, 4)
    filesystem = MemoryFilesystem(clock.wall_ms)
    made.write(filesystem)
    log = open_log(filesystem, config=LogConfig(segment_ms=1000), clock=clock)
    fill(log, 1)
    assert len(log.local.segments.all) == 1
    clock.advance(1001)
    fill(log, 1)
    assert [segment.base_offset for segment in log.local.segments.all] == [0, 5]
    assert all_offsets(log) == [0, 1, 2, 3, 4, 5]


def test_records_of_any_magic_are_read_alike() -> None:
    made = random_log(11, steps=30)
    data = b"".join(entry.data for entry in made.entries)
    found = [record for position, head in batches(data) for record in records(data, head, 1 << 20, position)]
    assert found == [record for entry in made.entries for record in entry.records]


def cleaned(made: OldLog, filesystem: MemoryFilesystem, now_ms: int = START_MS) -> Log:
    """Return the log opened, compacted up to the log end, and opened again."""
    log = open_log(filesystem, config=CONFIG)
    log.roll()
    log.local.flush()
    log.high_watermark = log.log_end_offset
    found = cleanable(log, 0, now_ms)
    assert found is not None
    job = make_job(log, found, now_ms, map_bytes=1 << 20, map_load_factor=1.0, bytes_per_second=1e12)
    for group in Cleaner(job, filesystem).run().groups:
        assert log.local.begin_swap(group)
        log.local.unlink_files(log.local.swap_files(group))
        log.local.finish_swap()
    log.close()
    return open_log(filesystem, config=CONFIG, clean=True)


def stored(log: Log) -> list[tuple[BatchHeader, list[Record]]]:
    data = log.local.segments.all[0].file.read_at(log.local.segments.all[0].size_bytes, 0)
    return [(head, list(records(data, head, 1 << 20, position))) for position, head in batches(data)]


@given(seed=st.integers(0, 2**32))
def test_compaction_leaves_what_a_dict_has_and_makes_batches_of_them(seed: int) -> None:
    made = random_log(seed)
    filesystem = MemoryFilesystem()
    made.write(filesystem, segment_entries=5)
    log = cleaned(made, filesystem)
    last = {record.key: record for entry in made.entries for record in entry.records}
    left = [record for segment in log.local.segments.all for record in _records_of(segment)]
    assert left == sorted(last.values())
    assert log.log_end_offset == made.next_offset
    for segment in log.local.segments.all:
        for _, head in segment.batch_headers():
            assert head.magic == 2
    assert log.read_records(0, max_bytes=1, max_offset=1 << 40).next_offset > 0


def _records_of(segment: Segment) -> list[Record]:
    data = segment.file.read_at(segment.size_bytes, 0)
    return [record for position, head in batches(data) for record in records(data, head, 1 << 20, position)]


def test_what_stays_of_a_wrapper_has_its_codec_its_offsets_and_its_type_of_timestamp() -> None:
    """Apache Kafka 4.4 converts them so, too: the batch begins and ends with the records that stay."""
    made = OldLog(random.Random(9))
    values = [b"a", None, b"c", b"d"]
    made.entries = []
    for base, append_time in ((0, False), (10, True)):
        time = START_MS if append_time else START_MS + 5
        rows = [Record(base + i, time, b"%d-%d" % (base, i), value) for i, value in enumerate(values)]
        data = encode_set(rows, 1, codec=Codec.GZIP, log_append_time=append_time)
        made.entries.append(Entry(data, rows, 1))
    again = [Record(20, START_MS, b"0-0", b"new"), Record(21, START_MS, b"10-3", b"new")]
    made.entries.append(Entry(encode_set(again, 0), again, 0))
    made.next_offset = 22
    filesystem = MemoryFilesystem()
    made.write(filesystem)
    log = cleaned(made, filesystem, now_ms=START_MS)
    (first, first_records), (second, second_records), (third, _), (fourth, _) = stored(log)
    horizon = START_MS + CONFIG.delete_retention_ms
    assert (first.base_offset, first.last_offset, first.codec, first.record_count) == (1, 3, Codec.GZIP, 3)
    assert (first.delete_horizon_ms, first.max_timestamp, first.leader_epoch) == (horizon, START_MS + 5, -1)
    assert [(record.offset, record.timestamp) for record in first_records] == [
        (offset, START_MS + 5) for offset in (1, 2, 3)
    ]
    assert (second.base_offset, second.last_offset, second.is_log_append_time) == (10, 12, True)
    assert [record.timestamp for record in second_records] == [START_MS] * 3
    assert (third.base_offset, third.codec, third.max_timestamp, third.delete_horizon_ms) == (20, Codec.NONE, -1, None)
    assert fourth.base_offset == 21


def test_a_log_that_is_cut_in_a_gap_goes_on() -> None:
    """The segment that becomes the active one loses nothing, but is appended to now."""
    made = OldLog(random.Random(5))
    for _ in range(3):
        made.add(2, Codec.NONE, 2)
    made.next_offset += 50
    for _ in range(3):
        made.add(2, Codec.NONE, 2)
    filesystem = MemoryFilesystem()
    made.write(filesystem, segment_entries=3)
    log = open_log(filesystem, config=CONFIG, clean=True)
    log.truncate_to(30)
    log.append_as_leader(batch(START_MS + 99), leader_epoch=5)
    assert log.timestamp_search(None).run() == (START_MS + 99, 6, 5)
    assert all_offsets(log) == [0, 2, 4, 6]
