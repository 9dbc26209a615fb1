"""The partition of a key is the one that Kafka's clients choose."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as reference

from klamm.pipeline.kafka.partitioner import NO_KEY, partitions_of

KNOWN = [  # (key, murmur2 as a signed number), from Apache Kafka's own test of the hash
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("key", "signed"), KNOWN)
def test_known_hashes(key: bytes, signed: int) -> None:
    count = 2**31 - 1
    assert partitions_of(pa.array([key], pa.binary()), count).tolist() == [(signed & 0x7FFFFFFF) % count]


@given(st.lists(st.none() | st.binary(max_size=40), max_size=30), st.integers(1, 100), st.integers(0, 3))
def test_equals_a_client_for_any_keys(keys: list[bytes | None], count: int, skipped: int) -> None:
    column = pa.array(keys, pa.binary()).slice(skipped)
    wanted = [NO_KEY if key is None else (reference(key) & 0x7FFFFFFF) % count for key in keys[skipped:]]
    assert np.array_equal(partitions_of(column, count), np.array(wanted, np.int64))
