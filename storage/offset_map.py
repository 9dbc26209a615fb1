"""The last offset of each key, in bounded memory: what compaction knows of the part of a log that it cleans now.

Keys of fewer than 16 bytes are held as they are, others as a 16-byte BLAKE2b digest: no two keys are ever taken for one
(but with a chance of 2^-128), and an entry has a known size at most. When the map is full, compaction stops at the
offset it has reached, and goes on from there the next time.
"""

from __future__ import annotations

from hashlib import blake2b

DIGEST_BYTES = 16
ENTRY_BYTES = 192
"""Memory of an entry at most, measured when the hash table has just doubled; some 140 are key and offset as objects."""


class OffsetMap:
    """`latest` is the highest offset that was looked at: nothing is known of later ones."""

    __slots__ = ("_offsets", "capacity", "latest")

    def __init__(self, memory_bytes: int, load_factor: float = 1.0) -> None:
        self.capacity = max(1, int(memory_bytes * load_factor) // ENTRY_BYTES)
        self._offsets: dict[bytes, int] = {}
        self.latest = -1

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """False, and nothing is changed, when the map is full."""
        if len(key) >= DIGEST_BYTES:
            key = blake2b(key, digest_size=DIGEST_BYTES).digest()
        if len(self._offsets) >= self.capacity and key not in self._offsets:
            return False
        self._offsets[key] = self.latest = offset
        return True

    def get(self, key: bytes) -> int:
        """The last offset of the key, -1 when it is not known."""
        if len(key) >= DIGEST_BYTES:
            key = blake2b(key, digest_size=DIGEST_BYTES).digest()
        return self._offsets.get(key, -1)
