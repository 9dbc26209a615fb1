"""Batches made of columns hold what the columns hold."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from klamm.pipeline.kafka.encoding import EncodedBatch, encode_batches, header_tails
from klamm.protocol.records.batch import Header, Record, crc_is_valid, encode_batch, read_header, records
from klamm.protocol.records.compression import Codec

LIMIT = 1 << 30
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

content = st.none() | st.binary(max_size=200)
header = st.tuples(st.text(max_size=4), content)
Row = tuple[int, bytes, bytes, tuple[Header, ...]]
record = st.tuples(st.integers(-1, 2**62), content, content, st.lists(header, max_size=3).map(tuple))


def encoded(rows: list[Record], codec: Codec, batch_bytes: int, *, headers: bool = True) -> list[EncodedBatch]:
    return list(
        encode_batches(
            pa.array([row.key for row in rows], pa.binary()),
            pa.array([row.value for row in rows], pa.binary()),
            np.array([row.timestamp for row in rows], np.int64),
            header_tails(pa.array([[{"key": k, "value": v} for k, v in row.headers] for row in rows], HEADERS))
            if headers
            else None,
            codec=codec,
            batch_bytes=batch_bytes,
        )
    )


@given(st.lists(record, max_size=40), st.sampled_from(Codec), st.sampled_from([200, 1000, 1 << 20]))
def test_what_goes_in_comes_out(rows: list[Row], codec: Codec, batch_bytes: int) -> None:
    given_ = [Record(0, *row) for row in rows]
    found: list[Record] = []
    for batch in encoded(given_, codec, batch_bytes):
        header = read_header(batch.data)
        assert crc_is_valid(batch.data, header)
        assert (batch.first, batch.count) == (len(found), header.record_count)
        assert header.last_offset_delta == header.record_count - 1
        inside = list(records(batch.data, header, LIMIT))
        assert [one.offset for one in inside] == list(range(len(inside)))
        assert header.max_timestamp == max(one.timestamp for one in inside)
        if not header.is_compressed:
            assert header.size_bytes <= batch_bytes or header.record_count == 1
        found += inside
    assert [row._replace(offset=0) for row in found] == given_


@given(st.lists(record, min_size=1, max_size=10))
def test_bytes_are_those_of_the_plain_encoder(rows: list[Row]) -> None:
    given_ = [Record(at, *row) for at, row in enumerate(rows)]
    (batch,) = encoded(given_, Codec.NONE, 1 << 20)
    assert batch.data == encode_batch(given_)


def test_without_headers() -> None:
    (batch,) = encoded([Record(0, 5, b"k", None), Record(1, 4, None, b"")], Codec.NONE, 1000, headers=False)
    assert batch.data == encode_batch([Record(0, 5, b"k", None), Record(1, 4, None, b"")])


def test_slices_and_lists_that_are_null() -> None:
    lists = pa.array([[{"key": "x", "value": b"1"}], None, [], [{"key": "a", "value": None}]], HEADERS)
    assert header_tails(lists).to_pylist() == [b"\x02\x02x\x021", b"\x00", b"\x00", b"\x02\x02a\x01"]
    assert header_tails(lists.slice(1)).to_pylist() == [b"\x00", b"\x00", b"\x02\x02a\x01"]


def test_no_rows_no_batch() -> None:
    assert encoded([], Codec.NONE, 1000) == []
