"""`klamm-pipeline compact`: a Delta table of the latest value per key, kept up to date.

    klamm-pipeline compact --bootstrap-servers localhost:9092 --topics customers --table /warehouse/customers
    klamm-pipeline compact --from-table /warehouse/topics --topics customers --table /warehouse/customers

A run reads the records since the last one; a null value deletes its key. Records without a key are left out. The table
is partitioned by topic, partition and bucket; the next offsets are in the same commit as the data.

Exit status: 0 up to date, 1 stopped for the reason on stderr (nothing of that commit is visible), 2 a wrong option. Run
it again after any failure or kill.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from klamm.cli.program import EXIT_OK
from klamm.pipeline.errors import BadOption
from klamm.pipeline.jobs.arguments import (
    add_source_arguments,
    add_spark_arguments,
    add_table_arguments,
    location,
    positive,
    seconds,
    source_options,
    spark_session,
)
from klamm.pipeline.jobs.repeating import stopped_by_signals
from klamm.pipeline.report import Report, add_report_arguments, reporting

if TYPE_CHECKING:
    from klamm.pipeline.jobs.compact.job import CompactJob, Compactor, Source
    from klamm.pipeline.jobs.compact.source import LoadedTable
    from klamm.pipeline.jobs.load.plan import Plan

NAME = "compact"


def declare(parser: argparse.ArgumentParser) -> None:
    from klamm.pipeline.values.formats import FORMATS

    add_source_arguments(parser, topics_required=False)
    add_table_arguments(parser)
    group = parser.add_argument_group("compact")
    group.add_argument("--from-table", metavar="PATH", help="a table that load has made, in place of a topic")
    mode = group.add_mutually_exclusive_group()
    mode.add_argument("--every", metavar="SECONDS", type=seconds, help="repeat, until SIGTERM or SIGINT")
    mode.add_argument("--rebuild", action="store_true", help="read everything again, replace all in one commit")
    group.add_argument("--dry-run", action="store_true", help="print the plan, change nothing")
    group.add_argument("--key", choices=("binary", "string"), default="binary", help="the format of keys, for topics")
    group.add_argument("--value", choices=FORMATS, default="binary", help="the format of values, for topics")
    group.add_argument("--value-schema", metavar="FILE", action="append", default=[], help="as for load")
    group.add_argument("--no-headers", action="store_true", help="leave the column headers out, for topics")
    group.add_argument(
        "--buckets", metavar="N", type=positive, help="files of a topic partition (1): a task holds one in memory"
    )
    group.add_argument("--compression", choices=("snappy", "zstd", "lz4", "none"), default="snappy")
    group.add_argument("--on-data-loss", choices=("stop", "gap"), default="stop", help="as for load")
    add_spark_arguments(parser)
    add_report_arguments(parser)


@reporting
def run(options: argparse.Namespace, report: Report) -> int:
    from klamm.pipeline.jobs.compact.job import Compactor
    from klamm.pipeline.spark.tasks import LocalTasks, SparkTasks

    job = job_of(options)
    with source_of(options, job) as source:
        planner = Compactor(job, source, LocalTasks(), report)
        plan = planner.plan(rebuild=options.rebuild)
        if options.dry_run:
            _print_plan(planner, plan)
            return EXIT_OK
        if not plan.count and options.every is None:  # no need to start Spark
            planner.once(rebuild=options.rebuild)
            return EXIT_OK
        spark = spark_session(options, NAME)
        try:
            compactor = Compactor(job, source, SparkTasks(spark), report)
            if options.every is not None:
                with stopped_by_signals() as stop:
                    compactor.every(options.every, stop)
            else:
                compactor.once(rebuild=options.rebuild)
        finally:
            spark.stop()
    return EXIT_OK


def job_of(options: argparse.Namespace) -> CompactJob:
    """Return the settings of the job. Raises BadOption."""
    from dataclasses import replace

    from klamm.pipeline.jobs.compact.job import CompactJob
    from klamm.pipeline.jobs.load.rows import Rows
    from klamm.pipeline.values import parse_format

    if options.from_table is None:
        if options.topics is None and options.pattern is None:
            raise BadOption("--topics or --pattern is required: it says which topics")
        rows = Rows(
            key=parse_format("key", options.key),
            value=parse_format("value", options.value, options.value_schema),
            headers=not options.no_headers,
        )
        source = replace(source_options(options), include_headers=rows.headers)
    else:
        given = {"--bootstrap-servers": options.bootstrap_servers, "--log-dirs": options.log_dirs}
        given |= {
            "--value-schema": options.value_schema,
            "--no-headers": options.no_headers,
            "--option": options.option,
        }
        given |= {"--key": options.key != "binary", "--value": options.value != "binary"}
        if surplus := [name for name, value in given.items() if value]:
            raise BadOption(f"{surplus[0]} is for topics, not for --from-table")
        rows, source = Rows(), None
    return CompactJob(
        location=location(options),
        source=source,
        rows=rows,
        buckets=options.buckets,
        compression=options.compression,
        gaps_allowed=options.on_data_loss == "gap",
    )


@contextmanager
def source_of(options: argparse.Namespace, job: CompactJob) -> Iterator[Source]:
    """Open the source. Raises PipelineError."""
    from klamm.pipeline.jobs.compact.job import Source
    from klamm.pipeline.spark.source.logs import opened

    if job.source is None:
        yield Source(job, None, _loaded(options, job))
    else:
        with opened(job.source) as logs:
            yield Source(job, logs, None)


def _loaded(options: argparse.Namespace, job: CompactJob) -> LoadedTable:
    from klamm.pipeline.jobs.compact.source import LoadedTable
    from klamm.pipeline.kafka.topics import compiled
    from klamm.pipeline.spark.source.parsing import named_list
    from klamm.pipeline.table import Location

    place = Location.of(options.from_table, dict(job.location.options))
    if options.topics is not None:
        return LoadedTable(place, frozenset(named_list("--topics", options.topics)))
    return LoadedTable(place, None if options.pattern is None else compiled(options.pattern, option="--pattern"))


def _print_plan(planner: Compactor, plan: Plan) -> None:
    table = planner.table
    print(f"table {planner.job.location} ({'will be created' if table is None else f'version {table.version}'})")
    for item in plan.ranges:
        print(f"{item.topic} partition={item.partition} start={item.start} end={item.end}")
    if plan.removed:
        print(f"replaces files={len(plan.removed)} records={sum(file.records for file in plan.removed)}")
    print(f"total partitions={len(plan.ranges)} offsets={plan.count} tasks={len(planner.work(plan))}")
