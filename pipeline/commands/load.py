"""`klamm-pipeline load`: topics to a Delta table, exactly once.

    klamm-pipeline load --bootstrap-servers localhost:9092 --topics flights --table /warehouse/topics

The table is partitioned by topic and date; the next offsets are in the same commit as the data. A topic partition that
is new to the table begins at `--from`; all others continue where the last commit ended.

Exit status: 0 all loaded, 1 stopped for the reason on stderr (nothing of that commit is visible), 2 a wrong option. Run
it again after any failure or kill.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from klamm.cli.program import EXIT_OK
from klamm.pipeline.errors import BadOption
from klamm.pipeline.jobs.arguments import (
    add_source_arguments,
    add_spark_arguments,
    add_table_arguments,
    location,
    parse_time,
    positive,
    seconds,
    source_options,
    spark_session,
)
from klamm.pipeline.jobs.repeating import stopped_by_signals
from klamm.pipeline.report import Report, add_report_arguments, reporting

if TYPE_CHECKING:
    from klamm.pipeline.jobs.load.job import LoadJob
    from klamm.pipeline.jobs.load.plan import Plan
    from klamm.pipeline.spark.source.logs import Task
    from klamm.pipeline.spark.source.options import Bound
    from klamm.pipeline.table import Table

NAME = "load"


def declare(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    add_table_arguments(parser)
    _add_when(parser)
    _add_rows(parser)
    _add_trouble(parser)
    add_spark_arguments(parser)
    add_report_arguments(parser)


def _add_when(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to load")
    group.add_argument(
        "--from",
        dest="start",
        metavar="WHERE",
        default="earliest",
        help="earliest, latest, a time, or offsets as JSON: for partitions new to the table",
    )
    mode = group.add_mutually_exclusive_group()
    mode.add_argument("--available-now", action="store_true", help="up to now, in commits of --max-records-per-commit")
    mode.add_argument("--every", metavar="SECONDS", type=seconds, help="repeat, until SIGTERM or SIGINT")
    mode.add_argument(
        "--rerun-from",
        metavar="TIME",
        help="in one commit, reload the rows loaded after that time, and load the new ones",
    )
    group.add_argument("--max-records-per-commit", metavar="N", type=positive, help="for --available-now and --every")
    group.add_argument("--max-records-per-task", metavar="N", type=positive, help="cut partitions into more tasks")
    group.add_argument(
        "--max-tasks",
        metavar="N",
        type=positive,
        help="tasks of Spark: small partitions share one (by default each has its own)",
    )
    group.add_argument("--dry-run", action="store_true", help="print the plan, change nothing")


def _add_rows(parser: argparse.ArgumentParser) -> None:
    from klamm.pipeline.values.formats import FORMATS

    group = parser.add_argument_group("rows")
    for name in ("key", "value"):
        group.add_argument(f"--{name}", choices=FORMATS, default="binary", help="its format (default: binary)")
        group.add_argument(
            f"--{name}-schema",
            metavar="FILE",
            action="append",
            default=[],
            help="for json: DDL, Spark's JSON or a JSON Schema; for avro: .avsc, or ID=FILE for each schema id",
        )
    group.add_argument("--no-headers", action="store_true", help="leave the column headers out")
    group.add_argument(
        "--transform", metavar="MODULE:FUNCTION", help="a function from a record batch to one of as many rows"
    )
    group.add_argument("--add-columns", action="store_true", help="add columns that the table does not have")
    group.add_argument("--compression", choices=("snappy", "zstd", "lz4", "none"), default="snappy")


def _add_trouble(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("trouble")
    group.add_argument(
        "--on-data-loss",
        choices=("stop", "gap"),
        default="stop",
        help="when offsets are no longer in the log: stop, or record a gap in the commit and continue",
    )
    group.add_argument(
        "--dlq", metavar="TOPIC", help="the topic for records that do not parse; without it they stop the job"
    )


@reporting
def run(options: argparse.Namespace, report: Report) -> int:
    from klamm.pipeline.jobs.load.job import Loader
    from klamm.pipeline.spark.source.logs import opened
    from klamm.pipeline.spark.tasks import LocalTasks, SparkTasks

    job = job_of(options)
    since_ms = None if options.rerun_from is None else parse_time("--rerun-from", options.rerun_from)
    with opened(job.source) as logs:
        planner = Loader(job, logs, LocalTasks(), report)
        plan = planner.plan(since_ms)
        if options.dry_run:
            print_plan(planner.table, job, plan, planner.cut(plan))
            return EXIT_OK
        if not plan.count and options.every is None:  # no need to start Spark
            planner.once(since_ms)
            return EXIT_OK
        spark = spark_session(options, NAME)
        try:
            loader = Loader(job, logs, SparkTasks(spark, options.max_tasks), report)
            if options.every is not None:
                with stopped_by_signals() as stop:
                    loader.every(options.every, stop)
            elif options.available_now:
                loader.available_now()
            else:
                loader.once(since_ms)
        finally:
            spark.stop()
    return EXIT_OK


def job_of(options: argparse.Namespace) -> LoadJob:
    """Return the settings of the job. Raises BadOption."""
    from dataclasses import replace

    from klamm.pipeline.jobs.load.job import LoadJob
    from klamm.pipeline.jobs.load.rows import Rows
    from klamm.pipeline.values import parse_format

    if options.dlq is not None and options.bootstrap_servers is None:
        raise BadOption(f"--dlq {options.dlq} needs --bootstrap-servers too: letters are sent there")
    if options.max_records_per_commit is not None and not (options.available_now or options.every):
        raise BadOption("--max-records-per-commit belongs to --available-now and --every")
    rows = Rows(
        key=parse_format("key", options.key, options.key_schema),
        value=parse_format("value", options.value, options.value_schema),
        headers=not options.no_headers,
        transform=options.transform,
    )
    return LoadJob(
        location=location(options),
        source=replace(source_options(options), include_headers=rows.headers or options.dlq is not None),
        start=start_bound(options.start),
        rows=rows,
        compression=options.compression,
        gaps_allowed=options.on_data_loss == "gap",
        add_columns=options.add_columns,
        dead_letters=options.dlq,
        max_records_per_task=options.max_records_per_task,
        max_records_per_commit=options.max_records_per_commit,
    )


def start_bound(text: str) -> Bound:
    """Parse --from. Raises BadOption."""
    from klamm.pipeline.ranges import EARLIEST, LATEST, parse_offsets
    from klamm.pipeline.spark.source.options import Bound

    words = {"earliest": EARLIEST, "latest": LATEST}
    if text in words:
        return Bound("--from", everywhere=words[text])
    if text.lstrip().startswith("{"):
        return Bound("--from", offsets=parse_offsets("--from", text))
    return Bound("--from", timestamp=parse_time("--from", text))


def print_plan(table: Table | None, job: LoadJob, plan: Plan, tasks: list[Task]) -> None:
    """Print the plan to stdout, one line per topic partition."""
    state = "will be created" if table is None else f"version {table.version}"
    print(f"table {job.location} ({state})")
    per_partition: dict[tuple[str, int], int] = {}
    for item in tasks:
        per_partition[item.topic, item.partition] = per_partition.get((item.topic, item.partition), 0) + 1
    for item in plan.ranges:
        gap = plan.gaps.get(item.topic_partition)
        gap_text = "" if gap is None else f" gap={gap[0]}-{gap[1]}"
        count = per_partition.get((item.topic, item.partition), 0)
        print(f"{item.topic} partition={item.partition} start={item.start} end={item.end} tasks={count}{gap_text}")
    if plan.removed:
        records = sum(file.records for file in plan.removed)
        print(f"replaces files={len(plan.removed)} records={records}")
    print(f"total partitions={len(plan.ranges)} offsets={plan.count} tasks={len(tasks)}")
