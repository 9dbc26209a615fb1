"""The offset map between source and target: MirrorMaker 2's offset syncs and checkpoints, written and read.

    mm2-offset-syncs.<alias>.internal    key: topic string, partition int32      value: upstream int64, downstream int64
    <alias>.checkpoints.internal         key: group string, topic string, partition int32
                                         value: version int16 (0), upstream int64, downstream int64, metadata string

Strings are a length (int16) and UTF-8, numbers big-endian. Both topics are at the target, named by the alias of the
source, compacted, with one partition. The topic of a sync is the source's, that of a checkpoint the target's.

A sync (upstream, downstream) says: a consumer that would read `upstream` next at the source reads `downstream` next at
the target. A consumer further on does not belong before `downstream` + 1 (MirrorMaker reads it so). Syncs are written
within the transactions that copy. The last one of a transaction is the point at which the copy continues, so the
progress is known even after the group that holds it has expired. Their downstream is -1 if one source partition goes to
many.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from klamm.pipeline.ranges import TopicPartition

COMPACTED: Final = {"cleanup.policy": "compact"}
CHECKPOINT_VERSION: Final = 0
NOWHERE: Final = -1
"""The downstream of a source partition that goes to several partitions."""
MAX_KEPT: Final = 4096
"""The most runs kept of a partition, for exact answers."""

_LENGTH = struct.Struct(">h")
_PARTITION = struct.Struct(">i")
_OFFSETS = struct.Struct(">qq")
_CHECKPOINT = struct.Struct(">hqq")


def syncs_topic(alias: str) -> str:
    return f"mm2-offset-syncs.{alias}.internal"


def checkpoints_topic(alias: str) -> str:
    return f"{alias}.checkpoints.internal"


@dataclass(frozen=True, slots=True)
class Run:
    """`count` offsets from `upstream` on that became as many from `downstream` on. 0: only the start is known."""

    upstream: int
    downstream: int
    count: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The offset of a group at the source (`upstream`), and the matching one at the target."""

    group: str
    partition: TopicPartition
    upstream: int
    downstream: int
    metadata: str = ""


def sync_key(partition: TopicPartition) -> bytes:
    return _text(partition.topic) + _PARTITION.pack(partition.partition)


def sync_value(upstream: int, downstream: int) -> bytes:
    return _OFFSETS.pack(upstream, downstream)


def read_sync(key: bytes, value: bytes) -> tuple[TopicPartition, int, int]:
    """Return the partition of the source, upstream and downstream. Raises ValueError for anything that is no sync."""
    try:
        topic, at = _read_text(key, 0)
        (partition,) = _PARTITION.unpack_from(key, at)
        return TopicPartition(topic, partition), *_OFFSETS.unpack(value)
    except struct.error as error:
        raise ValueError(str(error)) from None


def checkpoint_key(checkpoint: Checkpoint) -> bytes:
    partition = checkpoint.partition
    return _text(checkpoint.group) + _text(partition.topic) + _PARTITION.pack(partition.partition)


def checkpoint_value(checkpoint: Checkpoint) -> bytes:
    head = _CHECKPOINT.pack(CHECKPOINT_VERSION, checkpoint.upstream, checkpoint.downstream)
    return head + _text(checkpoint.metadata)


@dataclass(slots=True)
class Translation:
    """The known runs of one source partition, in ascending order."""

    runs: list[Run] = field(default_factory=list)
    _upstreams: list[int] = field(default_factory=list)

    def add(self, runs: Iterable[Run]) -> None:
        """Add later runs. A copy that started over further back replaces the runs from there on."""
        for run in runs:
            if run.downstream == NOWHERE:
                continue
            while self.runs and self.runs[-1].upstream >= run.upstream:
                self.runs.pop()
                self._upstreams.pop()
            self.runs.append(run)
            self._upstreams.append(run.upstream)
        if len(self.runs) > MAX_KEPT:
            self.runs, self._upstreams = self.runs[-MAX_KEPT // 2 :], self._upstreams[-MAX_KEPT // 2 :]

    def downstream(self, upstream: int) -> int | None:
        """Return the offset to continue from at the target after reading up to `upstream`; None if unknown.

        It is exact within a run. After a run it is the first possible offset, so a consumer may read records again but
        never misses any.
        """
        at = bisect_right(self._upstreams, upstream) - 1
        if at < 0:
            return None
        run = self.runs[at]
        return run.downstream + min(upstream - run.upstream, run.count)


def _text(text: str) -> bytes:
    content = text.encode()
    return _LENGTH.pack(len(content)) + content


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    if size < 0 or at + size > len(data):
        raise ValueError(f"a string of {size} bytes in {len(data) - at}")
    return data[at : at + size].decode(), at + size
