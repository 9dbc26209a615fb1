"""The last offset of each key, in bounded memory: what compaction knows of the part of a log that it cleans now.

Keys become 16 bytes: short ones are filled up, with their length at the end; others are a BLAKE2b digest. No two keys
are ever taken for one, but with a chance of 2^-128. When the map is full, compaction stops at the offset it has
reached, and goes on from there the next time.

Few keys are in a dict, which is two to three times as fast, but takes eight times the room. When that has a quarter of
the memory, all go into a table with the slots of Kafka's `SkimpyOffsetMap`, which take 24 bytes each:

    bucket 0: 32 * 16 bytes of keys | bucket 1 | ...      32 * 8 bytes of offsets | ...      1 byte: slots taken | ...

A key is in the bucket that its hash names, or, as long as buckets are full, in the next one. Within a bucket it is
searched for as a string: that is one call, where probing slot by slot would be one for each.
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
"""Memory of an entry of the dict at most, measured when it has just doubled; some 140 are key and offset as objects."""
DICT_SHARE = 4

_ENDS = [bytes([size]) for size in range(KEY_BYTES)]


class OffsetMap:
    """`latest` is the highest offset that was looked at: nothing is known of later ones."""

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
        self._buckets = 0  # until the dict is given up
        self._keys = self._taken = bytearray()
        self._offsets = array("q")
        self._count = 0

    def __len__(self) -> int:
        return len(self._few) or self._count

    def put(self, key: bytes, offset: int) -> bool:
        """False, and nothing is changed, when the map is full."""
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
        """The last offset of the key, -1 when it is not known."""
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
            while at >= 0 and at & 15:  # the end of one key and the beginning of the next
                at = find(key, at + 1, end)
            if at >= 0:
                return at
            if count < BUCKET_SLOTS:
                return ~bucket
            bucket += 1
            if bucket == buckets:
                bucket = 0
        return ~bucket  # all slots are taken, and `capacity` is reached
