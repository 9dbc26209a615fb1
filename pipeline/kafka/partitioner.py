"""Kafka's default partitioner, for many keys at once.

    partitions_of(keys, 12)                # of an Arrow array of binary; -1 for records without a key

The hash is murmur2 (32 bits, Austin Appleby's MurmurHash2 with Kafka's seed), its sign dropped, modulo the number of
partitions. All keys are hashed in lockstep, four bytes a step.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SEED: Final = 0x9747B28C
FACTOR: Final = np.uint32(0x5BD1E995)
NO_KEY: Final = -1
_WORD_BYTES: Final = 4

Int64s = npt.NDArray[np.int64]


def partitions_of(keys: Any, count: int) -> Int64s:
    """Return the partition of each key, NO_KEY where the key is null."""
    assert count > 0 and keys.type == pa.binary()
    if len(keys) == 0:
        return np.empty(0, np.int64)
    _, offsets, content = keys.buffers()
    at = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    data = np.zeros(int(at[-1] - at[0]) + _WORD_BYTES, np.uint8)
    if content is not None:
        data[:-_WORD_BYTES] = np.frombuffer(content, np.uint8)[at[0] : at[-1]]
    hashes = murmur2(data, at[:-1] - at[0], at[1:] - at[0])
    found = of_hashes(hashes, count)
    if keys.null_count:
        found[keys.is_null().to_numpy(zero_copy_only=False)] = NO_KEY
    return found


def of_hashes(hashes: npt.NDArray[np.uint32], count: int) -> Int64s:
    """Return the partitions of hashes."""
    found: Int64s = (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
    return found


def murmur2(data: npt.NDArray[np.uint8], starts: Int64s, ends: Int64s) -> npt.NDArray[np.uint32]:
    """Return the hash of each span [starts, ends). Four readable bytes must follow the last span."""
    sizes = ends - starts
    order = np.argsort(-sizes, kind="stable")
    words = np.ndarray((len(data) - _WORD_BYTES + 1,), "<u4", data, 0, (1,))
    at, left = starts[order], sizes[order]
    hashes = np.uint32(SEED) ^ left.astype(np.uint32)
    full = left // _WORD_BYTES
    for step in range(int(full[0]) if len(full) else 0):
        active = int(np.searchsorted(-full, -step, side="left"))
        word = words[at[:active] + _WORD_BYTES * step] * FACTOR
        word ^= word >> np.uint32(24)
        hashes[:active] = (hashes[:active] * FACTOR) ^ (word * FACTOR)
    rest = left % _WORD_BYTES
    mask = ((np.uint64(1) << (rest * 8).astype(np.uint64)) - np.uint64(1)).astype(np.uint32)
    tails = words[at + full * _WORD_BYTES] & mask
    hashes = np.where(rest > 0, (hashes ^ tails) * FACTOR, hashes)
    hashes ^= hashes >> np.uint32(13)
    hashes *= FACTOR
    hashes ^= hashes >> np.uint32(15)
    found = np.empty_like(hashes)
    found[order] = hashes
    return found
