"""`klamm-pipeline mirror`: one cluster's topics in another, exactly once.

    klamm-pipeline mirror --source east=broker-1:9092 --target broker-9:9092 --topics flights --rename 'east.{topic}'

Topics are created with as many partitions and the same configs, which are kept in step. Keys, values, headers,
timestamps and the order within a partition stay. The progress is committed at the target with the records, for the
group `klamm-mirror.<alias>`. After a kill at any moment, run it again. Readers at the target must read committed
transactions only.

Exit status: 0 all copied, 1 stopped for the reason on stderr, 2 a wrong option.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from klamm.cli.program import EXIT_OK
from klamm.pipeline.errors import BadOption
from klamm.pipeline.jobs.arguments import (
    add_spark_arguments,
    add_topics_arguments,
    parse_time,
    positive,
    seconds,
    spark_session,
)
from klamm.pipeline.jobs.repeating import stopped_by_signals
from klamm.pipeline.report import Report, add_report_arguments, reporting

if TYPE_CHECKING:
    from klamm.pipeline.jobs.mirror.job import Mirror, Planned, Source
    from klamm.pipeline.jobs.mirror.plan import MirrorSettings

NAME = "mirror"
HERE = "none"
ALIAS = re.compile(r"[a-zA-Z0-9_-]+")


def declare(parser: argparse.ArgumentParser) -> None:
    _add_what(parser)
    _add_when(parser)
    _add_topics(parser)
    _add_groups(parser)
    add_spark_arguments(parser)
    add_report_arguments(parser)


def _add_what(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to mirror")
    group.add_argument(
        "--source",
        metavar="[ALIAS=]HOST:PORT,...",
        action="append",
        required=True,
        help="a cluster to read; several with an alias each (default: source)",
    )
    group.add_argument("--target", metavar="HOST:PORT,...", required=True, help="the cluster to write")
    add_topics_arguments(group, required=True)
    group.add_argument("--exclude", metavar="REGEX", help="without topics with a whole name that matches")
    group.add_argument(
        "--rename",
        metavar="RULE",
        action="append",
        default=[],
        help=r"'a-(.*)=b-\1', or '{source}.{topic}' for all; the first that matches counts",
    )


def _add_when(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("from where, and when")
    group.add_argument(
        "--from",
        dest="start",
        metavar="WHERE",
        default="earliest",
        help="earliest, latest or a time: for partitions that were never mirrored",
    )
    mode = group.add_mutually_exclusive_group()
    mode.add_argument("--once", action="store_true", help="up to now (the default)")
    mode.add_argument("--available-now", action="store_true", help="the same: transactions are of --commit-mb anyway")
    mode.add_argument("--every", metavar="SECONDS", type=seconds, help="repeat, until SIGTERM or SIGINT")
    group.add_argument(
        "--commit-mb", metavar="N", type=positive, default=64, help="size of a transaction (default: 64)"
    )
    group.add_argument(
        "--on-data-loss",
        choices=("stop", "gap"),
        default="stop",
        help="when offsets are no longer in the source's log: stop, or report the gap and continue",
    )
    group.add_argument("--dry-run", action="store_true", help="print the plan, change nothing")


def _add_topics(parser: argparse.ArgumentParser) -> None:
    from klamm.pipeline.jobs.mirror import PARTITIONING

    group = parser.add_argument_group("topics at the target")
    group.add_argument(
        "--partitioning",
        choices=PARTITIONING,
        default="auto",
        help="keep the partition, choose it by the key's hash, or (auto) keep it when both topics have as many",
    )
    group.add_argument("--add-partitions", action="store_true", help="when the source has more of them")
    group.add_argument("--no-configs", action="store_true", help="leave the configs of topics alone")
    group.add_argument("--exclude-configs", metavar="REGEX", help="configs that are not copied")
    group.add_argument("--replication-factor", metavar="N", type=positive, help="for new topics")


def _add_groups(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("consumer groups")
    group.add_argument(
        "--groups", metavar="REGEX", help="write checkpoints of these groups, in the format of MirrorMaker 2"
    )
    group.add_argument(
        "--sync-group-offsets", action="store_true", help="and commit their offsets at the target, while they are idle"
    )
    group.add_argument("--group", metavar="NAME", help="group that holds the progress (default: klamm-mirror.<alias>)")


@reporting
def run(options: argparse.Namespace, report: Report) -> int:
    from klamm.pipeline.jobs.mirror.job import Mirror
    from klamm.pipeline.spark.tasks import LocalTasks, SparkTasks, Tasks

    sources, settings = sources_of(options), settings_of(options)
    if options.dry_run:
        mirror = Mirror(sources, options.target, settings, LocalTasks(), report)
        print_plan(mirror, mirror.plan())
        mirror.close()
        return EXIT_OK
    spark = None if options.master == HERE else spark_session(options, NAME)
    tasks: Tasks = LocalTasks() if spark is None else SparkTasks(spark)
    mirror = Mirror(sources, options.target, settings, tasks, report)
    try:
        if options.every is None:
            mirror.once()
        else:
            with stopped_by_signals() as stop:
                mirror.every(options.every, stop)
    finally:
        mirror.close()
        if spark is not None:
            spark.stop()
    return EXIT_OK


def sources_of(options: argparse.Namespace) -> Sequence[Source]:
    """Return the sources. Raises BadOption."""
    from klamm.pipeline.jobs.mirror.checkpoints import Checkpoints
    from klamm.pipeline.jobs.mirror.copying import Mirroring
    from klamm.pipeline.jobs.mirror.job import Source
    from klamm.pipeline.jobs.mirror.rules import Rules, parse_renames
    from klamm.pipeline.kafka.cluster import parse_servers
    from klamm.pipeline.kafka.topics import compiled

    pattern = options.pattern
    if pattern is None:
        pattern = "|".join(re.escape(name.strip()) for name in options.topics.split(","))
    if options.sync_group_offsets and options.groups is None:
        raise BadOption("--sync-group-offsets needs --groups, which says for which groups")
    parse_servers(options.target)
    found: dict[str, Source] = {}
    for text in options.source:
        alias, separator, servers = text.rpartition("=")
        alias = alias if separator else "source"
        if not ALIAS.fullmatch(alias):
            raise BadOption(f"--source {text}: an alias has letters, digits, - and _")
        if alias in found:
            raise BadOption(f"--source {text}: another one is called {alias}; give each an alias: alias=host:port")
        parse_servers(servers)
        job = Mirroring(
            alias=alias,
            source_servers=servers,
            target_servers=options.target,
            group=f"{options.group or 'klamm-mirror'}.{alias}",
            fail_on_data_loss=options.on_data_loss == "stop",
            commit_bytes=options.commit_mb << 20,
        )
        rules = Rules(
            source=alias,
            topics=compiled(pattern, option="--pattern"),
            exclude=None if options.exclude is None else compiled(options.exclude, option="--exclude"),
            renames=parse_renames(options.rename),
            exclude_configs=None
            if options.exclude_configs is None
            else compiled(options.exclude_configs, option="--exclude-configs"),
        )
        checkpoints = None
        if options.groups is not None:
            checkpoints = Checkpoints(alias, compiled(options.groups, option="--groups"), options.sync_group_offsets)
        found[alias] = Source(job, rules, checkpoints)
    return list(found.values())


def settings_of(options: argparse.Namespace) -> MirrorSettings:
    """Return the settings of the mirror. Raises BadOption."""
    from klamm.pipeline.jobs.mirror.plan import EARLIEST, LATEST, MirrorSettings

    words = (EARLIEST, LATEST)
    return MirrorSettings(
        begin=options.start if options.start in words else parse_time("--from", options.start),
        partitioning=options.partitioning,
        add_partitions=options.add_partitions,
        sync_configs=not options.no_configs,
        replication_factor=options.replication_factor or -1,
    )


def print_plan(mirror: Mirror, planned: Sequence[Planned]) -> None:
    """Print the plan to stdout."""
    for one in planned:
        for line in one.topics.lines():
            print(line)
        for flow in one.flows:
            kept = flow.way.keep
            place = f"{flow.target_topic}-{flow.way.partition}" if kept else f"{flow.target_topic} by key"
            print(f"{one.source.job.alias} {flow.wanted} -> {place}")
    flows = [flow for one in planned for flow in one.flows]
    offsets = sum(flow.wanted.count for flow in flows)
    print(f"total partitions={len(flows)} offsets={offsets} tasks={len(mirror.chunks(planned))}")
