"""The stream reader of `spark.readStream.format("klamm")`: micro-batches of offset ranges.

Progress is in the query's checkpoint. Offsets are `{"topic": {"0": 23}}`, as the connector writes them. A batch ends at
the last stable offsets of that moment (high watermarks for read_uncommitted), or earlier. `maxOffsetsPerTrigger` is
shared out by how much each partition has; `minOffsetsPerTrigger` waits until there are as many offsets, or until
`maxTriggerDelay` is over. With Trigger.AvailableNow the ends are fixed at the start of the query, minOffsetsPerTrigger
does not hold, and the query ends when all of that is read.

A killed query that starts again with its checkpoint repeats the batch that was not committed, with the same offsets.
New partitions begin at their first record. Data loss ends the query, or is ignored if failOnDataLoss is false: a
partition has vanished, unread offsets were deleted, or a log ends before offsets that were read (the topic was created
again).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from klamm.pipeline.ranges import OffsetRange, TopicPartition, flat, nested
from klamm.pipeline.spark.source.batch import TaskPartition, arrow_batches
from klamm.pipeline.spark.source.logs import opened, planned
from klamm.pipeline.spark.source.options import SourceOptions
from klamm.pipeline.spark.source.planning import Logs, Lost, Offsets, offsets_at, subscribed

if TYPE_CHECKING:
    import pyarrow as pa

Json = dict[str, dict[str, int]]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a stream. It lives in one Python process beside the driver; a pickled copy reads in tasks."""

    def __init__(self, options: SourceOptions, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.options = options
        self._monotonic = monotonic
        self._session: _Session | None = None
        self._target: Offsets | None = None
        self._last_batch_s: float | None = None
        self._latest: Offsets = {}

    # -- offsets, on the driver

    def initialOffset(self) -> Json:  # noqa: N802
        """Return the start of a query without a checkpoint."""
        logs = self._logs()
        return nested(offsets_at(logs, self.options, self.options.starting, subscribed(logs, self.options)))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit that Spark passes to `latestOffset`, if its trigger allows limits."""
        if (most := self.options.max_offsets_per_trigger) is not None:
            return ReadMaxRows(most)
        if (least := self.options.min_offsets_per_trigger) is not None:
            return ReadMinRows(least)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the ends: read all records that exist now, and no more."""
        self._target = self._ends()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """Return the end of the next batch, or `start` when it should not begin yet."""
        begin = flat(start)
        ends = self._target if self._target is not None else self._ends()
        ends = self._checked(begin, ends)
        limited = not isinstance(limit, ReadAllAvailable)
        if limited and self._target is None and self._should_wait(begin, ends):
            return start
        if isinstance(limit, ReadMaxRows):
            ends = limited_ends(self._starts(begin, ends), ends, limit.max_rows)
        if ends != begin:
            self._last_batch_s = self._monotonic()
        return nested(ends)

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """Return the last seen ends, for the query's progress."""
        return nested(self._latest) if self._latest else None

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """Return the tasks of a batch, also of a repeated one."""
        begin, ends = flat(start), flat(end)
        ids = subscribed(self._logs(), self.options, missing_ok=True)
        starts = self._starts(begin, ends)
        earliest = self._logs().earliest([partition for partition in starts if partition in ids])
        lost = Lost(self.options.fail_on_data_loss)
        ranges = []
        for partition, first in starts.items():
            if partition not in earliest:
                if ends[partition] > first:
                    lost.tell(f"{partition} is gone, and its offsets {first} to {ends[partition]} were not read")
                continue
            if first < (there := earliest[partition]):
                if ends[partition] > first:
                    lost.tell(f"{partition}: offsets {first} to {there} are gone, and were not read")
                first = there
            ranges.append(OffsetRange(*partition, first, max(ends[partition], first), ids[partition]))
        return [TaskPartition(task) for task in planned(self.options, ranges)]

    def commit(self, end: Json) -> None:
        """Nothing to do: the offsets are in the checkpoint."""

    def stop(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    # -- records, in tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return arrow_batches(self.options, partition.value)

    def __reduce__(self) -> tuple[type[StreamReader], tuple[SourceOptions]]:
        return StreamReader, (self.options,)

    # -- the cluster

    def _logs(self) -> Logs:
        if self._session is None:
            self._session = _Session(self.options)
        return self._session.logs

    def _ends(self) -> Offsets:
        logs = self._logs()
        partitions = subscribed(logs, self.options, missing_ok=True)
        self._latest = logs.latest(partitions, self.options.isolation)
        return self._latest

    def _checked(self, begin: Offsets, ends: Offsets) -> Offsets:
        """Return the ends; report partitions that are gone and offsets that went back."""
        lost = Lost(self.options.fail_on_data_loss)
        for partition, first in sorted(begin.items()):
            if partition not in ends:
                lost.tell(f"{partition} is gone, it was read up to offset {first}")
            elif ends[partition] < first:
                lost.tell(f"{partition} ends at {ends[partition]}, though it was read up to offset {first}")
        return ends

    def _starts(self, begin: Offsets, ends: Offsets) -> Offsets:
        """Return the start of each partition of a batch: new ones begin at their first record."""
        new = [partition for partition in ends if partition not in begin]
        first = dict.fromkeys(new, 0)
        if new:
            known = subscribed(self._logs(), self.options, missing_ok=True)
            first |= self._logs().earliest([partition for partition in new if partition in known])
        return {partition: begin.get(partition, first.get(partition, 0)) for partition in sorted(ends)}

    def _should_wait(self, begin: Offsets, ends: Offsets) -> bool:
        least = self.options.min_offsets_per_trigger
        if least is None:
            return False
        now_s = self._monotonic()
        if self._last_batch_s is None:
            self._last_batch_s = now_s
        available = sum(ends[partition] - first for partition, first in self._starts(begin, ends).items())
        return available < least and now_s - self._last_batch_s < self.options.max_trigger_delay_s


class _Session:
    """A connection for as long as the query lives."""

    def __init__(self, options: SourceOptions) -> None:
        self._stack = ExitStack()
        self.logs = self._stack.enter_context(opened(options))

    def close(self) -> None:
        self._stack.close()


def limited_ends(starts: Mapping[TopicPartition, int], ends: Offsets, limit: int) -> Offsets:
    """Return ends with at most `limit` offsets in all, shared out by the size of each partition.

    Every offset is read eventually. Offsets left over by rounding go to the partitions that lose most by it.
    """
    counts = {partition: max(ends[partition] - first, 0) for partition, first in starts.items()}
    total = sum(counts.values())
    if total <= limit:
        return ends
    shares = {partition: count * limit // total for partition, count in counts.items()}
    left = limit - sum(shares.values())
    for partition in sorted(counts, key=lambda one: (-(counts[one] * limit % total), one))[:left]:
        shares[partition] += 1
    return {
        partition: starts[partition] + shares[partition] if counts[partition] else ends[partition] for partition in ends
    }
