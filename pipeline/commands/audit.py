"""`klamm-pipeline audit`: records counted per topic and window at each tier, and compared.

    klamm-pipeline audit --topics flights --bootstrap-servers broker:9092 --producers-topic audit \\
        --mirror other:9092 --table /warehouse/topics

The tiers are the counts of producers (`klamm.pipeline.jobs.audit.counter`), the broker, a mirror, and the warehouse
(with `--dlq` also the records that `load` put into a dead letter topic). Name at least two. A record counts in the
window of its timestamp. Whole windows are compared, from the first that the broker still has in full up to a moment ago
(`--grace`), or from `--from` to `--until`.

Prints the windows with different counts (with `--all` all of them). Exit status: 0 all counts are equal, 1 the audit
failed, 2 there is a mismatch, or an option is wrong.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from klamm.cli.program import EXIT_OK
from klamm.pipeline.errors import EXIT_MISMATCH, BadOption
from klamm.pipeline.jobs.arguments import add_spark_arguments, parse_time, seconds, spark_session
from klamm.pipeline.report import Report, add_report_arguments, reporting

if TYPE_CHECKING:
    from klamm.pipeline.jobs.audit.comparison import Counts
    from klamm.pipeline.jobs.audit.tiers import CountJob
    from klamm.pipeline.kafka.cluster import Cluster

NAME = "audit"
HERE = "none"


def declare(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to count")
    group.add_argument("--topics", metavar="NAME,...", required=True, help="topics, by their names at the broker")
    group.add_argument("--window", metavar="SECONDS", type=seconds, default=600.0, help="(default: 600)")
    group.add_argument("--from", dest="start", metavar="TIME", help="(default: the first window still complete)")
    group.add_argument("--until", metavar="TIME", help="(default: now, less --grace)")
    group.add_argument("--grace", metavar="SECONDS", type=seconds, default=60.0, help="for late records (default: 60)")
    group = parser.add_argument_group("tiers")
    counts = group.add_mutually_exclusive_group()
    counts.add_argument("--producers-topic", metavar="NAME", help="the topic of the producers' counts")
    counts.add_argument("--producers-file", metavar="PATH", help="or a file, with a message per line")
    group.add_argument("--bootstrap-servers", metavar="HOST:PORT,...", required=True, help="the broker")
    group.add_argument("--mirror", metavar="HOST:PORT,...", help="a cluster that has the topics too")
    group.add_argument("--rename", metavar="RULE", action="append", default=[], help="the rule of the mirror")
    group.add_argument("--source", metavar="ALIAS", default="source", help="for {source} in --rename")
    group.add_argument("--table", metavar="PATH", help="the warehouse: a table that `load` fills")
    group.add_argument("--dlq", metavar="TOPIC", help="the dead letter topic of `load`: counts with the warehouse")
    group.add_argument("--all", action="store_true", help="print the windows that are equal too")
    group.add_argument("--dry-run", action="store_true", help="print what would be counted")
    add_spark_arguments(parser)
    add_report_arguments(parser)


@reporting
def run(options: argparse.Namespace, report: Report) -> int:
    from klamm.pipeline.jobs.audit.comparison import compare
    from klamm.pipeline.kafka.cluster import Cluster

    _check(options)
    names = [name.strip() for name in options.topics.split(",")]
    window_ms = int(options.window * 1000)
    with Cluster(options.bootstrap_servers) as cluster:
        windows = _windows(cluster, names, options, window_ms)
        jobs = _jobs(cluster, names, options, window_ms, min(one.start for one in windows.values()))
        if options.dry_run:
            for tier, some in jobs.items():
                for job in some:
                    print(f"{tier} {job.wanted}")
            return EXIT_OK
        tiers = _producers(cluster, options, window_ms)
        tiers |= _clusters(jobs, options, report)
        tiers |= _warehouse(cluster, names, options, window_ms)
    rows = compare(tiers, windows)
    differ = [row for row in rows if not row.is_equal]
    for row in rows if options.all else differ:
        print(row.line(list(tiers)))
    report.event("audited", windows=len(rows), mismatches=len(differ), records=sum(row.counts[0] for row in rows))
    if differ:
        return EXIT_MISMATCH
    report.succeeded(NAME)
    return EXIT_OK


def _check(options: argparse.Namespace) -> None:
    if not (options.producers_topic or options.producers_file or options.mirror or options.table):
        raise BadOption(
            "one tier cannot be compared: name also --producers-topic, --producers-file, --mirror or --table"
        )
    if options.rename and not options.mirror:
        raise BadOption("--rename belongs to --mirror")
    if options.dlq and not options.table:
        raise BadOption("--dlq belongs to --table")
    if int(options.window * 1000) < 1:
        raise BadOption(f"--window {options.window}: the least is a millisecond")


def _windows(
    cluster: Cluster, names: Sequence[str], options: argparse.Namespace, window_ms: int
) -> Mapping[str, range]:
    """Return the starts of the windows to compare, for each topic."""
    from klamm.pipeline.jobs.audit.tiers import first_whole_windows

    if options.until is None:
        until_ms = int((time.time() - options.grace) * 1000)
    else:
        until_ms = parse_time("--until", options.until)
    end = until_ms // window_ms * window_ms
    if options.start is not None:
        start = -(-parse_time("--from", options.start) // window_ms) * window_ms
        return {name: range(start, end, window_ms) for name in names}
    firsts = first_whole_windows(cluster, names, window_ms)
    return {name: range(firsts[name], end, window_ms) for name in names}


def _jobs(
    cluster: Cluster, names: Sequence[str], options: argparse.Namespace, window_ms: int, from_ms: int
) -> dict[str, list[CountJob]]:
    from klamm.pipeline.jobs.audit.tiers import count_jobs
    from klamm.pipeline.jobs.mirror.rules import Rules, parse_renames
    from klamm.pipeline.kafka.cluster import Cluster
    from klamm.pipeline.kafka.topics import compiled

    found = {"broker": count_jobs(cluster, {name: name for name in names}, window_ms, from_ms)}
    if options.mirror is not None:
        rules = Rules(options.source, compiled(".*"), renames=parse_renames(options.rename))
        renamed = {rules.target(name): name for name in names}
        with Cluster(options.mirror) as other:
            found["mirror"] = count_jobs(other, renamed, window_ms, from_ms)
    return found


def _producers(cluster: Cluster, options: argparse.Namespace, window_ms: int) -> dict[str, Counts]:
    from klamm.pipeline.jobs.audit.tiers import producer_counts_of_file, producer_counts_of_topic, producers

    if options.producers_topic is not None:
        counts = producer_counts_of_topic(cluster, options.producers_topic)
        return {"producer": producers(counts, window_ms, f"topic {options.producers_topic}")}
    if options.producers_file is not None:
        return {
            "producer": producers(producer_counts_of_file(options.producers_file), window_ms, options.producers_file)
        }
    return {}


def _clusters(jobs: Mapping[str, Sequence[CountJob]], options: argparse.Namespace, report: Report) -> dict[str, Counts]:
    from klamm.pipeline.jobs.audit.tiers import count_range, summed
    from klamm.pipeline.spark.tasks import LocalTasks, SparkTasks, Tasks

    spark = None if options.master == HERE else spark_session(options, NAME)
    tasks: Tasks = LocalTasks() if spark is None else SparkTasks(spark)
    try:
        every = [job for some in jobs.values() for job in some]
        with report.progress(NAME, total=sum(job.wanted.count for job in every)) as progress:
            counted = iter(tasks.run(count_range, every, progress))
        return {tier: summed([next(counted) for _ in some]) for tier, some in jobs.items()}
    finally:
        if spark is not None:
            spark.stop()


def _warehouse(
    cluster: Cluster, names: Sequence[str], options: argparse.Namespace, window_ms: int
) -> dict[str, Counts]:
    if options.table is None:
        return {}
    from klamm.pipeline.jobs.audit.tiers import put_aside, warehouse
    from klamm.pipeline.table import Location, Table

    counts = warehouse(Table.open(Location.of(options.table)), names, window_ms)
    if options.dlq is not None:
        counts = counts + put_aside(cluster, options.dlq, names, window_ms)
    return {"warehouse": counts}
