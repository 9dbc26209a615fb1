"""The numbers in test comments are rows of the contract for bad input, "Network and bad input"."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import fields, replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.protocol.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
    RecordListTooLarge,
    UnsupportedCompressionType,
)
from klamm.protocol.records.batch import (
    HEADER_BYTES,
    Record,
    crc_is_valid,
    encode_batch,
    read_header,
    records,
    seal,
    stamp,
    write_varint,
)
from klamm.protocol.records.compression import Codec, compress
from klamm.protocol.records.message_set import encode_message, encode_set
from klamm.protocol.records.validate import AppendRules, ValidBatch, validate

NOW = 1_700_000_000_000
LIMIT = 1 << 24
RULES = AppendRules()
APPEND_TIME = AppendRules(log_append_time=True)
DAY = 86_400_000


def check(
    data: bytes | bytearray | memoryview | None, rules: AppendRules = RULES, version: int = 9, client: bool = True
) -> ValidBatch:
    view = data if data is None or isinstance(data, memoryview) else memoryview(data)
    batch = validate(view, rules, produce_version=version, now_ms=NOW, client=client)
    header = read_header(batch.data)
    assert crc_is_valid(batch.data, header)
    assert len(batch.data) == header.size_bytes == batch.size_bytes
    assert (header.max_timestamp, header.last_offset_delta) == (batch.max_timestamp, batch.last_offset_delta)
    assert header.record_count == batch.record_count
    assert (header.producer_id, header.base_sequence) == (batch.producer_id, batch.base_sequence)
    assert header.is_log_append_time == (batch.log_append_time_ms == NOW) == rules.log_append_time
    stamp(batch.data, 77, 5)  # must be writable
    stamp(batch.data, 0, -1)
    return batch


def some(count: int = 3, *, start: int = NOW) -> list[Record]:
    return [Record(i, start + i, b"k%d" % i, b"value %d" % i, (("h", b"x"),)) for i in range(count)]


def patched(batch: bytearray, position: int, layout: str, value: int) -> bytearray:
    """The batch with one header field changed and the CRC made right again."""
    changed = bytearray(batch)
    struct.pack_into(layout, changed, position, value)
    seal(changed)
    return changed


def with_body(body: bytes | bytearray, count: int = 1, codec: int = 0) -> bytearray:
    """A batch with a right header and CRC around any bytes."""
    batch = encode_batch([Record(i, NOW, None, None) for i in range(count)])[:HEADER_BYTES] + body
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    return patched(batch, 21, ">h", codec)


def body_of(*made: Record) -> bytearray:
    return encode_batch(list(made))[HEADER_BYTES:]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_good_batch_is_kept_as_the_callers_own_bytes(codec: Codec) -> None:
    sent = encode_batch(
        some(), codec=codec, producer_id=9, producer_epoch=1, base_sequence=4, transactional=True, leader_epoch=-1
    )
    before = bytes(sent)
    view = memoryview(sent)
    batch = validate(view, RULES, produce_version=9, now_ms=NOW)
    assert batch.data is view and bytes(sent) == before
    assert batch == ValidBatch(
        data=view,
        last_offset_delta=2,
        record_count=3,
        max_timestamp=NOW + 2,
        producer_id=9,
        producer_epoch=1,
        base_sequence=4,
        is_transactional=True,
        log_append_time_ms=-1,
        size_bytes=len(sent),
    )


def test_read_only_memory_is_copied() -> None:
    sent = bytes(encode_batch(some()))
    assert bytes(check(sent).data) == sent


def test_15_a_bad_crc_is_corrupt() -> None:
    good = encode_batch(some())
    for position in range(17, len(good)):
        broken = bytearray(good)
        broken[position] ^= 1
        with pytest.raises(CorruptMessage):
            check(broken)


def test_16_magic_9_is_corrupt_and_old_magic_in_a_new_version_invalid() -> None:
    good = encode_batch(some())
    for magic in (3, 9, 255):
        for version in (2, 3, 13):
            with pytest.raises(CorruptMessage, match="magic"):
                check(good[:16] + bytes([magic]) + good[17:], version=version)
    for magic in (0, 1):
        with pytest.raises(InvalidRecord, match="magic"):
            check(encode_set(some(20), magic), version=3)
        with pytest.raises(InvalidRecord, match="magic"):
            check(encode_set(some(1), magic), version=3)
        assert check(encode_set(some(1), magic), version=2).record_count == 1


@pytest.mark.parametrize(
    ("length", "error"),
    [
        (1 << 20, InvalidRecord),
        (2**31 - 1, InvalidRecord),
        (13, CorruptMessage),
        (0, CorruptMessage),
        (-1, CorruptMessage),
        (14, CorruptMessage),
        (48, CorruptMessage),
    ],
)
def test_17_batch_length_too_long_too_short_or_negative(length: int, error: type[KafkaError]) -> None:
    batch = encode_batch(some())
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(error):
        check(batch)


@pytest.mark.parametrize("version", [0, 2, 3, 9])
def test_18_19_empty_and_null_records_are_invalid(version: int) -> None:
    for nothing in (b"", None, b"\0", b"\0" * 11, bytes(8) + b"\0\0\1\0"):
        with pytest.raises(InvalidRecord):
            check(nothing, version=version)


@pytest.mark.parametrize(("claimed", "held"), [(5, 1), (1, 2), (0, 1), (-1, 1), (2**31 - 1, 1)])
def test_20_record_count_that_is_not_that_of_the_records(claimed: int, held: int) -> None:
    batch = encode_batch(some(held))
    with pytest.raises(InvalidRecord):
        check(patched(batch, 57, ">i", claimed))
    with pytest.raises(InvalidRecord):  # with a last offset delta that agrees
        check(patched(patched(batch, 23, ">i", (claimed - 1) & 0x7FFFFFFF), 57, ">i", claimed))


def test_20_last_offset_delta_that_is_not_the_count() -> None:
    for delta in (-1, 0, 1, 3, 2**31 - 1):
        with pytest.raises(InvalidRecord):
            check(patched(encode_batch(some(3)), 23, ">i", delta))


@pytest.mark.parametrize("codec", list(Codec))
def test_21_offset_deltas_that_are_not_consecutive_are_invalid(codec: Codec) -> None:
    for offsets in ((0, 2, 3), (1, 2, 3), (0, 1, 3)):
        made = [record._replace(offset=offset) for record, offset in zip(some(), offsets, strict=True)]
        batch = patched(encode_batch(made, codec=codec), 23, ">i", 2)
        with pytest.raises(InvalidRecord, match="offset delta"):
            check(batch)


def test_22_records_that_do_not_parse_are_invalid() -> None:
    whole = body_of(some(1)[0])
    negative = bytearray()
    write_varint(negative, -5)
    headers = bytearray(whole)
    headers[-5] = 3  # the header count: -2
    assert whole[-5] == 2
    for body in (
        whole[:-1],  # ends early
        whole + b"\0",  # goes on
        bytes([whole[0] + 2]) + whole[1:],  # size too large
        bytes([whole[0] - 2]) + whole[1:],  # size too small
        negative + whole[1:],
        b"\xff" * 12,
        headers,
        b"",
    ):
        for codec in Codec:
            with pytest.raises(InvalidRecord):
                check(with_body(compress(codec, body), codec=codec))


def test_23_two_batches_are_invalid() -> None:
    one = encode_batch(some())
    for second in (one, encode_batch(some(1)), encode_set(some(1), 1)):
        with pytest.raises(InvalidRecord, match="exactly one"):
            check(one + second)


@pytest.mark.parametrize("junk", [b"j", b"junk" * 6, b"junk" * 100, bytes(11), bytes(100), b"\xff" * 100])
def test_24_bytes_after_the_batch_are_dropped(junk: bytes) -> None:
    sent = encode_batch(some())
    assert bytes(check(sent + junk).data) == sent
    assert bytes(check(sent + sent[:-1]).data) == sent


def test_25_control_batches_from_a_client_are_invalid() -> None:
    marker = [Record(0, NOW, b"\0\0\0\1", b"\0\0\0\0\0\0")]
    batch = encode_batch(marker, control=True, transactional=True, producer_id=1, producer_epoch=0)
    with pytest.raises(InvalidRecord, match="control"):
        check(batch)
    assert read_header(check(batch, client=False).data).is_control
    # the broker's own are kept uncompressed
    assert bytes(check(batch, replace(RULES, compression="gzip"), client=False).data) == batch


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_26_unknown_codecs_are_unsupported(codec: int) -> None:
    with pytest.raises(UnsupportedCompressionType):
        check(patched(encode_batch(some()), 21, ">h", codec))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_26_compressed_junk_is_invalid(codec: Codec) -> None:
    for junk in (b"", b"junk", b"junk" * 50):
        with pytest.raises(InvalidRecord):
            check(with_body(junk, codec=codec))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_27_a_bomb_is_invalid(codec: Codec) -> None:
    rules = replace(RULES, max_decompressed_bytes=1 << 20)
    bomb = encode_batch([Record(0, NOW, None, bytes(1 << 20))], codec=codec)
    assert len(bomb) < 1 << 18
    with pytest.raises(InvalidRecord, match="limit"):
        check(bomb, rules)
    fits = encode_batch([Record(0, NOW, None, bytes(1_000_000))], codec=codec)
    assert check(fits, rules).record_count == 1
    wrapped = encode_set([Record(0, NOW, None, bytes(1 << 20))], 1, codec=codec) if codec < Codec.ZSTD else None
    if wrapped is not None:
        with pytest.raises(InvalidRecord, match="limit"):
            check(wrapped, rules, version=2)


def test_28_nested_compression_is_invalid() -> None:
    inner = encode_set(some(1), 1, codec=Codec.GZIP)
    nested = encode_message(1, 0, NOW, None, compress(Codec.GZIP, inner), Codec.GZIP)
    with pytest.raises(InvalidRecord) as caught:
        check(nested, version=2)
    assert [index for index, _ in caught.value.record_errors] == [0]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("timestamp", [NOW + DAY, 2**63 - 1, NOW + 3_600_001])
def test_29_a_timestamp_too_far_ahead(codec: Codec, timestamp: int) -> None:
    made = some()
    made[1] = made[1]._replace(timestamp=timestamp)
    with pytest.raises(InvalidTimestamp) as caught:
        check(encode_batch(made, codec=codec))
    ((index, text),) = caught.value.record_errors
    assert index == 1 and str(timestamp) in text
    if codec < Codec.ZSTD:
        with pytest.raises(InvalidTimestamp):
            check(encode_set(made, 1, codec=codec), version=2)


def test_29_timestamp_limits_are_inclusive() -> None:
    rules = replace(RULES, timestamp_before_max_ms=1000, timestamp_after_max_ms=500)
    for timestamp in (NOW - 1000, NOW + 500, NOW, -1):
        assert check(encode_batch(some(1, start=timestamp)), rules).max_timestamp == timestamp
        assert check(encode_set(some(1, start=timestamp), 1), rules, version=1).max_timestamp == timestamp
    for timestamp in (NOW - 1001, NOW + 501, 0, 2**63 - 1, -2, -(2**63)):
        with pytest.raises(InvalidTimestamp):
            check(encode_batch(some(1, start=timestamp)), rules)
        with pytest.raises(InvalidTimestamp):
            check(encode_set(some(1, start=timestamp), 1), rules, version=1)


def test_29_a_timestamp_beyond_64_bits_never_enters() -> None:
    # base timestamp and delta are 64-bit each, their sum need not be
    body = bytearray()
    content = bytearray(b"\0")
    write_varint(content, 2**62)
    content += b"\0\1\1\0"
    write_varint(body, len(content))
    batch = patched(with_body(body + content), 27, ">q", 2**63 - 1)
    with pytest.raises(InvalidTimestamp):
        check(batch, replace(RULES, timestamp_after_max_ms=2**63 - 1))
    assert check(batch, APPEND_TIME).max_timestamp == NOW


@pytest.mark.parametrize("codec", list(Codec))
def test_30_a_batch_over_max_message_bytes(codec: Codec) -> None:
    batch = encode_batch(some(), codec=codec)
    check(batch, replace(RULES, max_message_bytes=len(batch)))
    with pytest.raises(MessageTooLarge):
        check(batch, replace(RULES, max_message_bytes=len(batch) - 1))


def test_30_a_batch_that_gets_too_large_by_recompression_or_conversion() -> None:
    made = [Record(0, NOW, b"k", bytes(1000))]
    rules = replace(RULES, max_message_bytes=500, compression="uncompressed")
    with pytest.raises(MessageTooLarge):
        check(encode_batch(made, codec=Codec.GZIP), rules)
    with pytest.raises(MessageTooLarge):
        check(encode_set(made, 1, codec=Codec.GZIP), rules, version=2)
    each = encode_set([Record(i, NOW, None, b"v" * 100) for i in range(10)], 1)
    with pytest.raises(MessageTooLarge):
        check(each, replace(RULES, max_message_bytes=500), version=2)
    with pytest.raises(MessageTooLarge):
        check(each, replace(RULES, max_message_bytes=100), version=2)


@pytest.mark.parametrize("epoch_and_sequence", [(0, -1), (-1, 0), (-1, -1)])
def test_46_a_producer_id_without_sequence_or_epoch(epoch_and_sequence: tuple[int, int]) -> None:
    epoch, sequence = epoch_and_sequence
    batch = encode_batch(some(), producer_id=1, producer_epoch=epoch, base_sequence=sequence)
    with pytest.raises(InvalidRecord):
        check(batch)
    check(batch, client=False)


def test_a_transactional_batch_without_producer_id_is_invalid() -> None:
    with pytest.raises(InvalidRecord):
        check(encode_batch(some(), transactional=True))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_66_a_record_without_key_in_a_compacted_topic(codec: Codec) -> None:
    made = [record._replace(key=None) if record.offset % 2 else record for record in some(5)]
    compacted = replace(RULES, compacted=True)
    for data, version in ((encode_batch(made, codec=codec), 9), (encode_set(made, 1, codec=codec), 2)):
        check(data, version=version)
        with pytest.raises(InvalidRecord) as caught:
            check(data, compacted, version=version)
        assert [index for index, _ in caught.value.record_errors] == [1, 3]
        with pytest.raises(InvalidRecord):
            check(data, replace(compacted, log_append_time=True), version=version)
    check(encode_batch(some(5), codec=codec), compacted)


def test_66_a_timestamp_error_among_the_record_errors_names_the_code() -> None:
    made = some(3)
    made[0] = made[0]._replace(key=None)
    made[2] = made[2]._replace(timestamp=NOW + DAY)
    with pytest.raises(InvalidTimestamp) as caught:
        check(encode_batch(made), replace(RULES, compacted=True))
    assert [index for index, _ in caught.value.record_errors] == [0, 2]


def test_67_a_batch_over_segment_bytes() -> None:
    batch = encode_batch(some())
    before = bytes(batch)
    with pytest.raises(RecordListTooLarge):
        check(batch, replace(APPEND_TIME, segment_bytes=len(batch) - 1))
    assert batch == before
    with pytest.raises(RecordListTooLarge):
        check(encode_set(some(), 1), replace(RULES, segment_bytes=100), version=2)


def test_69_zstd_before_produce_7() -> None:
    batch = encode_batch(some(), codec=Codec.ZSTD)
    for version in (0, 2, 3, 6):
        with pytest.raises(UnsupportedCompressionType):
            check(batch, version=version)
    check(batch, version=7)


def test_base_offset_of_a_client_is_0() -> None:
    batch = encode_batch(some())
    stamp(batch, 5, -1)
    with pytest.raises(InvalidRecord, match="base offset"):
        check(batch)
    with pytest.raises(InvalidRecord, match="base offset"):
        check(batch, version=2)


# timestamps


def test_max_timestamp_in_the_header_is_set_right() -> None:
    made = [Record(i, NOW - delta, None, b"v") for i, delta in enumerate((5, 1, 9, 1))]
    good = encode_batch(made)
    for wrong in (0, NOW + 10 * DAY, -1):
        batch = check(patched(good, 35, ">q", wrong))
        assert bytes(batch.data) == good
        assert batch.max_timestamp == NOW - 1


def test_no_timestamps_at_all() -> None:
    batch = check(encode_batch([Record(i, -1, None, b"v") for i in range(2)]))
    assert batch.max_timestamp == -1
    strict = replace(RULES, timestamp_before_max_ms=1000)
    assert check(encode_batch([Record(0, -1, None, b""), Record(1, NOW, None, b"")]), strict).max_timestamp == NOW


@pytest.mark.parametrize("codec", list(Codec))
def test_log_append_time_changes_the_header_only(codec: Codec) -> None:
    sent = encode_batch(some(), codec=codec)
    before = bytes(sent)
    view = memoryview(sent)
    batch = validate(view, APPEND_TIME, produce_version=9, now_ms=NOW + 7)
    assert batch.data is view
    assert (batch.max_timestamp, batch.log_append_time_ms) == (NOW + 7, NOW + 7)
    header = read_header(view)
    assert header == read_header(before)._replace(attributes=codec | 8, max_timestamp=NOW + 7, crc=header.crc)
    assert crc_is_valid(view, header)
    assert bytes(view[HEADER_BYTES:]) == before[HEADER_BYTES:]
    assert [record.timestamp for record in records(view, header, LIMIT)] == [NOW + 7] * 3


def test_log_append_time_takes_any_timestamp_of_a_producer() -> None:
    assert check(encode_batch(some(2, start=NOW + 100 * DAY)), APPEND_TIME).max_timestamp == NOW
    assert check(encode_set(some(2, start=NOW + 100 * DAY), 1), APPEND_TIME, version=2).max_timestamp == NOW


def test_a_producer_must_not_set_log_append_time() -> None:
    marked = encode_batch(some(), log_append_time_ms=NOW)
    with pytest.raises(InvalidTimestamp) as caught:
        check(marked, APPEND_TIME)
    assert len(caught.value.record_errors) == 3
    with pytest.raises(InvalidTimestamp):
        check(encode_set(some(), 1, log_append_time=True), APPEND_TIME, version=2)
    # with CreateTime the mark is removed, and what the records say is what counts
    assert bytes(check(marked).data) == encode_batch(some())
    with pytest.raises(InvalidTimestamp):
        check(encode_batch(some(start=NOW + DAY), log_append_time_ms=NOW))


# compression.type


@pytest.mark.parametrize("sent_codec", list(Codec))
@pytest.mark.parametrize("wanted", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("append_time", [False, True])
def test_only_another_codec_means_recompression(sent_codec: Codec, wanted: str, append_time: bool) -> None:
    rules = replace(RULES, compression=wanted, log_append_time=append_time)
    target = sent_codec if wanted == "producer" else Codec[wanted.upper().replace("UNCOMPRESSED", "NONE")]
    sent = encode_batch(some(), codec=sent_codec, producer_id=3, producer_epoch=0, base_sequence=8, transactional=True)
    view = memoryview(sent)
    batch = check(view, rules)
    header = read_header(batch.data)
    assert header.codec is target
    assert (batch.data is view) == (target is sent_codec)
    assert (header.producer_id, header.base_sequence, header.is_transactional) == (3, 8, True)
    expected = [record._replace(timestamp=NOW) for record in some()] if append_time else some()
    assert list(records(batch.data, header, LIMIT)) == expected


def test_the_level_is_used() -> None:
    made = [Record(i, NOW + i, b"%d" % (i * 7919), b"value %d" % (i * i)) for i in range(500)]
    sizes = [
        check(encode_batch(made), replace(RULES, compression="gzip", compression_level=level)).size_bytes
        for level in (1, 9)
    ]
    assert sizes[0] > sizes[1]


# message sets


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("wanted", ["producer", "uncompressed", "zstd"])
@pytest.mark.parametrize("append_time", [False, True])
def test_message_sets_become_one_batch(magic: int, codec: Codec, wanted: str, append_time: bool) -> None:
    made = [Record(i, NOW - 3 + i, b"k%d" % i, None if i == 2 else b"v") for i in range(4)]
    rules = replace(RULES, compression=wanted, log_append_time=append_time)
    batch = check(encode_set(made, magic, codec=codec), rules, version=1)
    header = read_header(batch.data)
    assert header.codec is {"producer": codec, "uncompressed": Codec.NONE, "zstd": Codec.ZSTD}[wanted]
    timestamps = [NOW] * 4 if append_time else [r.timestamp for r in made] if magic else [-1] * 4
    expected = [r._replace(timestamp=t) for r, t in zip(made, timestamps, strict=True)]
    assert list(records(batch.data, header, LIMIT)) == expected
    assert batch.max_timestamp == (NOW if append_time or magic else -1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)


def test_a_new_batch_in_an_old_version_is_taken_as_it_is() -> None:
    sent = encode_batch(some())
    assert bytes(check(sent, version=0).data) == sent


# anything


@st.composite
def good_inputs(draw: st.DrawFn) -> bytes:
    made = some(draw(st.integers(1, 4)))
    codec = draw(st.sampled_from(list(Codec)))
    if draw(st.booleans()) or codec == Codec.ZSTD:
        producer = draw(st.sampled_from([-1, 5]))
        return bytes(encode_batch(made, codec=codec, producer_id=producer, producer_epoch=0, base_sequence=producer))
    return encode_set(made, draw(st.integers(0, 1)), codec=codec)


RULE_SETS = st.builds(
    AppendRules,
    log_append_time=st.booleans(),
    compacted=st.booleans(),
    compression=st.sampled_from(["producer", "uncompressed", "gzip"]),
    timestamp_before_max_ms=st.sampled_from([1000, 2**63 - 1]),
    timestamp_after_max_ms=st.sampled_from([1000, 2**63 - 1]),
    max_decompressed_bytes=st.just(10_000),
)


@given(good_inputs(), RULE_SETS, st.integers(0, 13), st.data())
def test_mutated_input_is_refused_with_a_kafka_error_or_is_a_good_batch(
    good: bytes, rules: AppendRules, version: int, data: st.DataObject
) -> None:
    sent = bytearray(good)
    mutate: list[Callable[[int], None]] = [
        lambda at: sent.__setitem__(at, data.draw(st.integers(0, 255))),
        sent.__delitem__,
        lambda at: sent.insert(at, data.draw(st.integers(0, 255))),
        lambda at: sent.__delitem__(slice(at, None)),
    ]
    for _ in range(data.draw(st.integers(1, 3))):
        if sent:
            at = data.draw(st.integers(0, len(sent) - 1))
            data.draw(st.sampled_from(mutate))(at)
    if len(sent) > HEADER_BYTES and data.draw(st.booleans()):
        if data.draw(st.booleans()):
            struct.pack_into(">i", sent, 8, len(sent) - 12)
        if sent[16] == 2:
            seal(sent)
    try:
        batch = check(sent, rules, version)
    except KafkaError:
        return
    entered = list(records(batch.data, read_header(batch.data), LIMIT))
    assert [record.offset for record in entered] == list(range(batch.record_count))
    assert max(*(record.timestamp for record in entered), -1) == batch.max_timestamp
    assert not (rules.compacted and any(record.key is None for record in entered))


@given(st.binary(max_size=200), st.integers(0, 13))
def test_random_input_is_refused_with_a_kafka_error(data: bytes, version: int) -> None:
    with pytest.raises(KafkaError):
        check(data, version=version)


RULE_SETS = (
    RULES,
    APPEND_TIME,
    AppendRules(compacted=True),
    AppendRules(compression="uncompressed"),
    AppendRules(compression="lz4"),
    AppendRules(max_message_bytes=150),
    AppendRules(segment_bytes=150),
    AppendRules(timestamp_before_max_ms=1000, timestamp_after_max_ms=1000),
)
EXTREMES = (0, 1, -1, -2, 2**15 - 1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), NOW, NOW - 1)
FIELDS = {0: 8, 8: 4, 16: 1, 17: 4, 21: 2, 23: 4, 27: 8, 35: 8, 43: 8, 51: 2, 53: 4, 57: 4}  # position and size
SMALL = st.builds(
    lambda timestamps, key, size: [Record(i, NOW + shift, key, bytes(size), ()) for i, shift in enumerate(timestamps)],
    st.lists(st.sampled_from([0, 1, -1, 900, 1100, -900, -1100, -NOW - 1]), min_size=1, max_size=4),
    st.sampled_from([None, b"", b"key"]),
    st.sampled_from([0, 10, 100, 5000]),
)
CHANGES = st.lists(
    st.tuples(st.just("field"), st.sampled_from(sorted(FIELDS)), st.sampled_from(EXTREMES))
    | st.tuples(st.just("byte"), st.integers(0, 200), st.integers(0, 255))
    | st.tuples(st.just("cut"), st.integers(1, 70), st.just(0)),
    max_size=3,
)


@given(SMALL, CHANGES, st.booleans(), st.sampled_from(RULE_SETS), st.sampled_from([2, 3, 9]), st.booleans())
def test_the_short_way_of_a_plain_batch_says_what_the_long_one_says(
    content: list[Record],
    changes: list[tuple[str, int, int]],
    is_sealed: bool,
    rules: AppendRules,
    version: int,
    client: bool,
) -> None:
    batch = encode_batch(content)
    for kind, at, value in changes:
        if kind == "field":
            size = FIELDS[at]
            if at + size <= len(batch):
                batch[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "big")
        elif kind == "byte":
            batch[at % len(batch)] = value
        elif len(batch) > at:
            del batch[-at:]
    if is_sealed and len(batch) > HEADER_BYTES:
        seal(batch)

    def outcome() -> tuple[object, ...]:
        data = memoryview(bytearray(batch))
        try:
            found = validate(data, rules, produce_version=version, now_ms=NOW, client=client)
        except KafkaError as error:
            return (type(error), error.message, getattr(error, "record_errors", None))
        return (bytes(found.data), *[getattr(found, each.name) for each in fields(found)[1:]])

    with patch("klamm.protocol.records.validate.plain_batch", lambda _: None):
        expected = outcome()
    assert outcome() == expected


def test_a_plain_batch_goes_the_short_way_and_only_that() -> None:
    def no_other(*_: object) -> None:
        raise AssertionError("the long way")

    with patch("klamm.protocol.records.validate.check_records", no_other):
        check(encode_batch(some()))
        for other in (encode_batch(some(), codec=Codec.LZ4), patched(encode_batch(some()), 35, ">q", NOW + 9)):
            with pytest.raises(AssertionError, match="the long way"):
                check(other)
    readonly = memoryview(bytes(encode_batch(some())))
    assert bytes(check(readonly).data) == bytes(readonly)
