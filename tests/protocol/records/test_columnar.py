from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.protocol.errors import CodedError
from klamm.protocol.records import columnar, message_set
from klamm.protocol.records.batch import (
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    Record,
    batches,
    crc_is_valid,
    encode_batch,
    records,
    seal,
    stamp,
    write_record,
    write_varint,
)
from klamm.protocol.records.columnar import Columns, DamagedBatch, Spans, columns, fields, padded, scan
from klamm.protocol.records.compression import Codec, compress
from klamm.protocol.records.control import end_marker_batch

LIMIT = 1 << 24
WRAP = 1 << 64
CONTENT = st.none() | st.binary(max_size=12) | st.binary(min_size=60, max_size=70) | st.just(b"x" * 9000)
HEADERS = st.lists(st.tuples(st.text(max_size=3), CONTENT), max_size=3).map(tuple)
TIMESTAMPS = st.integers(-1, 2**62) | st.integers(1_700_000_000_000, 1_700_000_001_000) | st.just(-1)


def buffer(data: bytes) -> np.ndarray:
    made = padded(len(data))
    made[: len(data)] = np.frombuffer(bytes(data), np.uint8)
    made[len(data) :] = 0xFF  # the padding may hold anything
    return made


def contents(part: Columns, spans: Spans) -> list[bytes | None]:
    nulls = spans.nulls if spans.nulls is not None else np.zeros(len(spans.starts), bool)
    return [
        None if null else part.data[start:end].tobytes()
        for start, end, null in zip(spans.starts.tolist(), spans.ends.tolist(), nulls.tolist(), strict=True)
    ]


def as_records(parts: Iterable[Columns]) -> Iterator[Record]:
    for part in parts:
        headers: list[tuple] = [()] * len(part)
        if part.headers is not None:
            names = contents(part, part.headers.names)
            flat = iter(
                zip(
                    [(n or b"").decode("utf-8", "replace") for n in names],
                    contents(part, part.headers.values),
                    strict=True,
                )
            )
            headers = [tuple(next(flat) for _ in range(count)) for count in part.headers.counts.tolist()]
        keys, values = contents(part, part.keys), contents(part, part.values)
        for row in zip(part.offsets.tolist(), part.timestamps.tolist(), keys, values, headers, strict=True):
            yield Record(*row)


def decoded(data: bytes, **options: object) -> list[Record]:
    buf = buffer(data)
    scanned = scan(buf, len(data))
    return list(as_records(columns(buf, scanned, limit=LIMIT, **options)))  # type: ignore[arg-type]


