"""Arrow batches hold what the log holds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.pipeline.arrow import SCHEMA, SCHEMA_WITH_HEADERS, record_batches
from klamm.protocol.errors import InvalidRecord
from klamm.protocol.records.batch import Record, encode_batch
from klamm.protocol.records.columnar import columns, padded, scan
from klamm.protocol.records.compression import Codec

CONTENT = st.none() | st.binary(max_size=100)
HEADERS = st.lists(st.tuples(st.sampled_from(["", "a", "ä"]), CONTENT), max_size=3).map(tuple)


def table(log: bytes, *, headers: bool = True, chunk_records: int = 8192) -> pa.Table:
    data = padded(len(log))
    data[: len(log)] = np.frombuffer(log, np.uint8)
    parts = columns(data, scan(data, len(log)), chunk_records=chunk_records)
    schema = SCHEMA_WITH_HEADERS if headers else SCHEMA
    found = pa.Table.from_batches(record_batches(parts, "t", 3, headers=headers), schema)
    found.validate(full=True)
    return found


@given(
    st.lists(
        st.lists(st.tuples(st.integers(-1, 2**53), CONTENT, CONTENT, HEADERS), min_size=1, max_size=4), max_size=5
    ),
    st.sampled_from(Codec),
    st.integers(1, 5),
)
def test_rows_are_the_records(batches: list[list[tuple]], codec: Codec, chunk_records: int) -> None:
    log, listed = b"", []
    for batch in batches:
        first = len(listed)
        listed += [Record(first + i, *row) for i, row in enumerate(batch)]
        log += encode_batch(listed[first:], codec=codec, base_offset=first)
    found = table(log, chunk_records=chunk_records)
    micros = found["timestamp"].cast(pa.int64()).to_pylist()
    assert micros == [row.timestamp * 1000 for row in listed]
    assert found.drop_columns(["timestamp"]).to_pylist() == [
        {
            "key": row.key,
            "value": row.value,
            "topic": "t",
            "partition": 3,
            "offset": row.offset,
            "timestampType": 0,
            "headers": [{"key": key, "value": value} for key, value in row.headers] or None,
        }
        for row in listed
    ]
    assert table(log, headers=False) == found.drop_columns(["headers"])


def test_append_time_is_a_type_of_its_own() -> None:
    found = table(encode_batch([Record(0, 5, None, b"")], log_append_time_ms=7))
    assert (found["timestampType"].to_pylist(), found["timestamp"].cast(pa.int64()).to_pylist()) == ([1], [7000])


def test_a_header_key_that_is_not_utf8() -> None:
    log = bytearray(encode_batch([Record(0, 5, None, None, (("k", b"v"), ("x", None)))]))
    log[log.index(b"\x02k") + 1] = 0xFF
    data = padded(len(log))
    data[: len(log)] = np.frombuffer(bytes(log), np.uint8)
    (batch,) = record_batches(columns(data, scan(data, len(log)), check_crcs=False), "t", 0, headers=True)
    assert batch["headers"].to_pylist() == [[{"key": "\ufffd", "value": b"v"}, {"key": "x", "value": None}]]


@pytest.mark.parametrize("timestamp", [2**62, -(2**62)])
def test_a_timestamp_that_does_not_fit_into_microseconds_is_an_error(timestamp: int) -> None:
    with pytest.raises(InvalidRecord, match=f"offset 1: timestamp {timestamp}"):
        table(encode_batch([Record(0, 0, None, None), Record(1, timestamp, None, None)]))


def test_positions_above_two_gigabytes() -> None:
    """Arrow's have 32 bits; only the pages that are written to take memory."""
    log = encode_batch([Record(0, 5, b"key", b"value", (("h", b"1"),)), Record(1, 5, None, b"")])
    at = 2**31 + 100
    data = padded(at + len(log))
    data[at : at + len(log)] = np.frombuffer(log, np.uint8)
    (batch,) = record_batches(columns(data, scan(data, at + len(log), at)), "t", 0, headers=True)
    assert (batch["key"].to_pylist(), batch["value"].to_pylist()) == ([b"key", None], [b"value", b""])
    assert batch["headers"].to_pylist() == [[{"key": "h", "value": b"1"}], None]
