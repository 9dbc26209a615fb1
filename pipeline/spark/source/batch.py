"""The batch reader of `spark.read.format("klamm")`: plan on the driver, then one task per range of offsets.

The offsets are fixed when the first query is planned. Later records are not read, and a retried task reads the same
records. Spark keeps the plan with the DataFrame that `load` returned: all queries over it see the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from klamm.pipeline.arrow import record_batches
from klamm.pipeline.errors import PoisonedBatch
from klamm.pipeline.spark.source.filters import Pushed
from klamm.pipeline.spark.source.logs import Task, columns_of, opened, planned
from klamm.pipeline.spark.source.options import SourceOptions
from klamm.pipeline.spark.source.planning import batch_ranges
from klamm.protocol.errors import InvalidRecord

if TYPE_CHECKING:
    import pyarrow as pa


class TaskPartition(InputPartition):
    """The work of one task."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)


class BatchReader(DataSourceReader):
    """The reader of a batch: planned in a Python process beside the driver, and sent to the tasks from there."""

    pushFilters: Any  # noqa: N815

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.pushed = Pushed()
        self.pushFilters = _OptionalPushdown(self._push)

    def partitions(self) -> list[InputPartition]:
        """Fix the offsets, and return the partitions."""
        with opened(self.options) as logs:
            ranges = batch_ranges(logs, self.options)
            since_ms = self.pushed.since_ms
            since = {}
            if since_ms is not None:
                times = {item.topic_partition: since_ms for item in ranges}
                since = logs.offsets_for_times(times, self.options.isolation)
        return [TaskPartition(task) for task in planned(self.options, self.pushed.cut(ranges, since))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return arrow_batches(self.options, partition.value)

    def _push(self, filters: list[Filter]) -> Iterable[Filter]:
        return self.pushed.push(filters) if self.options.push_filters else filters


class _OptionalPushdown:
    """A `pushFilters` that looks like the method of the base class.

    Spark refuses a reader that overrides `pushFilters` while pushdown is switched off, because filters could be lost.
    They are not lost here: without pushdown Spark itself filters.
    """

    def __init__(self, push: Callable[[list[Filter]], Iterable[Filter]]) -> None:
        self.__func__ = DataSourceReader.pushFilters
        self._push = push

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._push(filters)


def arrow_batches(options: SourceOptions, task: Task | None) -> Iterator[pa.RecordBatch]:
    """Yield the records of one task. `task` is None if there is nothing to read: Spark runs a task even then."""
    if task is None:
        return
    parts = columns_of(options, task)
    try:
        yield from record_batches(parts, task.topic, task.partition, headers=options.include_headers)
    except InvalidRecord as error:
        raise PoisonedBatch(f"{task.topic}-{task.partition}: {error.message}") from None
