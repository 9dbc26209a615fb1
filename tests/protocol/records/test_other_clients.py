"""Klamm's batches and message sets against the record classes of kafka-python and aiokafka, in both directions."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import aiokafka.record.default_records
import aiokafka.record.legacy_records
import aiokafka.record.memory_records
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.protocol.records.batch import Record, crc_is_valid, encode_batch, read_header, records
from klamm.protocol.records.compression import Codec
from klamm.protocol.records.down_convert import down_convert
from klamm.protocol.records.validate import AppendRules, validate

with warnings.catch_warnings():  # kafka-python reads its resources in a deprecated way
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.record.default_records
    import kafka.record.legacy_records
    import kafka.record.memory_records

NOW = 1_700_000_000_000
LIMIT = 1 << 24
LIBRARIES = pytest.mark.parametrize("library", [kafka.record, aiokafka.record], ids=["kafka-python", "aiokafka"])
CONTENT = st.none() | st.binary(max_size=100)
HEADERS = st.lists(st.tuples(st.text(max_size=5), CONTENT), max_size=2).map(tuple)
# LZ4 in magic 0 needs a further package there, for the checksum that test_compression.py holds to known values
OLD_CODECS = {0: [Codec.NONE, Codec.GZIP, Codec.SNAPPY], 1: [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]}


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    count = draw(st.integers(1, 6))
    # an empty value is not drawn: some versions of these libraries do not tell it from none
    return [
        Record(
            index,
            draw(st.integers(NOW - 100_000, NOW)),
            draw(st.none() | st.binary(min_size=1, max_size=50)),
            draw(st.none() | st.binary(min_size=1, max_size=300)),
            draw(HEADERS),
        )
        for index in range(count)
    ]


def read_by(library: Any, data: bytes) -> list[Record]:
    """All records of `data`, as the library sees them."""
    reader = library.memory_records.MemoryRecords(data)
    found = []
    while (batch := reader.next_batch()) is not None:
        assert batch.validate_crc()
        found += [
            Record(r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value, tuple(map(tuple, r.headers)))
            for r in batch
        ]
    return found


def written_by(library: Any, made: Iterable[Record], magic: int, codec: Codec, **producer: int) -> bytes:
    if magic == 2:
        state = {"is_transactional": 0, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1} | producer
        builder = library.default_records.DefaultRecordBatchBuilder(
            magic=2, compression_type=codec, batch_size=1 << 20, **state
        )
    else:
        builder = library.legacy_records.LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for record in made:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


def old(made: list[Record], magic: int) -> list[Record]:
    return [record._replace(headers=(), timestamp=record.timestamp if magic else -1) for record in made]


@LIBRARIES
@given(made=record_lists(), codec=st.sampled_from(list(Codec)), base=st.integers(0, 2**40))
def test_they_read_our_batches(library: Any, made: list[Record], codec: Codec, base: int) -> None:
    moved = [record._replace(offset=base + 2 * record.offset) for record in made]
    batch = encode_batch(moved, codec=codec, base_offset=base, producer_id=7, producer_epoch=1, base_sequence=3)
    assert read_by(library, bytes(batch)) == moved


@LIBRARIES
@given(made=record_lists(), codec=st.sampled_from(list(Codec)))
def test_we_read_and_admit_their_batches(library: Any, made: list[Record], codec: Codec) -> None:
    data = written_by(library, made, 2, codec, producer_id=7, producer_epoch=1, base_sequence=3, is_transactional=1)
    header = read_header(data)
    assert crc_is_valid(data, header)
    assert list(records(data, header, LIMIT)) == made
    batch = validate(memoryview(data), AppendRules(), produce_version=7, now_ms=NOW)
    assert bytes(batch.data) == data
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 1, 3)


@LIBRARIES
@pytest.mark.parametrize("magic", [0, 1])
@given(made=record_lists(), data=st.data())
def test_they_read_our_message_sets(library: Any, magic: int, made: list[Record], data: st.DataObject) -> None:
    codec = data.draw(st.sampled_from(OLD_CODECS[magic]))
    converted = down_convert(encode_batch(made, codec=codec), magic)
    assert read_by(library, converted) == old(made, magic)


@LIBRARIES
@pytest.mark.parametrize("magic", [0, 1])
@given(made=record_lists(), data=st.data())
def test_we_admit_their_message_sets(library: Any, magic: int, made: list[Record], data: st.DataObject) -> None:
    codec = data.draw(st.sampled_from(OLD_CODECS[magic]))
    plain = [record._replace(headers=()) for record in made]
    packed = written_by(library, plain, magic, codec)
    batch = validate(memoryview(packed), AppendRules(), produce_version=magic + 1, now_ms=NOW)
    assert read_header(batch.data).codec is codec
    assert list(records(batch.data, read_header(batch.data), LIMIT)) == old(made, magic)
