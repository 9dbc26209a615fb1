"""Log directories with the interface of a cluster: topics, first and last offsets, offsets by time.

A time is looked up in the records, not in the time index alone, which may lag. Only segments with a last index entry
(the newest timestamp in them) that is too old are skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final

from klamm.pipeline.errors import UnknownTopic
from klamm.pipeline.kafka.cluster import READ_COMMITTED, Topic
from klamm.pipeline.ranges import OffsetRange, TopicPartition
from klamm.pipeline.segments import LogDirs, read_columns
from klamm.pipeline.segments.files import Segment
from klamm.pipeline.segments.retries import retried
from klamm.storage.paths import TIME_INDEX_SUFFIX

TIME_ENTRY: Final = struct.Struct(">qi")  # timestamp, relative offset


class DirectoryLogs:
    """The logs in some directories. Offsets are the current ones; no broker is asked."""

    def __init__(self, directories: Iterable[str]) -> None:
        self.logs = LogDirs(directories)

    @property
    def place(self) -> str:
        """Return the directories, for messages."""
        return ", ".join(map(str, self.logs.directories))

    def topics(self, names: Iterable[str] | None = None, *, missing_ok: bool = False) -> dict[str, Topic]:
        found = {}
        for name, numbers in self.logs.topics(internal=names is not None).items():
            topic_id = self.logs.topic_id(TopicPartition(name, numbers[0]))
            found[name] = Topic(name, topic_id, tuple(numbers))
        if names is None:
            return found
        wanted = list(names)
        missing = [name for name in wanted if name not in found]
        if missing and not missing_ok:
            raise UnknownTopic(f"topic {missing[0]} does not exist in {self.place}")
        return {name: found[name] for name in sorted(wanted) if name in found}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.logs.start_offset(partition) for partition in partitions}

    def latest(
        self, partitions: Iterable[TopicPartition], isolation: int = READ_COMMITTED
    ) -> dict[TopicPartition, int]:
        committed = isolation == READ_COMMITTED
        return {partition: self.logs.end_offset(partition, read_committed=committed) for partition in partitions}

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], isolation: int = READ_COMMITTED
    ) -> dict[TopicPartition, int | None]:
        ends = self.latest(times_ms, isolation)
        starts = self.earliest(times_ms)
        return {
            partition: self._first_since(OffsetRange(*partition, starts[partition], ends[partition]), time_ms)
            for partition, time_ms in times_ms.items()
        }

    def _first_since(self, within: OffsetRange, time_ms: int) -> int | None:
        """Return the offset of the first record at or after a time; as with a broker, aborted records count."""
        partition = within.topic_partition
        for segment in retried(lambda: self.logs.segments(partition), str(partition)):
            after = segment.next_base_offset
            start = max(within.start, segment.base_offset)
            end = within.end if after is None else min(within.end, after)
            if start >= end or (after is not None and _newest_ms(segment) < time_ms):
                continue
            for piece in self.logs.plan(OffsetRange(*partition, start, end)):
                for part in read_columns(piece, read_committed=False):
                    late = part.timestamps >= time_ms
                    if late.any():
                        return int(part.offsets[late.argmax()])
        return None


def _newest_ms(segment: Segment) -> int:
    """Return the newest timestamp of a sealed segment, the last entry of its time index; if unsure, a huge value."""
    try:
        data = segment.file(TIME_INDEX_SUFFIX).read_bytes()
    except FileNotFoundError:
        return 2**63 - 1
    if len(data) < TIME_ENTRY.size or len(data) % TIME_ENTRY.size:
        return 2**63 - 1
    newest: int = TIME_ENTRY.unpack_from(data, len(data) - TIME_ENTRY.size)[0]
    return newest if newest > 0 else 2**63 - 1
