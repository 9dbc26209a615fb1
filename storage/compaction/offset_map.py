"""A map from each key to its last offset, in bounded memory, for the part of a log that is being compacted.

Keys become 16 bytes: short ones are padded, with their length at the end; others become a BLAKE2b digest. Two keys
collide with a chance of 2^-128. When the map is full, compaction stops at the offset reached, and continues from there
the next time.

A few keys are kept in a dict, which is two to three times as fast, but takes eight times the memory. When the dict has
used a quarter of the memory, all keys move to a table with the slots of Kafka's `SkimpyOffsetMap`, of 24 bytes each:

    bucket 0: 32 * 16 bytes of keys | bucket 1 | ...      32 * 8 bytes of offsets | ...      1 byte: slots taken | ...

A key is in the bucket selected by its hash, or, if that is full, in the next one with room. Within a bucket it is found
by a string search: one call, where probing the slots would take a call for each.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b

KEY_BYTES = 16
OFFSET_BYTES = 8
SLOT_BYTES = KEY_BYTES + OFFSET_BYTES
BUCKET_SLOTS = 32
BUCKET_BYTES = BUCKET_SLOTS * KEY_BYTES
DICT_ENTRY_BYTES = 192
"""The most memory of a dict entry, measured after the dict has doubled; key and offset objects take some 140."""
DICT_SHARE = 4

_ENDS = [bytes([size]) for size in range(KEY_BYTES)]


class OffsetMap:
    """The map. `latest` is the highest offset that was read; later records are unknown to it."""

    __slots__ = (
        "_buckets",
        "_count",
        "_few",
        "_keys",
        "_most_few",
        "_offsets",
        "_slots",
        "_taken",
        "capacity",
        "latest",
    )

    def __init__(self, memory_bytes: int, load_factor: float = 1.0) -> None:
        self._slots = max(1, memory_bytes // SLOT_BYTES)
        self.capacity = max(1, int(self._slots * load_factor))
        self.latest = -1
        self._few: dict[bytes, int] = {}
        self._most_few = min(self.capacity, memory_bytes // DICT_SHARE // DICT_ENTRY_BYTES)
        self._buckets = 0  # 0 while the dict is used
        self._keys = self._taken = bytearray()
        self._offsets = array("q")
        self._count = 0

    def __len__(self) -> int:
        return len(self._few) or self._count

    def put(self, key: bytes, offset: int) -> bool:
        """Set the offset of a key; return False, changing nothing, when the map is full."""
        size = len(key)
        if size >= KEY_BYTES:
            key = blake2b(key, digest_size=KEY_BYTES).digest()
        else:
            key = key.ljust(KEY_BYTES - 1, b"\0") + _ENDS[size]
        if not self._buckets:
            few = self._few
            if len(few) < self._most_few or key in few:
                few[key] = self.latest = offset
                return True
            self._give_dict_up()
        if not self._put(key, offset):
            return False
        self.latest = offset
        return True

    def get(self, key: bytes) -> int:
        """Return the last offset of the key, -1 when it is not known."""
        size = len(key)
        if size >= KEY_BYTES:
            key = blake2b(key, digest_size=KEY_BYTES).digest()
        else:
            key = key.ljust(KEY_BYTES - 1, b"\0") + _ENDS[size]
        if not self._buckets:
            return self._few.get(key, -1)
        at = self._find(key)
        return self._offsets[at >> 4] if at >= 0 else -1

    # The table

    def _give_dict_up(self) -> None:
        self._buckets = -(-self._slots // BUCKET_SLOTS)
        self._keys = bytearray(self._buckets * BUCKET_BYTES)
        self._offsets = array("q", [0]) * (self._buckets * BUCKET_SLOTS)
        self._taken = bytearray(self._buckets)
        few, self._few = self._few, {}
        while few:
            self._put(*few.popitem())

    def _put(self, key: bytes, offset: int) -> bool:
        at = self._find(key)
        if at < 0:
            if self._count >= self.capacity:
                return False
            bucket = ~at
            taken = self._taken[bucket]
            at = bucket * BUCKET_BYTES + taken * KEY_BYTES
            self._keys[at : at + KEY_BYTES] = key
            self._taken[bucket] = taken + 1
            self._count += 1
        self._offsets[at >> 4] = offset
        return True

    def _find(self, key: bytes) -> int:
        """Position of the key in `_keys`; where it is not there, the inverted number of the bucket that has room."""
        find, taken, buckets = self._keys.find, self._taken, self._buckets
        bucket = hash(key) % buckets
        for _ in range(buckets):
            start, count = bucket * BUCKET_BYTES, taken[bucket]
            end = start + count * KEY_BYTES
            at = find(key, start, end)
            while at >= 0 and at & 15:  # a match that spans two keys
                at = find(key, at + 1, end)
            if at >= 0:
                return at
            if count < BUCKET_SLOTS:
                return ~bucket
            bucket += 1
            if bucket == buckets:
                bucket = 0
        return ~bucket  # no slot is free: `capacity` is reached