def plain(data: bytes) -> list[Record]:
    """Decode with the decoder that is not vectorised."""
    found = []
    for position, head in batches(data):
        assert crc_is_valid(data, head, position)
        if not head.is_control:
            found += records(data, head, LIMIT, position)
    return [row._replace(timestamp=(row.timestamp + WRAP // 2) % WRAP - WRAP // 2) for row in found]


@st.composite
def logs(draw: st.DrawFn, max_batches: int = 8) -> bytes:
    """Batches as compaction leaves them: with gaps between batches and records, some of them empty."""
    offset = draw(st.sampled_from([0, 5, 2**40]))
    made = bytearray()
    for _ in range(draw(st.integers(0, max_batches))):
        base = offset
        listed = []
        for _ in range(draw(st.integers(0, 3))):
            listed.append(Record(offset, draw(TIMESTAMPS), draw(CONTENT), draw(CONTENT), draw(HEADERS)))
            offset += draw(st.integers(1, 3) | st.integers(1, 20000))
        made += encode_batch(
            listed,
            base_offset=base,
            last_offset=offset,
            codec=draw(st.sampled_from(Codec)) if listed else Codec.NONE,
            log_append_time_ms=draw(st.none() | st.just(1_700_000_000_000)),
        )
        offset += draw(st.integers(1, 1000))
    return bytes(made)


@given(logs(), st.integers(1, 9))
def test_records_are_those_of_the_plain_decoder(log: bytes, chunk_records: int) -> None:
    assert decoded(log, chunk_records=chunk_records) == plain(log)


@settings(max_examples=30)
@given(logs(max_batches=16))
def test_lockstep_and_walk_find_the_same(log: bytes) -> None:
    found = []
    few = fields.FEW
    for fields.FEW in (1, 10_000):  # type: ignore[misc]
        found.append(decoded(log))
    fields.FEW = few  # type: ignore[misc]
    assert found[0] == found[1] == plain(log)


@settings(max_examples=50)
@given(logs(), st.data())
def test_offsets_cut_within_batches(log: bytes, data: st.DataObject) -> None:
    everything = plain(log)
    offsets = [row.offset for row in everything] or [0]
    start = data.draw(st.sampled_from(offsets)) + data.draw(st.integers(-2, 2))
    end = data.draw(st.sampled_from(offsets)) + data.draw(st.integers(-2, 2))
    wanted = [row for row in everything if start <= row.offset < end]
    assert decoded(log, start_offset=start, end_offset=end) == wanted


@settings(max_examples=50)
@given(logs(max_batches=3), st.integers(0, 200))
def test_a_last_batch_that_is_cut_short_ends_the_scan(log: bytes, cut: int) -> None:
    short = log[: max(len(log) - cut, 0)]
    whole = [(position, head.size_bytes) for position, head in batches(short)]
    scanned = scan(buffer(short), len(short))
    assert list(zip(scanned.positions.tolist(), scanned.sizes.tolist(), strict=True)) == whole
    assert scanned.end == sum(size for _, size in whole)


def test_heads_are_those_of_the_plain_reader() -> None:
    listed = [Record(i, 1000 + i, None, b"v") for i in range(3)]
    log = encode_batch(listed, producer_id=7, producer_epoch=2, base_sequence=9, leader_epoch=4, transactional=True)
    (_, head), scanned = next(iter(batches(log))), scan(buffer(log), len(log))
    row = [
        scanned.base_offsets, scanned.sizes, scanned.leader_epochs, scanned.magics, scanned.crcs, scanned.attributes,
        scanned.last_offsets - scanned.base_offsets, scanned.base_timestamps, scanned.max_timestamps,
        scanned.producer_ids, scanned.producer_epochs, scanned.base_sequences, scanned.counts,
    ]  # fmt: skip
    assert tuple(int(column[0]) for column in row) == tuple(head)
    assert scanned.timestamp_types.tolist() == [0]


def reseal(log: bytearray) -> None:
    """Make the CRCs right, so that the bytes after them are looked at."""
    view = memoryview(log)
    for position, head in batches(bytes(log)):
        seal(view[position : position + head.size_bytes])


@given(logs(), st.randoms(use_true_random=False), st.booleans())
def test_mutated_bytes_are_the_same_records_or_an_error(log: bytes, source: random.Random, sealed: bool) -> None:
    mutated = bytearray(log)
    for _ in range(source.randint(1, 3)):
        if mutated:
            at = source.randrange(len(mutated))
            mutated[at] = source.choice([0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)])
    try:
        if sealed:
            reseal(mutated)
        expected = plain(bytes(mutated))
    except (CodedError, AssertionError):
        expected = None
    try:
        found = decoded(bytes(mutated))
    except DamagedBatch as error:
        assert 0 <= error.position <= len(mutated)
        return
    assert found == expected


def raw_batch(body: bytes, count: int, *, base_offset: int = 0, last_delta: int | None = None) -> bytes:
    batch = bytearray(HEADER_BYTES) + body
    last_delta = max(count - 1, 0) if last_delta is None else last_delta
    size = len(batch) - LOG_OVERHEAD_BYTES
    HEADER.pack_into(batch, 0, base_offset, size, 0, 2, 0, 0, last_delta, 1000, 1000, -1, -1, -1, count)
    seal(batch)
    return bytes(batch)


def varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def body_of(*parts: bytes) -> bytes:
    joined = b"".join(parts)
    return varint(len(joined)) + joined


MINUS_ONE = b"\x01"
BAD_BODIES = {
    "negative record length": varint(-7) + bytes(6),
    "length beyond the batch": varint(60) + bytes(6),
    "length short of the batch": body_of(b"\0\0\0", MINUS_ONE, MINUS_ONE, b"\0") + b"\0",
    "length of a gigabyte": varint(2**30) + bytes(10),
    "length with six bytes": b"\xff\xff\xff\xff\xff\x01" + bytes(6),
    "length above 32 bits": b"\xfe\xff\xff\xff\x7f" + bytes(6),
    "key of a gigabyte": body_of(b"\0\0\0", varint(2**30), MINUS_ONE, b"\0"),
    "key of size -2": body_of(b"\0\0\0", varint(-2), MINUS_ONE, b"\0"),
    "value beyond the record": body_of(b"\0\0\0", MINUS_ONE, varint(5), b"\0"),
    "value of size -2": body_of(b"\0\0\0", MINUS_ONE, varint(-2), b"\0"),
    "bytes after the headers": body_of(b"\0\0\0", MINUS_ONE, MINUS_ONE, b"\0\0"),
    "negative header count": body_of(b"\0\0\0", MINUS_ONE, MINUS_ONE, b"\x01"),
    "two billion headers": body_of(b"\0\0\0", MINUS_ONE, MINUS_ONE, varint(2**31 - 1)),
    "header without key": body_of(b"\0\0\0", MINUS_ONE, MINUS_ONE, varint(1), MINUS_ONE, MINUS_ONE),
    "header value beyond": body_of(b"\0\0\0", MINUS_ONE, MINUS_ONE, varint(1), varint(0), varint(4)),
    "header value of size -2": body_of(b"\0\0\0", MINUS_ONE, MINUS_ONE, varint(1), varint(0), varint(-2)),
    "bytes after a header": body_of(b"\0\0\0", MINUS_ONE, MINUS_ONE, varint(1), varint(0), varint(0), b"\0"),
    "timestamp of eleven bytes": body_of(b"\0" + b"\xff" * 10 + b"\0", b"\0", MINUS_ONE, MINUS_ONE, b"\0"),
    "timestamp above 64 bits": body_of(b"\0" + b"\xff" * 9 + b"\x02", b"\0", MINUS_ONE, MINUS_ONE, b"\0"),
    "offset delta beyond the last": body_of(b"\0\0", varint(1), MINUS_ONE, MINUS_ONE, b"\0"),
    "negative offset delta": body_of(b"\0\0", varint(-1), MINUS_ONE, MINUS_ONE, b"\0"),
    "empty record": b"\0" * 7,
}


@pytest.mark.parametrize("among", [0, 40])
@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_bad_record_is_reported_with_offset_and_position(name: str, among: int) -> None:
    """The record may be alone, or in lockstep with others before and after it."""
    good = [
        bytes(encode_batch([Record(i, 5, b"k", b"v", (("h", b"1"),))], base_offset=i)) for i in range(2 * among + 1)
    ]
    bad = raw_batch(BAD_BODIES[name], 1, base_offset=among)
    log = b"".join([*good[:among], bad, *good[among + 1 :]])
    with pytest.raises(DamagedBatch) as raised:
        decoded(log)
    assert (raised.value.base_offset, raised.value.position) == (among, sum(map(len, good[:among])))
    assert f"base offset {among}" in str(raised.value)


@pytest.mark.parametrize("count", [-1, 2, 2**31 - 1])
def test_a_wrong_record_count(count: int) -> None:
    body = body_of(b"\0\0\0", MINUS_ONE, MINUS_ONE, b"\0")
    with pytest.raises(DamagedBatch):
        decoded(raw_batch(body, count, last_delta=5))
    with pytest.raises(DamagedBatch):
        decoded(raw_batch(body, 0, last_delta=5))
    assert decoded(raw_batch(b"", 0, last_delta=5)) == []


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_that_compaction_emptied_may_have_a_codec(codec: Codec) -> None:
    """Kafka does not look into a batch without records."""
    empty = bytearray(encode_batch([], base_offset=0, last_offset=4))
    empty[22] = codec
    seal(empty)
    full = encode_batch([Record(5, 1, None, b"x")], base_offset=5, codec=codec)
    assert decoded(bytes(empty + full)) == [Record(5, 1, None, b"x")]


def test_varints_of_all_lengths() -> None:
    deltas = [0, 1, -1, *(sign * (1 << bits) for bits in range(5, 63) for sign in (1, -1)), 2**63 - 1, -(2**63)]
    listed = [Record(i, delta, None, None) for i, delta in enumerate(deltas)]
    body = bytearray()
    for i, delta in enumerate(deltas):
        write_record(body, i, delta, listed[i])
    found = decoded(raw_batch(bytes(body), len(deltas)))
    assert [row.timestamp for row in found] == [(1000 + d + WRAP // 2) % WRAP - WRAP // 2 for d in deltas]


def test_varints_need_not_be_short() -> None:
    for pad in range(1, 5):
        null = b"\x81" + b"\x80" * (pad - 1) + b"\x00"
        body = body_of(b"\0", b"\x80" * pad + b"\0", b"\x80" * pad + b"\0", null, null, b"\x80" * pad + b"\0")
        assert decoded(raw_batch(body, 1)) == [Record(0, 1000, None, None)]


def test_offsets_must_ascend_from_batch_to_batch() -> None:
    batch = encode_batch([Record(5, 0, None, b"")], base_offset=5)
    other = bytearray(batch)
    stamp(other, 4, 0)
    with pytest.raises(DamagedBatch, match=r"base offset 4 at position \d+"):
        decoded(bytes(batch + other))


def test_a_wrong_crc_is_reported() -> None:
    batch = encode_batch([Record(0, 0, None, b"abc")])
    batch[-2] ^= 1
    with pytest.raises(DamagedBatch, match="CRC"):
        decoded(bytes(batch))
    assert [row.value for row in decoded(bytes(batch), check_crcs=False)] == [b"abb"]


def test_what_decompresses_to_too_much_is_refused() -> None:
    body = bytearray()
    write_record(body, 0, 0, Record(0, 0, None, bytes(LIMIT)))
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        batch = bytearray(raw_batch(compress(codec, bytes(body)), 1))
        batch[22] = codec
        seal(batch)
        with pytest.raises(DamagedBatch, match="limit"):
            decoded(bytes(batch))
    batch[22] = 7
    seal(batch)
    with pytest.raises(DamagedBatch, match="codec 7"):
        decoded(bytes(batch))


# transactions


def transaction_log(script: list[tuple[str, int]]) -> tuple[bytes, list[tuple[int, int]], set[int]]:
    """The log, its aborted transactions, and the offsets that a read_committed reader gets."""
    log, aborted = bytearray(), []
    open_: dict[int, list[int]] = {}
    visible: set[int] = set()
    for offset, (what, producer) in enumerate(script):
        if what in ("data", "plain"):
            log += encode_batch(
                [Record(offset, 0, None, what.encode())], base_offset=offset, producer_id=producer, producer_epoch=0,
                base_sequence=0, transactional=what == "data",
            )  # fmt: skip
            if what == "data":
                open_.setdefault(producer, []).append(offset)
            else:
                visible.add(offset)
            continue
        marker = end_marker_batch(producer, 0, is_commit=what == "commit", coordinator_epoch=0, timestamp=0)
        stamp(marker, offset, 0)
        log += marker
        done = open_.pop(producer, [])
        if what == "commit":
            visible.update(done)
        elif done:
            aborted.append((producer, done[0]))
    for rest in open_.values():
        visible.update(rest)  # the reader stops at the last stable offset, which is not the decoder's matter
    return bytes(log), aborted, visible


SCRIPTS = st.lists(
    st.tuples(st.sampled_from(["data", "data", "commit", "abort", "plain"]), st.integers(1, 3)), max_size=40
)


@given(SCRIPTS, st.randoms(use_true_random=False))
def test_aborted_transactions_are_left_out(script: list[tuple[str, int]], source: random.Random) -> None:
    log, aborted, visible = transaction_log(script)
    source.shuffle(aborted)
    assert {row.offset for row in decoded(log, aborted=aborted)} == visible
    everything = {at for at, (what, _) in enumerate(script) if what in ("data", "plain")}
    assert {row.offset for row in decoded(log)} == everything


def test_a_control_batch_without_record_says_nothing() -> None:
    marker = bytearray(end_marker_batch(1, 0, is_commit=False, coordinator_epoch=0, timestamp=0))
    empty = encode_batch([], last_offset=1, base_offset=1, producer_id=1, transactional=True, control=True)
    data = [
        encode_batch([Record(i, 0, None, b"")], base_offset=i, producer_id=1, transactional=True) for i in (0, 2, 4)
    ]
    stamp(marker, 3, 0)
    log = bytes(data[0] + empty + data[1] + marker + data[2])
    assert [row.offset for row in decoded(log, aborted=[(1, 0)])] == [4]


# old formats


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 2]), st.sampled_from(list(Codec)[:4]), st.integers(1, 4), st.booleans()),
        max_size=6,
    ),
    st.integers(0, 30),
    st.integers(0, 30),
)
def test_old_formats(kinds: list[tuple[int, Codec, int, bool]], start: int, end: int) -> None:
    offset, log, wanted, types = 3, bytearray(), [], []
    for magic, codec, count, append_time in kinds:
        listed = [Record(offset + 2 * i, 1000 if append_time else 1000 + i, b"k", None) for i in range(count)]
        offset += 2 * count
        if magic == 2:
            log += encode_batch(
                listed, base_offset=listed[0].offset, codec=codec, log_append_time_ms=1000 if append_time else None
            )
        else:
            log += message_set.encode_set(listed, magic, codec=codec, log_append_time=append_time)
        wanted += [row if magic else row._replace(timestamp=-1) for row in listed]
        types += [(-1 if magic == 0 else int(append_time))] * count
    assert decoded(bytes(log)) == wanted
    assert decoded(bytes(log), start_offset=start, end_offset=end) == [r for r in wanted if start <= r.offset < end]
    buf = buffer(bytes(log))
    found = [kind for part in columns(buf, scan(buf, len(log))) for kind in part.timestamp_types.tolist()]
    assert found == types


