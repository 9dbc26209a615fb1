"""The job `compact`: plan, merge in tasks; then commit new files, removed files and the next offsets together.

A run that is killed changes nothing, or everything. Keys belong to a topic partition, as in Kafka's own compaction: if
partitions were added to a topic, a key that moved appears once in each.

A compacted topic removes tombstones after `delete.retention.ms`. A table that was not updated for longer may keep
deleted keys, so then the job stops; `rebuild` reads everything again. (A run that finds nothing new still commits from
time to time, so that the time of the last run is known.)
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from klamm.pipeline.errors import BadOption, DataLoss
from klamm.pipeline.jobs.compact.source import NOT_KEPT, LoadedTable, Reader, TableReader, TopicReader
from klamm.pipeline.jobs.compact.task import PARTITION_BY, Compacted, Recipe, Work, compact_range
from klamm.pipeline.jobs.load.plan import Plan, Planner
from klamm.pipeline.jobs.load.rows import AS_THEY_ARE, Rows
from klamm.pipeline.jobs.load.schema import check_schema
from klamm.pipeline.jobs.repeating import repeated
from klamm.pipeline.ranges import TopicPartition
from klamm.pipeline.report import Report
from klamm.pipeline.spark.source.options import Bound, SourceOptions
from klamm.pipeline.spark.source.planning import Logs
from klamm.pipeline.spark.tasks import Tasks
from klamm.pipeline.table import Change, DataFile, Location, Table

if TYPE_CHECKING:
    import pyarrow as pa

BUCKETS: Final = "klamm.buckets"
EARLIEST: Final = Bound("startingOffsets", everywhere=-2)
HEARTBEATS: Final = 4
"""The number of heartbeats in `delete.retention.ms`."""


@dataclass(frozen=True, slots=True)
class CompactJob:
    """The settings of a job. `source` is for topics; `rows` is how their records become rows."""

    location: Location
    source: SourceOptions | None = None
    rows: Rows = AS_THEY_ARE
    buckets: int | None = None
    compression: str = "snappy"
    gaps_allowed: bool = False


class Source:
    """A topic or a table to read; `retention_ms` is how long a topic keeps tombstones, None if for ever."""

    def __init__(self, job: CompactJob, logs: Logs | None, loaded: LoadedTable | None) -> None:
        assert (logs is None) != (loaded is None)
        self._job = job
        self._logs = logs
        self._loaded = loaded

    @property
    def rows_schema(self) -> pa.Schema:
        return self._loaded.schema if self._loaded is not None else self._job.rows.schema()

    @property
    def reader(self) -> Reader:
        if self._loaded is not None:
            return TableReader(self._loaded.table.location)
        assert self._job.source is not None
        return TopicReader(self._job.source, self._job.rows)

    def plan(self, target: Table | None, *, rebuild: bool) -> Plan:
        if self._loaded is not None:
            self._loaded.table.refresh()
            return self._loaded.plan(target, rebuild=rebuild)
        assert self._logs is not None and self._job.source is not None
        planner = Planner(self._logs, self._job.source, EARLIEST, self._job.gaps_allowed)
        plan = planner.rebuild(target) if rebuild else planner.plan(target)
        plan.job = "compact"
        return plan

    def files_of(self, plan: Plan) -> dict[TopicPartition, tuple[DataFile, ...]]:
        return self._loaded.files_of(plan) if self._loaded is not None else {}

    def facts(self) -> dict[str, Any]:
        if self._loaded is None:
            return {}
        return {"source": self._loaded.table.location.uri, "source_version": self._loaded.table.version}

    def retention_ms(self, topics: set[str]) -> dict[str, int]:
        """Return the retention of tombstones of each compacted topic."""
        source = self._job.source
        if source is None or source.connection is None:
            return {}
        from klamm.pipeline.kafka.topics import effective_configs

        with source.connection.cluster() as cluster:
            found = effective_configs(cluster, topics, ["cleanup.policy", "delete.retention.ms"])
        return {
            topic: int(configs["delete.retention.ms"])
            for topic, configs in found.items()
            if "compact" in configs.get("cleanup.policy", "").split(",")
        }


class Compactor:
    """The steps of `compact`: plan, run, commit."""

    def __init__(
        self,
        job: CompactJob,
        source: Source,
        tasks: Tasks,
        report: Report,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.job = job
        self.table: Table | None = None
        self._source = source
        self._tasks = tasks
        self._report = report
        self._monotonic = monotonic
        self._now_ms = now_ms
        self._schema = _schema(source.rows_schema)

    def plan(self, *, rebuild: bool = False) -> Plan:
        """Return what a run would do now. Changes nothing."""
        if self.table is None:
            self.table = Table.open_if_there(self.job.location)
        else:
            self.table.refresh()
        if self.table is not None:
            check_schema(self.table, self._schema, may_add=False, partition_by=PARTITION_BY, job="compact")
            self._buckets()
        plan = self._source.plan(self.table, rebuild=rebuild)
        if not rebuild:
            self._check_tombstones(plan)
        return plan

    def once(self, *, rebuild: bool = False) -> int:
        """Bring the table up to date. Return the number of records read."""
        plan = self.plan(rebuild=rebuild)
        if plan.is_empty and self.table is not None:
            self._heartbeat(plan)
            self._report.event("up to date", version=self.table.version)
            self._report.succeeded("compact")
            return 0
        work = self.work(plan)
        self._report.event("planned", partitions=len(plan.ranges), tasks=len(work), offsets=plan.count)
        begun_s = self._monotonic()
        table = self.table = self.table or Table.create(
            self.job.location,
            self._schema,
            partition_by=PARTITION_BY,
            job="compact",
            properties={BUCKETS: str(self.job.buckets or 1)},
        )
        recipe = Recipe(self._source.reader, self.job.location, self._buckets(), self.job.compression)
        with self._report.progress("compact", total=plan.count) as progress:
            results = self._tasks.run(functools.partial(compact_range, recipe), work, progress)
        version = table.commit(self._change(plan, results))
        self._tell(version, results, self._monotonic() - begun_s)
        return sum(item.records for item in results)

    def every(self, seconds: float, stop: threading.Event) -> int:
        """Run every `seconds` until `stop` is set; a started run is finished."""
        return repeated(self.once, seconds, stop, monotonic=self._monotonic)

    def work(self, plan: Plan) -> list[Work]:
        """Return the tasks: one for each topic partition with new records. A rebuild merges with nothing."""
        removed = {file.path for file in plan.removed}
        mine: dict[TopicPartition, list[DataFile]] = {}
        for file in self.table.files() if self.table is not None else ():
            if file.path not in removed:
                mine.setdefault(file.topic_partition, []).append(file)
        loaded = self._source.files_of(plan)
        return [
            Work(item, tuple(mine.get(item.topic_partition, ())), loaded.get(item.topic_partition, ()))
            for item in plan.ranges
            if item.count
        ]

    def _buckets(self) -> int:
        there = int(self.table.properties.get(BUCKETS, "1")) if self.table is not None else self.job.buckets or 1
        if self.job.buckets not in (None, there):
            raise BadOption(f"--buckets {self.job.buckets}: {self.job.location} has {there}, which cannot be changed")
        return there

    def _change(self, plan: Plan, results: list[Compacted]) -> Change:
        return Change(
            expected=plan.expected,
            offsets=plan.offsets,
            added=[file for item in results for file in item.added],
            removed=[*plan.removed, *(file for item in results for file in item.removed)],
            topic_ids=plan.topic_ids,
            facts=plan.facts() | self._source.facts() | {"records": sum(item.records for item in results)},
        )

    def _last_ms(self) -> int | None:
        """Return the time of the last run."""
        commits = self.table.commits() if self.table is not None else iter(())
        return next((commit.timestamp_ms for commit in commits if commit.facts.get("job") == "compact"), None)

    def _check_tombstones(self, plan: Plan) -> None:
        last_ms = self._last_ms()
        if last_ms is None or self.job.gaps_allowed:
            return
        known = {item.topic for item in plan.ranges if item.count and plan.expected[item.topic_partition]}
        for topic, retention_ms in sorted(self._source.retention_ms(known).items()):
            if self._now_ms() - last_ms > retention_ms:
                raise DataLoss(
                    f"topic {topic} keeps tombstones for {retention_ms} ms, and the last run was longer ago: deleted "
                    "keys may have been missed. --rebuild reads all again, --on-data-loss gap continues"
                )

    def _heartbeat(self, plan: Plan) -> None:
        last_ms, retentions = self._last_ms(), self._source.retention_ms(set(plan.topic_ids))
        if last_ms is None or not retentions or self.table is None:
            return
        if self._now_ms() - last_ms > min(retentions.values()) // HEARTBEATS:
            self.table.commit(Change(plan.expected, {}, facts={"job": "compact"} | self._source.facts()))

    def _tell(self, version: int, results: list[Compacted], seconds: float) -> None:
        size_bytes = sum(item.size_bytes for item in results)
        facts: dict[str, Any] = {
            "version": version,
            "records": sum(item.records for item in results),
            "files": sum(len(item.added) for item in results),
            "seconds": seconds,
            "mb_per_s": size_bytes / 1e6 / max(seconds, 1e-9),
        }
        if without_key := sum(item.without_key for item in results):
            facts["without_key"] = without_key
        self._report.event("committed", **facts)
        self._report.succeeded("compact")


def _schema(rows: pa.Schema) -> pa.Schema:
    import pyarrow as pa

    if rows.field("key").type not in (pa.binary(), pa.string()):
        raise BadOption(f"the key is {rows.field('key').type}: a table by key needs one that is binary or a string")
    kept = [item for item in rows if item.name not in NOT_KEPT]
    return pa.schema([*kept, ("topic", pa.string()), ("partition", pa.int32()), ("bucket", pa.int32())])
