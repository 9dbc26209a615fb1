"""The job `load`: plan, write files in tasks, commit them with the next offsets; once, in parts, or every N seconds.

A run killed before the commit leaves files that no reader sees. After a commit, the next run continues where it ended.
So every committed record is in the table once, however often a run is killed. Two loaders on one table do no harm: the
commit of the later one is refused, and nothing of its run is visible.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from klamm.pipeline.errors import BadOption, PipelineError
from klamm.pipeline.jobs.load.plan import Plan, Planner
from klamm.pipeline.jobs.load.rows import AS_THEY_ARE, Rows
from klamm.pipeline.jobs.load.schema import check_schema
from klamm.pipeline.jobs.load.task import Loaded, Recipe, load_range
from klamm.pipeline.jobs.repeating import repeated
from klamm.pipeline.ranges import TopicPartition
from klamm.pipeline.report import Report
from klamm.pipeline.spark.source.options import Bound, SourceOptions
from klamm.pipeline.spark.source.planning import Logs
from klamm.pipeline.spark.tasks import Tasks
from klamm.pipeline.table import Change, Location, Table

if TYPE_CHECKING:
    import pyarrow as pa

    from klamm.pipeline.spark.source.logs import Task

WORTH_A_TASK: Final = 100_000
"""The fewest offsets of a task when a range is cut, unless the options ask for less."""


@dataclass(frozen=True, slots=True)
class LoadJob:
    """The settings of a job."""

    location: Location
    source: SourceOptions
    start: Bound
    rows: Rows = AS_THEY_ARE
    compression: str = "snappy"
    gaps_allowed: bool = False
    add_columns: bool = False
    dead_letters: str | None = None
    max_records_per_task: int | None = None
    max_records_per_commit: int | None = None


class Loader:
    """The steps of `load`: plan, run, commit. `logs` stays open as long as the job runs."""

    def __init__(
        self,
        job: LoadJob,
        logs: Logs,
        tasks: Tasks,
        report: Report,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.job = job
        self._logs = logs
        self._planner = Planner(logs, job.source, job.start, job.gaps_allowed)
        self._tasks = tasks
        self._report = report
        self._monotonic = monotonic
        self._schema: pa.Schema = job.rows.schema()
        self._recipe = Recipe(job.source, job.location, job.rows, job.compression, job.dead_letters)
        self._table: Table | None = None

    @property
    def table(self) -> Table | None:
        """Return the table as last seen; None before it is created."""
        return self._table

    def plan(self, since_ms: int | None = None) -> Plan:
        """Return what a run would do now. Changes nothing; raises PipelineError for anything that prevents it."""
        table = self._seen()
        if since_ms is None:
            plan = self._planner.plan(table)
        elif table is None:
            raise PipelineError(f"--rerun-from: there is no table at {self.job.location} yet")
        else:
            plan = self._planner.rerun(table, since_ms)
        self._check_dead_letters(plan)
        return plan

    def once(self, since_ms: int | None = None) -> int:
        """Load everything up to now in one commit. Return the number of records loaded."""
        plan = self.plan(since_ms)
        return self._run(plan)

    def available_now(self) -> int:
        """Load everything up to now in commits of at most `max_records_per_commit`."""
        from klamm.pipeline.spark.source.stream import limited_ends

        whole, loaded = self.plan(), 0
        limit = self.job.max_records_per_commit
        if limit is None or whole.count <= limit:
            return self._run(whole)
        ends = whole.offsets
        while not whole.is_empty:
            starts = {item.topic_partition: item.start for item in whole.ranges}
            loaded += self._run(whole.cut(limited_ends(starts, ends, limit)))
            whole = self.plan().cut(ends)
        return loaded

    def every(self, seconds: float, stop: threading.Event) -> int:
        """Run every `seconds` until `stop` is set; a started run is finished."""
        return repeated(self.available_now, seconds, stop, monotonic=self._monotonic)

    def cut(self, plan: Plan) -> list[Task]:
        """Return the tasks of a plan."""
        from klamm.pipeline.spark.source.logs import planned

        wanted = min(self._tasks.parallelism, plan.count // WORTH_A_TASK)
        most = self.job.max_records_per_task
        options = replace(self.job.source, min_partitions=wanted or None, max_records_per_partition=most)
        return planned(options, plan.ranges)

    # -- one commit

    def _seen(self) -> Table | None:
        """Return the table as it is now, None when it must be created."""
        if self._table is None:
            self._table = Table.open_if_there(self.job.location)
        else:
            self._table.refresh()
        if self._table is not None:
            check_schema(self._table, self._schema, may_add=self.job.add_columns)
        return self._table

    def _check_dead_letters(self, plan: Plan) -> None:
        if (topic := self.job.dead_letters) is not None:
            self._logs.topics([topic])
            if topic in plan.topic_ids:
                raise BadOption(f"--dlq {topic}: this topic is itself loaded")

    def _run(self, plan: Plan) -> int:
        if plan.is_empty and self._table is not None:
            self._report.event("up to date", version=self._table.version)
            self._report.succeeded("load")
            return 0
        ranges = self.cut(plan)
        self._report.event("planned", partitions=len(plan.ranges), tasks=len(ranges), offsets=plan.count)
        begun_s = self._monotonic()
        table = self._made_ready()
        with self._report.progress("load", total=plan.count) as progress:
            results = self._tasks.run(functools.partial(load_range, self._recipe), ranges, progress)
        version = table.commit(self._change(plan, results))
        self._tell(version, results, plan, self._monotonic() - begun_s)
        return sum(item.records for item in results)

    def _made_ready(self) -> Table:
        if self._table is None:
            self._table = Table.create(self.job.location, self._schema)
        elif check_schema(self._table, self._schema, may_add=self.job.add_columns):
            self._table.add_columns(self._schema)
        return self._table

    def _change(self, plan: Plan, results: list[Loaded]) -> Change:
        facts = plan.facts() | {"records": sum(item.records for item in results)}
        if dead := _dead(results):
            facts["dead_letters"] = dead
        return Change(
            expected=plan.expected,
            offsets=plan.offsets,
            added=[file for item in results for file in item.files],
            removed=plan.removed,
            topic_ids=plan.topic_ids,
            facts=facts,
        )

    def _tell(self, version: int, results: list[Loaded], plan: Plan, seconds: float) -> None:
        size_bytes = sum(item.size_bytes for item in results)
        facts: dict[str, Any] = {
            "version": version,
            "records": sum(item.records for item in results),
            "files": sum(len(item.files) for item in results),
            "seconds": seconds,
            "mb_per_s": size_bytes / 1e6 / max(seconds, 1e-9),
        }
        if plan.removed:
            facts["removed_files"] = len(plan.removed)
        if dead := sum(len(item.dead) for item in results):
            facts["dead_letters"] = dead
        for partition, gap in plan.gaps.items():
            self._report.event("gap", partition=str(partition), start=gap[0], end=gap[1])
        self._report.event("committed", **facts)
        self._report.succeeded("load")


def _dead(results: list[Loaded]) -> dict[str, dict[str, list[list[int]]]]:
    """Return the offsets of dead letters as half-open ranges."""
    found: dict[TopicPartition, list[list[int]]] = {}
    for item in results:
        ranges = found.setdefault(item.wanted.topic_partition, [])
        for offset in item.dead:
            if ranges and ranges[-1][1] == offset:
                ranges[-1][1] += 1
            else:
                ranges.append([offset, offset + 1])
    by_topic: dict[str, dict[str, list[list[int]]]] = {}
    for (topic, partition), ranges in sorted(found.items()):
        if ranges:
            by_topic.setdefault(topic, {})[str(partition)] = ranges
    return by_topic