def test_an_old_message_with_a_wrong_crc() -> None:
    log = bytearray(message_set.encode_set([Record(7, 0, b"k", b"v")], 1))
    log[-1] ^= 1
    with pytest.raises(DamagedBatch, match=r"base offset 7 at position 0.*CRC"):
        decoded(bytes(log))


# scan


def test_zeros_after_the_end_offset_do_not_matter() -> None:
    log = bytes(encode_batch([Record(0, 0, None, b"x")])) + bytes(100)
    buf = buffer(log)
    assert len(scan(buf, len(log), end_offset=1)) == 1
    with pytest.raises(DamagedBatch, match="position 69"):
        scan(buf, len(log))
    with pytest.raises(DamagedBatch, match="position 69"):
        scan(buf, len(log), end_offset=2)


@pytest.mark.parametrize("field", ["length", "magic", "base offset", "last offset delta"])
def test_a_head_that_is_none(field: str) -> None:
    log = bytearray(encode_batch([Record(0, 0, None, b"x")]))
    if field == "magic":
        log[16] = 3
    else:
        position, form, value = {
            "length": (8, ">i", 48),
            "base offset": (0, ">q", -1),
            "last offset delta": (23, ">i", -1),
        }[field]
        struct.pack_into(form, log, position, value)
    with pytest.raises(DamagedBatch):
        decoded(bytes(log))


