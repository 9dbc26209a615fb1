"""Which batches go over untouched, and what the others become."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.pipeline.jobs.mirror.batches import Outgoing, Way, outgoing
from klamm.pipeline.jobs.mirror.syncs import Run
from klamm.pipeline.kafka.fetcher import Fetched
from klamm.protocol.records.batch import (
    DELETE_HORIZON_FLAG,
    Record,
    crc_is_valid,
    encode_batch,
    read_header,
    records,
    seal,
    stamp,
)
from klamm.protocol.records.columnar import DamagedBatch, padded, scan
from klamm.protocol.records.compression import Codec
from klamm.protocol.records.control import end_marker_batch
from klamm.protocol.records.message_set import encode_set

KEPT = Way(partition=2, target_partitions=5, keep=True, max_message_bytes=1 << 20)
LIMIT = 1 << 30


def fetched(
    batches: Iterable[bytes | bytearray], offset: int = 0, aborted: tuple[tuple[int, int], ...] = ()
) -> Fetched:
    content = b"".join(batches)
    data = padded(len(content))
    data[: len(content)] = np.frombuffer(content, np.uint8)
    return Fetched(data, scan(data, len(content)), offset, aborted, 1 << 40, 1 << 40)


def batch(*offsets: int, **more: object) -> bytearray:
    rows = [Record(at, 5000 + at, b"k%d" % at, b"v%d" % at, (("h", None),)) for at in offsets]
    return encode_batch(rows, base_offset=offsets[0], **more)  # type: ignore[arg-type]


def got(batches: Iterable[Outgoing]) -> list[tuple[int, int, bool]]:
    """(first upstream offset, records, untouched) of each."""
    return [(one.runs[0].upstream, one.count, one.untouched) for one in batches]


def inside(one: Outgoing) -> list[Record]:
    header = read_header(one.data)
    assert crc_is_valid(one.data, header)
    assert header.record_count == one.count == header.last_offset_delta + 1
    return list(records(one.data, header, LIMIT))


@pytest.mark.parametrize("codec", Codec)
def test_what_a_producer_could_have_sent_is_left_alone(codec: Codec) -> None:
    first, second = batch(0, 1, 2, codec=codec), batch(3, 4, codec=codec, producer_id=7, base_sequence=0)
    found = list(outgoing(fetched([first, second]), KEPT, 5))
    assert got(found) == [(0, 3, True), (3, 2, True)]
    assert [bytes(one.data) for one in found] == [first, second]
    assert found[1].runs == (Run(3, 0, 2),)
    assert {one.partition for one in found} == {2}


def test_holes_are_closed_and_reported() -> None:
    (found,) = outgoing(fetched([batch(3, 4, 7, 9, 10, codec=Codec.ZSTD)]), KEPT, 100)
    assert not found.untouched
    assert found.runs == (Run(3, 0, 2), Run(7, 2, 1), Run(9, 3, 2))
    assert [(one.offset, one.timestamp, one.key) for one in inside(found)] == [
        (0, 5003, b"k3"), (1, 5004, b"k4"), (2, 5007, b"k7"), (3, 5009, b"k9"), (4, 5010, b"k10")
    ]  # fmt: skip
    assert read_header(found.data).codec == Codec.ZSTD
    assert inside(found)[0].headers == (("h", None),)


def test_batches_that_compaction_has_emptied_or_marked() -> None:
    empty = encode_batch([], base_offset=0, last_offset=4)
    marked = batch(5, 6)
    marked[22] |= DELETE_HORIZON_FLAG
    seal(marked)
    assert got(outgoing(fetched([empty, marked, batch(7)]), KEPT, 100)) == [(5, 2, False), (7, 1, True)]


def test_log_append_time_becomes_the_records_time() -> None:
    (found,) = outgoing(fetched([batch(0, 1, log_append_time_ms=99)]), KEPT, 2)
    assert not read_header(found.data).is_log_append_time
    assert [one.timestamp for one in inside(found)] == [99, 99]


def test_old_message_sets_are_encoded_again() -> None:
    old = encode_set([Record(4, 77, b"k", b"v"), Record(5, 78, None, b"w")], magic=1)
    found = list(outgoing(fetched([old, batch(6)]), KEPT, 100))
    assert got(found) == [(4, 2, False), (6, 1, True)]
    assert [(one.timestamp, one.key, one.value) for one in inside(found[0])] == [(77, b"k", b"v"), (78, None, b"w")]


def test_aborted_transactions_and_markers_are_left_out() -> None:
    def sent(first: int, producer_id: int) -> bytearray:
        return batch(first, first + 1, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)

    def marker(offset: int, producer_id: int, *, is_commit: bool) -> bytearray:
        made = end_marker_batch(producer_id, 0, is_commit=is_commit, coordinator_epoch=0, timestamp=1)
        stamp(made, offset, 0)
        return made

    parts = [sent(0, 1), sent(2, 2), marker(4, 1, is_commit=False), sent(5, 1), marker(7, 2, is_commit=True)]
    assert got(outgoing(fetched(parts, aborted=((1, 0),)), KEPT, 100)) == [(2, 2, True), (5, 2, True)]


def test_ranges_that_cut_batches() -> None:
    parts = [batch(0, 1, 2), batch(3, 4, 5), batch(6, 7, 8)]
    assert got(outgoing(fetched(parts, offset=1), KEPT, 7)) == [(1, 2, False), (3, 3, True), (6, 1, False)]


def test_too_large_batches_are_split_and_small_ones_left() -> None:
    small = Way(0, 1, keep=True, max_message_bytes=400)
    found = list(outgoing(fetched([batch(*range(40)), batch(40)]), small, 100))
    assert [one.untouched for one in found] == [False] * (len(found) - 1) + [True]
    assert all(len(one.data) <= 400 for one in found)
    assert [run for one in found for run in one.runs][1].upstream == found[0].count


def test_damage_is_not_sealed_again() -> None:
    broken = batch(3, 4)
    broken[-1] ^= 1
    with pytest.raises(DamagedBatch, match=r"base offset 3.*CRC"):
        list(outgoing(fetched([batch(0, 1, 2), broken]), KEPT, 100))


@given(
    st.lists(st.lists(st.none() | st.binary(max_size=5), min_size=1, max_size=20), min_size=1, max_size=5),
    st.integers(1, 7),
    st.integers(0, 9),
    st.sampled_from(Codec),
)
def test_by_key_nothing_is_lost_and_order_stays(
    keys: list[list[bytes | None]], partitions: int, source: int, codec: Codec
) -> None:
    at, parts = 0, []
    for some in keys:
        rows = [Record(at + index, at + index, key, b"%d" % (at + index)) for index, key in enumerate(some)]
        parts.append(encode_batch(rows, base_offset=at, codec=codec))
        at += len(some)
    way = Way(source, partitions, keep=False, max_message_bytes=1 << 20)
    found: dict[int, list[int]] = {}
    place: dict[bytes | None, int] = {}
    for one in outgoing(fetched(parts), way, at):
        assert not one.untouched and one.runs == ()
        for record in inside(one):
            assert record.value is not None and record.timestamp == int(record.value)
            assert place.setdefault(record.key, one.partition) == one.partition
            found.setdefault(one.partition, []).append(int(record.value))
    assert sorted(value for values in found.values() for value in values) == list(range(at))
    assert all(values == sorted(values) for values in found.values())
    assert place.get(None, source % partitions) == source % partitions
