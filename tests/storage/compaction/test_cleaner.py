"""Compaction against a dict, and the batches that it leaves."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.protocol.errors import CorruptMessage, InvalidRecord
from klamm.protocol.records.batch import BatchHeader, Record, batches, encode_batch, records
from klamm.protocol.records.compression import Codec
from klamm.storage import paths
from klamm.storage.compaction.cleanable import Cleanable, cleanable, is_due, make_job
from klamm.storage.compaction.cleaner import Cleaner, Job, Result
from klamm.storage.compaction.offset_map import SLOT_BYTES
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log_dir import LogDir
from klamm.storage.log_loading import load_logs
from klamm.storage.paths import TopicPartition
from tests.storage.batches import DIRECTORY, batch, delete_unreachable, end_transaction, open_log, read_bytes, valid
from tests.storage.read_committed import read_committed
from tests.support.log_dirs import create_log
from tests.support.manual_clock import START_MS, ManualClock
from tests.support.memory_filesystem import Crash, MemoryFilesystem

DAY_MS = 86_400_000
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, compacted=True, deleted=False)
Pairs = list[tuple[bytes, bytes | None]]


def append(log: Log, *pairs: tuple[bytes | None, bytes | None], codec: Codec = Codec.NONE, **options: int) -> int:
    """Append one batch; return its base offset."""
    new = [Record(index, START_MS + index, key, value) for index, (key, value) in enumerate(pairs)]
    result = log.append_as_leader(valid(encode_batch(new, codec=codec, **options)), leader_epoch=0)  # type: ignore[arg-type]
    log.high_watermark = log.log_end_offset
    return result.base_offset


def job_of(log: Log, found: Cleanable, now_ms: int, map_bytes: int = 1 << 20) -> Job:
    return make_job(log, found, now_ms, map_bytes=map_bytes, map_load_factor=1.0, bytes_per_second=1e12)


def swap_in(log: Log, result: Result) -> None:
    for group in result.groups:
        assert log.local.begin_swap(group)
        log.local.unlink_files(log.local.swap_files(group))
        log.local.finish_swap()
    assert log.local.size_bytes == sum(segment.size_bytes for segment in log.local.segments.all)


def compact(
    log: Log, filesystem: MemoryFilesystem, checkpoint: int = 0, *, now_ms: int = START_MS, map_bytes: int = 1 << 20
) -> int:
    """Clean all that can be cleaned; return the offset at which the next run begins."""
    log.local.flush()
    found = cleanable(log, checkpoint, now_ms)
    if found is None:
        return checkpoint
    result = Cleaner(job_of(log, found, now_ms, map_bytes), filesystem).run()
    swap_in(log, result)
    return result.end_offset


def heads_of(log: Log) -> list[BatchHeader]:
    found = []
    offset = log.log_start_offset
    while data := read_bytes(log, offset):
        for _, head in batches(data):
            found.append(head)
            offset = head.next_offset
    return found


def contents(log: Log) -> list[Record]:
    """Every record, as a consumer reads them."""
    found: list[Record] = []
    offset = log.log_start_offset
    while data := read_bytes(log, offset):
        for position, head in batches(data):
            found += records(data, head, 1 << 20, position)
            offset = head.next_offset
    return found


def closed_log(*batches_: Pairs, config: LogConfig = CONFIG) -> tuple[Log, MemoryFilesystem]:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=config)
    for pairs in batches_:
        append(log, *pairs)
    log.roll()
    return log, filesystem


def test_the_last_record_of_each_key_stays_where_it_was() -> None:
    log, filesystem = closed_log([(b"a", b"1"), (b"b", b"2")], [(b"a", b"3")], [(b"c", b"4"), (b"a", b"5")])
    assert compact(log, filesystem) == 5
    assert [(record.offset, record.key, record.value) for record in contents(log)] == [
        (1, b"b", b"2"),
        (3, b"c", b"4"),
        (4, b"a", b"5"),
    ]
    assert [(head.base_offset, head.last_offset, head.record_count) for head in heads_of(log)] == [(0, 1, 1), (3, 4, 2)]


def test_a_fetch_from_an_offset_that_is_gone_finds_the_next_batch() -> None:
    log, filesystem = closed_log(*[[(b"a", b"x")] for _ in range(60)])
    assert len(log.local.segments.all) > 3
    compact(log, filesystem)
    for offset in range(60):
        assert [head.base_offset for _, head in batches(read_bytes(log, offset))] == [59]
    assert log.read_records(59, max_bytes=1000, max_offset=60).next_offset == 60
    assert log.timestamp_search(START_MS).run() is not None


def test_a_second_run_begins_where_the_first_ended() -> None:
    log, filesystem = closed_log([(b"a", b"1")], [(b"b", b"1")])
    first = compact(log, filesystem)
    append(log, (b"a", b"2"))
    log.roll()
    assert compact(log, filesystem, first) == 3
    assert [(record.offset, record.key) for record in contents(log)] == [(1, b"b"), (2, b"a")]


def test_neighbours_become_one_segment_as_long_as_they_fit() -> None:
    pairs: Pairs = [(b"k%02d" % number, b"v" * 20) for number in range(40)]
    log, filesystem = closed_log(*[[pair] for pair in pairs], *[[(b"again", b"v" * 400)] for _ in range(8)])
    before = len(log.local.segments.all)
    compact(log, filesystem)
    compact(log, filesystem)  # segments are put together by the sizes that they have before
    assert len(log.local.segments.all) == before - 7
    assert all(segment.size_bytes <= CONFIG.segment_bytes for segment in log.local.segments.all)
    assert [record.key for record in contents(log)] == [key for key, _ in pairs] + [b"again"]
    names = {entry.name for entry in filesystem.list_directory(DIRECTORY)}
    bases = {segment.base_offset for segment in log.local.segments.all}
    for name in names:
        parsed = paths.parse_offset_file(name)
        assert parsed is None or parsed[0] in bases or parsed[1] == paths.SNAPSHOT_SUFFIX, name


def test_a_segment_that_would_be_the_same_is_left_alone() -> None:
    log, filesystem = closed_log([(b"a", b"v" * 400)], [(b"b", b"v" * 400)])
    before = log.local.segments.all
    assert compact(log, filesystem) == 2
    assert log.local.segments.all is before
    assert not [entry.name for entry in filesystem.list_directory(DIRECTORY) if "cleaned" in entry.name]


def test_a_tombstone_stays_until_its_horizon_has_passed() -> None:
    log, filesystem = closed_log(
        [(b"a", b"1")], [(b"a", None), (b"b", b"2")], config=replace(CONFIG, delete_retention_ms=1000)
    )
    compact(log, filesystem)
    (head,) = heads_of(log)
    assert head.delete_horizon_ms == START_MS + 1000
    assert [(record.key, record.value, record.timestamp) for record in contents(log)] == [
        (b"a", None, START_MS),
        (b"b", b"2", START_MS + 1),
    ]
    for number, (now_ms, keys) in enumerate([(999, [b"a", b"b"]), (1000, [b"b"])]):
        append(log, (b"z%d" % number, b"-"))
        log.roll()
        compact(log, filesystem, now_ms=START_MS + now_ms)
        assert [record.key for record in contents(log) if record.key < b"z"] == keys  # type: ignore[operator]
    assert heads_of(log)[0].delete_horizon_ms == START_MS + 1000


def test_the_last_batch_of_a_producer_leaves_its_header() -> None:
    log, filesystem = closed_log()
    for sequence in range(3):
        append(log, (b"a", b"1"), producer_id=7, producer_epoch=2, base_sequence=sequence)
    append(log, (b"a", b"2"))
    log.roll()
    compact(log, filesystem)
    empty, last = heads_of(log)
    assert (empty.base_offset, empty.record_count, empty.producer_id, empty.producer_epoch) == (2, 0, 7, 2)
    assert (empty.base_sequence, empty.max_timestamp) == (2, START_MS)
    assert last.base_offset == 3
    again = open_log(filesystem, config=CONFIG, clean=False, recovery_point=log.local.recovery_point)
    producer = again.producers.get(7)
    assert producer is not None and producer.last_sequence == 2


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_is_compressed_again_with_its_own_codec(codec: Codec) -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=CONFIG)
    append(log, *[(b"k%d" % number, b"v" * number) for number in range(5)], codec=codec)
    append(log, (b"k1", b"-"), (b"k3", None), codec=codec)
    log.roll()
    compact(log, filesystem)
    assert {head.codec for head in heads_of(log)} == {codec}
    assert [(record.offset, record.value) for record in contents(log)] == [
        (0, b""), (2, b"vv"), (4, b"vvvv"), (5, b"-"), (6, None),
    ]  # fmt: skip


def test_records_without_key_go() -> None:
    log, filesystem = closed_log()
    append(log, (None, b"from before"), (b"a", b"1"))
    log.roll()
    compact(log, filesystem)
    assert [(record.offset, record.key) for record in contents(log)] == [(1, b"a")]


def test_the_map_of_keys_is_bounded_and_runs_go_on_where_it_was_full() -> None:
    pairs: Pairs = [(b"key-%d" % (number % 20), b"%d" % number) for number in range(100)]
    log, filesystem = closed_log(*[pairs[at : at + 5] for at in range(0, 100, 5)])
    checkpoint, runs = 0, 0
    while (reached := compact(log, filesystem, checkpoint, map_bytes=SLOT_BYTES * 7)) > checkpoint:
        checkpoint, runs = reached, runs + 1
    assert runs > 5
    assert [record.offset for record in contents(log)] == list(range(80, 100))


def test_a_damaged_batch_stops_the_run_and_nothing_is_changed() -> None:
    log, filesystem = closed_log([(b"a", b"1")], [(b"a", b"2")])
    path = paths.offset_file(DIRECTORY, 0, ".log")
    content = bytearray(filesystem.read_bytes(path))
    content[-1] ^= 1
    filesystem.open_file(path).write_at(content, 0)
    with pytest.raises(CorruptMessage, match="wrong CRC"):
        compact(log, filesystem)
    assert filesystem.read_bytes(path) == content


def test_a_batch_that_inflates_beyond_the_limit_stops_the_run() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=replace(CONFIG, max_decompressed_bytes=5000))
    append(log, (b"a", bytes(6000)), codec=Codec.ZSTD)
    log.roll()
    with pytest.raises(InvalidRecord):
        compact(log, filesystem)


def test_the_active_segment_the_unreplicated_and_the_young_are_not_touched() -> None:
    log, _ = closed_log([(b"a", b"1" * 500)], [(b"a", b"2" * 500)], [(b"a", b"3" * 500)])
    found = cleanable(log, 0, START_MS)
    assert found is not None and (found.first_uncleanable, found.ratio) == (3, 1.0)
    log.high_watermark = 2
    found = cleanable(log, 1, START_MS)
    assert found is not None and (found.first_dirty, found.first_uncleanable, found.ratio) == (1, 2, 0.5)
    log.local.configure(replace(CONFIG, min_compaction_lag_ms=1000))
    assert cleanable(log, 0, START_MS + 999) is None
    assert cleanable(log, 0, START_MS + 1000) is not None


def test_a_log_is_due_by_its_dirty_part_or_by_age() -> None:
    log, _ = closed_log([(b"a", b"1" * 500)], [(b"a", b"2" * 500)])
    found = cleanable(log, 1, START_MS + DAY_MS)
    assert found is not None and not is_due(log, found)
    log.local.configure(replace(CONFIG, min_cleanable_dirty_ratio=0.4))
    assert is_due(log, found)
    log.local.configure(replace(CONFIG, max_compaction_lag_ms=DAY_MS - 1))
    found = cleanable(log, 1, START_MS + DAY_MS)
    assert found is not None and is_due(log, found)


def test_a_compacted_log_rolls_in_time_for_the_longest_lag() -> None:
    values = {"max.compaction.lag.ms": 1000, "segment.ms": 5000, "min.cleanable.dirty.ratio": 0.25}
    config = LogConfig.from_values({**values, "cleanup.policy": ["compact"]})
    assert (config.segment_ms, config.min_cleanable_dirty_ratio) == (1000, 0.25)
    assert LogConfig.from_values({**values, "cleanup.policy": "delete"}).segment_ms == 5000


@pytest.mark.parametrize("checkpoint", [-1, 99])
def test_a_checkpoint_outside_the_log_means_the_log_start(checkpoint: int) -> None:
    log, _ = closed_log([(b"a", b"1" * 500)])
    found = cleanable(log, checkpoint, START_MS)
    assert found is not None and found.first_dirty == 0


def test_what_was_cut_in_the_meantime_is_not_swapped_in() -> None:
    log, filesystem = closed_log(*[[(b"a", b"x")] for _ in range(30)])
    log.local.flush()
    found = cleanable(log, 0, START_MS)
    assert found is not None
    result = Cleaner(job_of(log, found, START_MS), filesystem).run()
    log.advance_log_start(10)
    delete_unreachable(log)
    assert not log.local.begin_swap(result.groups[0])


def test_retention_waits_for_a_swap_and_truncation_finishes_it() -> None:
    log, filesystem = closed_log(*[[(b"a", b"x")] for _ in range(30)])
    log.local.flush()
    found = cleanable(log, 0, START_MS)
    assert found is not None
    *_, group = Cleaner(job_of(log, found, START_MS), filesystem).run().groups
    log.advance_log_start(10)
    assert log.local.begin_swap(group)
    assert log.detach_unreachable() == []
    log.local.swap_files(group)
    assert heads_of(log)[-1].base_offset == 29  # through the old files, which have other names now
    append(log, (b"b", b"y"))
    log.truncate_to(30)
    assert contents(log)[-1].offset == 29
    assert [segment.base_offset for segment in log.local.segments.all][-2:] == [group.base_offset, 30]
    assert delete_unreachable(log) > 0


ENTRIES = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from([b"a", b"b", b"c", b"a-key-of-more-than-16-bytes"]), st.none() | st.binary(max_size=60)
        ),
        min_size=1,
        max_size=6,
    ),
    max_size=12,
)


@settings(max_examples=60)
@given(
    rounds=st.lists(st.tuples(ENTRIES, st.integers(0, 2 * DAY_MS)), min_size=1, max_size=4),
    map_entries=st.integers(1, 20),
    codec=st.sampled_from(Codec),
    restart=st.booleans(),
)
def test_against_a_dict(rounds: list[tuple[list[Pairs], int]], map_entries: int, codec: Codec, restart: bool) -> None:
    filesystem, now_ms, checkpoint = MemoryFilesystem(), START_MS, 0
    config = replace(CONFIG, segment_bytes=300, delete_retention_ms=DAY_MS)
    log = open_log(filesystem, config=config)
    written: dict[int, tuple[bytes, bytes | None]] = {}
    model: dict[bytes, bytes] = {}
    for entries, elapsed_ms in rounds:
        for pairs in entries:
            base_offset = append(log, *pairs, codec=codec)
            for index, (key, value) in enumerate(pairs):
                written[base_offset + index] = (key, value)
                model.pop(key, None) if value is None else model.update({key: value})
        now_ms += elapsed_ms
        checkpoint = compact(log, filesystem, checkpoint, now_ms=now_ms, map_bytes=SLOT_BYTES * map_entries)
        if restart:
            log.close()
            log = open_log(filesystem, config=config, clean=True, recovery_point=log.local.recovery_point)
            log.high_watermark = log.log_end_offset
        found = contents(log)
        assert all(written[record.offset] == (record.key, record.value) for record in found)
        table: dict[bytes | None, bytes | None] = {record.key: record.value for record in found}
        assert {key: value for key, value in table.items() if value is not None} == model
        clean = [record.key for record in found if record.offset < checkpoint]
        assert len(clean) == len(set(clean))
        assert [record.offset for record in found if record.offset >= checkpoint] == [
            o for o in written if o >= checkpoint
        ]
        for offset in range(log.log_end_offset):  # every offset can be asked for
            first = next(batches(read_bytes(log, offset)), None)
            assert first is None or first[1].last_offset >= offset


KEY = TopicPartition("t", 0)


def start(filesystem: MemoryFilesystem) -> LogDir:
    log_dir = LogDir.open(
        DIRECTORY.parent, node_id=1, cluster_id="c", clock=ManualClock(), filesystem=filesystem, quarantine=None
    )
    load_logs(log_dir, lambda topic: CONFIG)
    return log_dir


def life(filesystem: MemoryFilesystem, known: list[int]) -> None:
    """Two runs with appends in between; `known` gets the number of batches that were flushed."""
    log_dir = start(filesystem)
    log = create_log(log_dir, "t", 0, bytes(16), CONFIG)
    checkpoint = 0
    for _ in range(2):
        for _ in range(24):
            number = log.log_end_offset
            append(
                log, (b"k%d" % (number % 5), b"%060d" % number), producer_id=5, producer_epoch=0, base_sequence=number
            )
        log.local.flush()
        known.append(log.log_end_offset)
        log_dir.checkpoint()
        checkpoint = compact(log, filesystem, checkpoint)
        log_dir.checkpoint()
    log_dir.close()


def check(filesystem: MemoryFilesystem, least: int) -> None:
    log_dir = start(filesystem)
    assert log_dir.offline == {}
    log = log_dir.logs.get(KEY)
    if log is None:
        assert least == 0
        return
    assert least <= log.log_end_offset
    table: dict[bytes | None, Record] = {record.key: record for record in contents(log)}
    for record in contents(log):
        assert record.value == b"%060d" % record.offset and record.key == b"k%d" % (record.offset % 5)
    assert sorted(record.offset for record in table.values()) == list(
        range(max(0, log.log_end_offset - 5), log.log_end_offset)
    )
    names = {entry.name for entry in filesystem.list_directory(DIRECTORY)}
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted", ".compaction"))]
    end = log.log_end_offset
    if end:
        duplicate = batch(START_MS, producer_id=5, epoch=0, sequence=end - 1)
        assert log.append_as_leader(duplicate, leader_epoch=0).duplicate
    assert log_dir.close()
    assert start(filesystem).logs[KEY].log_end_offset == end


@pytest.mark.parametrize("fate", ["kill", "cut", "torn"])
def test_rows_14_15_16_32_a_crash_at_every_step_leaves_the_old_or_the_new(fate: str) -> None:
    filesystem = MemoryFilesystem()
    before = filesystem.changes
    life(filesystem, [])
    states = filesystem.changes - before
    for changes in range(states):
        filesystem, known = MemoryFilesystem(), []
        filesystem.crash_after(changes)
        with pytest.raises(Crash):
            life(filesystem, known)
        filesystem.kill() if fate == "kill" else filesystem.crash(random.Random(changes) if fate == "torn" else None)
        try:
            check(filesystem, known[-1] if known else 0)
        except BaseException as error:
            error.add_note(f"changes={changes} of {states}")
            raise


def transacted(log: Log, producer_id: int, sequence: int, *keys: bytes, value: bytes = b"v") -> None:
    """A batch of a transaction with these keys."""
    guard = log.verifications.begin(producer_id, 0, sequence, begins_at_zero=False, now_ms=START_MS)
    new = [Record(index, START_MS, key, value) for index, key in enumerate(keys)]
    data = encode_batch(new, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
    log.append_as_leader(valid(data), leader_epoch=0, guard=guard)
    log.set_high_watermark(log.log_end_offset)


def ended(log: Log, producer_id: int, *, is_commit: bool, epoch: int = 0) -> None:
    end_transaction(log, producer_id, epoch, is_commit=is_commit)
    log.set_high_watermark(log.log_end_offset)


def shape(log: Log) -> list[tuple[int, int, bool, int]]:
    """Base offset, last offset, whether it is a control batch, and number of records of each batch."""
    return [(head.base_offset, head.last_offset, head.is_control, head.record_count) for head in heads_of(log)]


def test_aborted_records_go_and_supersede_nothing_committed_ones_do() -> None:
    log, filesystem = closed_log([(b"a", b"1"), (b"b", b"1")])
    transacted(log, 7, 0, b"a")
    transacted(log, 8, 0, b"b")
    ended(log, 7, is_commit=False)
    ended(log, 8, is_commit=True)
    append(log, (b"c", b"1"))
    log.roll()
    append(log, (b"d", b"1"), producer_id=7, producer_epoch=0, base_sequence=1)  # theirs are not the last batches
    append(log, (b"d", b"1"), producer_id=8, producer_epoch=0, base_sequence=1)
    compact(log, filesystem)
    assert [(record.offset, record.key) for record in read_committed(log)] == [
        (0, b"a"), (3, b"b"), (6, b"c"), (7, b"d"), (8, b"d"),
    ]  # fmt: skip
    assert shape(log)[:4] == [(0, 1, False, 1), (3, 3, False, 1), (4, 4, True, 1), (5, 5, True, 1)]


def test_markers_go_after_their_horizon_when_nothing_of_the_transaction_is_left() -> None:
    log, filesystem = closed_log([(b"x", b"1")])
    transacted(log, 7, 0, b"a")
    ended(log, 7, is_commit=False)
    transacted(log, 8, 0, b"b")
    ended(log, 8, is_commit=True)
    append(log, (b"b", b"2"), (b"y", b"2"))
    log.roll()
    for producer_id in (7, 8):
        append(log, (b"z", b"1"), producer_id=producer_id, producer_epoch=0, base_sequence=1)
    log.roll()
    append(log, (b"z", b"2"))
    log.roll()

    def again(now_ms: int) -> list[int]:
        compact(log, filesystem, 0, now_ms=now_ms)
        return [head.base_offset for head in heads_of(log) if head.is_control]

    assert again(START_MS) == [2, 4]  # batches of theirs were still there
    assert again(START_MS + 1) == [2, 4]  # now they get a horizon
    horizons = {head.delete_horizon_ms for head in heads_of(log) if head.is_control}
    assert horizons == {START_MS + 1 + CONFIG.delete_retention_ms}
    assert again(START_MS + CONFIG.delete_retention_ms) == [2, 4]
    assert again(START_MS + 1 + CONFIG.delete_retention_ms) == []
    assert log.local.segments.aborted(0, log.log_end_offset) == []
    assert [record.key for record in read_committed(log)] == [b"x", b"b", b"y", b"z"]


def test_the_last_batch_of_an_aborted_producer_leaves_its_header_index_entry_and_marker() -> None:
    log, filesystem = closed_log([(b"x", b"1")])
    transacted(log, 7, 0, b"a", b"b")
    ended(log, 7, is_commit=False)
    log.roll()
    append(log, (b"x", b"2"))
    for _ in range(2):
        compact(log, filesystem, now_ms=START_MS + 10 * DAY_MS)
        assert (1, 2, False, 0) in shape(log) and (3, 3, True, 1) in shape(log)
        assert [(t.producer_id, t.first_offset, t.last_offset) for t in log.local.segments.aborted(0, 9)] == [(7, 1, 3)]
    log.close()
    filesystem.kill()
    log = open_log(filesystem, config=CONFIG, clean=True)
    assert [(t.producer_id, t.first_offset) for t in log.local.segments.aborted(0, 9)] == [(7, 1)]
    producer = log.producers.get(7)
    assert producer is not None and producer.last_sequence == 1


def test_a_producer_of_which_only_a_marker_is_known_keeps_its_epoch() -> None:
    log, filesystem = closed_log([(b"x", b"1")])
    transacted(log, 7, 0, b"a")
    ended(log, 7, is_commit=True, epoch=1)
    append(log, (b"a", b"2"), (b"y", b"2"))
    log.roll()
    for day in range(3):
        compact(log, filesystem, now_ms=START_MS + day * 10 * DAY_MS)
    assert (2, 2, True, 0) in shape(log)
    assert {head.producer_epoch for head in heads_of(log) if head.is_control} == {1}


def test_nothing_at_or_above_the_last_stable_offset_is_compacted() -> None:
    log, filesystem = closed_log([(b"a", b"1")])
    transacted(log, 7, 0, b"a")
    log.roll()
    append(log, (b"a", b"2"))
    log.roll()
    assert compact(log, filesystem) == 1
    ended(log, 7, is_commit=False)
    assert compact(log, filesystem, 1) == 3
    assert [record.offset for record in read_committed(log)] == [2]


def test_the_last_batch_that_may_be_compacted_leaves_its_header() -> None:
    log, filesystem = closed_log([(b"a", b"1")])
    transacted(log, 7, 0, b"b")
    ended(log, 7, is_commit=False)
    transacted(log, 7, 1, b"b")
    ended(log, 7, is_commit=False)
    append(log, (b"c", None))
    log.roll()
    for day in range(4):
        compact(log, filesystem, now_ms=START_MS + day * 10 * DAY_MS)
    assert shape(log)[-1] == (5, 5, False, 0)


def test_an_empty_index_is_deleted() -> None:
    """Readers would use its entries without markers to skip later, committed records of the producer."""
    log, filesystem = closed_log([(b"x", b"1")])
    transacted(log, 7, 0, b"a")
    ended(log, 7, is_commit=False)
    transacted(log, 7, 1, b"b")
    ended(log, 7, is_commit=True)
    log.roll()
    for day in range(4):
        compact(log, filesystem, now_ms=START_MS + day * 10 * DAY_MS)
    assert [record.key for record in read_committed(log, start=1)] == [b"b"]
    log.close()
    filesystem.kill()
    log = open_log(filesystem, config=CONFIG, clean=True)
    assert log.local.segments.aborted(0, 99) == []
    log.set_high_watermark(log.log_end_offset)
    assert [record.key for record in read_committed(log)] == [b"x", b"b"]


@pytest.mark.parametrize("seed", range(25))
def test_a_read_committed_reader_sees_the_same_state_before_and_after(seed: int) -> None:
    rng = random.Random(seed)
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=CONFIG)
    sequences = {7: 0, 8: 0, 9: 0}
    is_open: set[int] = set()
    checkpoint = 0
    for step in range(rng.randrange(20, 120)):
        producer_id = rng.choice([7, 8, 9])
        keys = [b"%d" % rng.randrange(6) for _ in range(rng.randrange(1, 4))]
        dice = rng.random()
        if dice < 0.5:
            transacted(log, producer_id, sequences[producer_id], *keys, value=b"%d" % step)
            sequences[producer_id] += len(keys)
            is_open.add(producer_id)
        elif dice < 0.75:
            ended(log, producer_id, is_commit=rng.random() < 0.5)
            is_open.discard(producer_id)
        else:
            append(log, *[(key, b"%d" % step) for key in keys])
        if rng.random() < 0.1:
            before = {record.key: record.value for record in read_committed(log)}
            checkpoint = compact(log, filesystem, checkpoint, now_ms=START_MS + rng.randrange(3) * 2 * DAY_MS)
            for max_bytes in (120, 1 << 20):
                assert {record.key: record.value for record in read_committed(log, max_bytes=max_bytes)} == before
        if rng.random() < 0.05:
            log.close()
            filesystem.kill()
            log = open_log(filesystem, config=CONFIG, clean=True)
            log.set_high_watermark(log.log_end_offset)
            assert {p.producer_id for p in log.producers if p.first_transaction_offset >= 0} == is_open
            assert {p.producer_id: p.last_sequence + 1 for p in log.producers if p.batches} == {
                producer_id: sequence for producer_id, sequence in sequences.items() if sequence
            }
