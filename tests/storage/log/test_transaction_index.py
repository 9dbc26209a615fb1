"""The transaction index: its bytes, its look-ups, its sanity checks, and the list of a log's indexes."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.storage import paths
from klamm.storage.checkpoints import CheckpointError
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log.transaction_index import (
    AbortedTransaction,
    TransactionIndex,
    check,
    entries,
    format_list,
    is_as_listed,
    parse_list,
)
from tests.storage.batches import DIRECTORY, batch, delete_unreachable, end_transaction, fill, open_log, transact
from tests.storage.read_committed import read_committed
from tests.support.memory_filesystem import MemoryFilesystem

PATH = Path("/00000000000000000100.txnindex")
GOLDEN = bytes.fromhex(
    "0000"  # version
    "0000000000000007"  # producer id
    "0000000000000064"  # first offset: 100
    "000000000000006f"  # last offset, that of the marker: 111
    "000000000000006e"  # last stable offset: 110
)
FIRST = AbortedTransaction(7, 100, 111, 110)
SECOND = AbortedTransaction(8, 90, 120, 110)


def filled(*aborted: AbortedTransaction) -> tuple[TransactionIndex, MemoryFilesystem]:
    filesystem = MemoryFilesystem()
    index = TransactionIndex(filesystem, PATH)
    for transaction in aborted:
        index.append(transaction)
    return index, filesystem


def test_an_entry() -> None:
    index, filesystem = filled(FIRST)
    assert not filesystem.exists(PATH)
    index.write_through()
    assert filesystem.read_bytes(PATH) == GOLDEN
    assert list(entries(GOLDEN)) == [FIRST]
    check(GOLDEN, 100, 112)


def test_there_is_no_file_before_the_first_abort() -> None:
    index, _ = filled()
    assert not index.is_in_use
    index.append(FIRST)
    assert index.is_in_use


def test_collecting() -> None:
    index, _ = filled(FIRST, SECOND)

    def collect(start: int, end: int) -> tuple[list[AbortedTransaction], bool]:
        found: list[AbortedTransaction] = []
        return found, index.collect(start, end, found)

    assert collect(100, 105) == (
        [FIRST],
        True,
    )  # transactions that end later begin at 110 or above, but for those in the index
    assert collect(100, 111) == ([FIRST, SECOND], False)
    assert collect(112, 115) == ([SECOND], False)
    assert collect(121, 130) == ([], False)
    assert collect(50, 60) == ([], True)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 40)), max_size=400), st.integers(0, 2500))
def test_collecting_and_truncation_against_a_list(steps: list[tuple[int, int]], offset: int) -> None:
    index, filesystem = filled()
    model: list[AbortedTransaction] = []
    last = 0
    for gap, length in steps:
        last += gap
        model.append(AbortedTransaction(1, max(0, last - length), last, max(0, last - 40)))
        index.append(model[-1])
    index.write_out()
    again = TransactionIndex(filesystem, PATH)
    again.open_existing(len(model) * 34)
    for end in (offset + 1, offset + 50):
        found: list[AbortedTransaction] = []
        again.collect(offset, end, found)
        assert [t for t in found if t.first_offset < end] == found
        assert set(found) >= {
            t for t in model if t.last_offset >= offset and t.first_offset < end and t.first_offset > 0
        }
    again.truncate(offset)
    assert [again.entry(at) for at in range(again.count)] == [t for t in model if t.last_offset < offset]
    again.write_out()
    assert list(entries(filesystem.read_bytes(PATH))) == [t for t in model if t.last_offset < offset]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (GOLDEN[:-1], "not a whole number"),
        (b"\0\1" + GOLDEN[2:], "version 1"),
        (GOLDEN[:2] + b"\xff" + GOLDEN[3:], "no valid offsets"),
        (GOLDEN + GOLDEN, "not after offset 111"),
        (GOLDEN[:18] + (113).to_bytes(8, "big") + GOLDEN[26:], "does not end in the segment"),
        (GOLDEN[:10] + (111).to_bytes(8, "big") + GOLDEN[18:], "no valid offsets"),
        (GOLDEN[:26] + (113).to_bytes(8, "big"), "last stable offset 113"),
    ],
)
def test_a_problem_is_reported(content: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check(content, 100, 113)


def test_the_list() -> None:
    index, _ = filled(FIRST)
    other, _ = filled(FIRST, SECOND)
    content = format_list([(100, index), (200, other)])
    assert content == b"0\n2\n100 1 830a5d6e\n200 2 %08x\n" % other.listed()[1]
    listed = parse_list(content)
    assert listed == {100: index.listed(), 200: other.listed()}
    assert is_as_listed(GOLDEN, listed[100])
    assert is_as_listed(GOLDEN + b"more", listed[100])
    assert not is_as_listed(GOLDEN[:-1] + b"\0", listed[100])
    assert not is_as_listed(b"", listed[100])
    for wrong in (b"", b"0\n1\n100 1\n", b"0\n1\nx 1 00\n", b"0\n2\n100 1 00\n"):
        with pytest.raises(CheckpointError):
            parse_list(wrong)


CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=100)


def aborting_log(filesystem: MemoryFilesystem) -> Log:
    """Transactions of producer 7 over three segments, all but the second one aborted, a plain record after each."""
    log = open_log(filesystem, config=CONFIG)
    for number in range(6):
        transact(log, 7, 0, number)
        end_transaction(log, 7, 0, is_commit=number == 1)
        fill(log, 1)
    log.set_high_watermark(log.log_end_offset)
    return log


SEEN = [2, 3, 5, 8, 11, 14, 17]


@pytest.mark.parametrize("which", [0, -1])
@pytest.mark.parametrize("how", ["gone", "cut", "flipped"])
def test_row_9_aborted_records_are_never_shown_whatever_becomes_of_the_index(how: str, which: int) -> None:
    filesystem = MemoryFilesystem()
    log = aborting_log(filesystem)
    assert len(log.local.segments.all) > 2
    assert [record.offset for record in read_committed(log)] == SEEN
    log.close()
    filesystem.kill()
    names = sorted(e.name for e in filesystem.list_directory(DIRECTORY) if e.name.endswith(paths.TXN_INDEX_SUFFIX))
    path = DIRECTORY / names[which]
    content = filesystem.read_bytes(path)
    if how == "gone":
        filesystem.unlink(path)
    elif how == "cut":
        filesystem.open_file(path).truncate(len(content) - 34)
    else:
        filesystem.open_file(path).write_at(bytes([content[17] ^ 1]), 17)  # of the first offset: it makes sense still
    log = open_log(filesystem, config=CONFIG, clean=True)
    log.set_high_watermark(log.log_end_offset)
    assert [record.offset for record in read_committed(log)] == SEEN
    assert filesystem.read_bytes(path) == content


def without_marks_of_ours(filesystem: MemoryFilesystem) -> list[str]:
    """A log as Apache Kafka leaves it; the names in its directory."""
    aborting_log(filesystem).close()
    filesystem.kill()
    filesystem.unlink(DIRECTORY / paths.TXN_INDEX_LIST)
    return sorted(entry.name for entry in filesystem.list_directory(DIRECTORY))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [paths.INDEX_SUFFIX, paths.TIME_INDEX_SUFFIX])
@pytest.mark.parametrize("how", ["gone", "zeros"])
def test_rebuilding_another_index_leaves_this_one_as_it_is(how: str, suffix: str, clean: bool) -> None:
    filesystem = MemoryFilesystem()
    names = without_marks_of_ours(filesystem)
    before = {name: filesystem.read_bytes(DIRECTORY / name) for name in names if name.endswith(paths.TXN_INDEX_SUFFIX)}
    assert len(before) > 2 and all(before.values())
    for name in names:
        if name.endswith(suffix):
            file = filesystem.open_file(DIRECTORY / name)
            if how == "gone":
                filesystem.unlink(DIRECTORY / name)
            else:
                file.write_at(bytes(240), file.size())
    log = open_log(filesystem, config=CONFIG, clean=clean, recovery_point=18)
    log.set_high_watermark(log.log_end_offset)
    assert [record.offset for record in read_committed(log)] == SEEN
    log.close()
    assert {name: filesystem.read_bytes(DIRECTORY / name) for name in before} == before
    log = open_log(filesystem, config=CONFIG, clean=True)
    log.set_high_watermark(log.log_end_offset)
    assert [record.offset for record in read_committed(log)] == SEEN


@pytest.mark.parametrize("left", [0, 34])
def test_where_other_indexes_are_missing_it_is_compared_with_the_batches(left: int) -> None:
    filesystem = MemoryFilesystem()
    names = without_marks_of_ours(filesystem)
    for name in names:
        if name.endswith(paths.INDEX_SUFFIX):
            filesystem.unlink(DIRECTORY / name)
        elif name.endswith(paths.TXN_INDEX_SUFFIX) and left:
            filesystem.open_file(DIRECTORY / name).truncate(left)
        elif name.endswith(paths.TXN_INDEX_SUFFIX):
            filesystem.unlink(DIRECTORY / name)
    log = open_log(filesystem, config=CONFIG, clean=True)
    log.set_high_watermark(log.log_end_offset)
    assert [record.offset for record in read_committed(log)] == SEEN


def test_an_index_that_the_disk_refuses_is_in_memory_and_holds_the_recovery_point() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=CONFIG)
    transact(log, 7, 0, 0)
    filesystem.inject("write", errno.ENOSPC, ".txnindex")
    end_transaction(log, 7, 0, is_commit=False)
    fill(log, 5)
    log.set_high_watermark(log.log_end_offset)
    assert [record.offset for record in read_committed(log)] == [2, 3, 4, 5, 6]
    log.local.flush()
    assert log.local.recovery_point == 0 < log.local.flushed_offset
    filesystem.kill()  # and the disk has room again
    log = open_log(filesystem, config=CONFIG)
    log.set_high_watermark(log.log_end_offset)
    assert [record.offset for record in read_committed(log)] == [2, 3, 4, 5, 6]
    log.local.flush()
    assert log.local.recovery_point == log.log_end_offset
    assert list(entries(filesystem.read_bytes(log.local.segments.all[0].transaction_index.path))) == [
        AbortedTransaction(7, 0, 1, 2)
    ]


def test_the_log_start_may_pass_an_open_transaction() -> None:
    log = open_log(MemoryFilesystem(), config=CONFIG)
    transact(log, 7, 0, 0)
    fill(log, 6)
    log.set_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 0
    log.advance_log_start(4)
    delete_unreachable(log)
    assert (log.log_start_offset, log.last_stable_offset) == (4, 4)
    end_transaction(log, 7, 0, is_commit=False)
    log.set_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 8
    assert [record.offset for record in read_committed(log)] == [4, 5, 6]


def test_a_deleted_segment_takes_its_index_with_it() -> None:
    filesystem = MemoryFilesystem()
    log = aborting_log(filesystem)
    log.local.flush()
    log.advance_log_start(log.local.segments.all[-1].base_offset)
    delete_unreachable(log)
    names = [e.name for e in filesystem.list_directory(DIRECTORY) if e.name.endswith(paths.TXN_INDEX_SUFFIX)]
    assert len(names) <= 1
    assert [record.offset for record in read_committed(log)] == [at for at in SEEN if at >= log.log_start_offset]


def test_an_open_transaction_is_remembered_and_a_truncated_marker_opens_it_again() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=CONFIG)
    transact(log, 7, 0, 0)
    log.append_as_leader(batch(), leader_epoch=0)
    end_transaction(log, 7, 0, is_commit=False)
    log.set_high_watermark(3)
    assert log.last_stable_offset == 3
    log.truncate_to(2)
    log.set_high_watermark(2)
    assert log.last_stable_offset == 0
    assert log.local.segments.aborted(0, 2) == []
    log.close()
    filesystem.kill()
    log = open_log(filesystem, config=CONFIG, clean=True)
    log.set_high_watermark(2)
    assert log.last_stable_offset == 0