def test_the_package_says_what_it_exports() -> None:
    assert set(columnar.__all__) <= set(vars(columnar))


# large batches


def large_batch(source: random.Random, count: int, value: bytes) -> bytes:
    listed = [
        Record(i, 1000 + source.randrange(300), None, value * source.randint(0, 3), (("h", b""),) * source.randrange(2))
        for i in range(count)
    ]
    return bytes(encode_batch(listed))


@pytest.mark.parametrize(
    "value", [b"text ", bytes(5), b"\x14\0\0\2\1\1\0\x14\0\0\4\1\1\0"], ids=["text", "zeros", "records"]
)
def test_large_batches_are_split_into_chains(value: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds even where the values look like records themselves, so that the places found are wrong."""
    source = random.Random(7)
    log = large_batch(source, 1500, value)
    following = bytearray(large_batch(source, 700, value))
    stamp(following, 1500, 0)
    log += following
    chains: list[int] = []
    split = columnar.decode.split

    def watched(*arguments: np.ndarray) -> tuple[np.ndarray, ...] | None:
        found = split(*arguments)
        chains.append(len(found[0]) if found is not None else 0)
        return found

    monkeypatch.setattr(columnar.decode, "split", watched)
    assert decoded(log) == plain(log)
    assert chains[0] > 10


def test_a_wrong_length_in_a_large_batch_is_reported() -> None:
    source = random.Random(8)
    log = bytearray(large_batch(source, 1500, b"abc"))
    for _ in range(40):
        damaged = bytearray(log)
        damaged[source.randrange(HEADER_BYTES, len(log))] ^= 1 << source.randrange(8)
        reseal(damaged)
        try:
            expected = plain(bytes(damaged))
        except CodedError:
            expected = None
        try:
            assert decoded(bytes(damaged)) == expected
        except DamagedBatch:
            continue
