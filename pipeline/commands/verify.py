"""`klamm-pipeline verify`: whether a loaded table has exactly the records of the log.

    klamm-pipeline verify --table /warehouse/topics --bootstrap-servers localhost:9092

It compares all offsets that are both loaded and still in the log. A line per topic partition:

    orders partition=0 offsets=0-1000 log=980 table=980 holes=20 ok
    orders partition=1 offsets=0-500 log=500 table=497 MISSING 17, 200-201

Exit status: 0 equal, 2 a record is missing, there twice, or not in the log at all; 1 the check failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING, Any

from klamm.cli.program import EXIT_OK
from klamm.pipeline.errors import EXIT_MISMATCH, NotATable, UnknownTopic
from klamm.pipeline.jobs.arguments import (
    add_source_arguments,
    add_spark_arguments,
    add_table_arguments,
    location,
    source_options,
    spark_session,
)
from klamm.pipeline.report import Report, add_report_arguments, reporting

if TYPE_CHECKING:
    from klamm.pipeline.jobs.verify.compare import Piece, Verdict

NAME = "verify"


def declare(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser, topics_required=False)
    add_table_arguments(parser)
    group = parser.add_argument_group("verify")
    group.add_argument("--json", action="store_true", help="one JSON document on stdout")
    group.add_argument("--dry-run", action="store_true", help="print what would be compared")
    add_spark_arguments(parser)
    add_report_arguments(parser)


@reporting
def run(options: argparse.Namespace, report: Report) -> int:
    from klamm.pipeline.jobs.verify.compare import Verifier
    from klamm.pipeline.spark.source.logs import opened
    from klamm.pipeline.spark.tasks import SparkTasks
    from klamm.pipeline.table import Table
    from klamm.pipeline.table.table import PARTITION_BY

    table = Table.open(location(options))
    if table.partition_by != list(PARTITION_BY):
        raise NotATable(f"{table.location} is not a table that load has made: those are partitioned by topic and date")
    source = source_options(options)
    with opened(source) as logs:
        verifier = Verifier(table, logs, source, report)
        pieces = verifier.pieces()
        if not pieces:
            raise UnknownTopic(f"{table.location} has none of the topics asked for")
        if options.dry_run:
            _print_plan(pieces)
            return EXIT_OK
        spark = spark_session(options, NAME)
        try:
            verdicts = verifier.run(pieces, SparkTasks(spark))
        finally:
            spark.stop()
    if options.json:
        print(json.dumps([_document(item) for item in verdicts], indent=2))
    else:
        for item in verdicts:
            print(line(item))
    if all(item.is_good for item in verdicts):
        report.succeeded(NAME)
        return EXIT_OK
    return EXIT_MISMATCH


def line(verdict: Verdict) -> str:
    """Format a verdict for people."""
    from klamm.pipeline.jobs.verify.intervals import shown

    topic, partition = verdict.partition
    facts = {"offsets": f"{verdict.start}-{verdict.end}", "log": verdict.in_log, "table": verdict.in_table}
    names = ("holes", "dead", "gaps", "compacted")
    facts |= {name: getattr(verdict, name) for name in names if getattr(verdict, name)}
    text = " ".join(f"{key}={value}" for key, value in facts.items())
    wrong = {"MISSING": verdict.missing, "DUPLICATES": verdict.duplicates, "NOT IN THE LOG": verdict.surplus}
    found = "; ".join(f"{name} {shown(intervals)}" for name, intervals in wrong.items() if intervals)
    return f"{topic} partition={partition} {text} {found or 'ok'}"


def _document(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict for JSON. Intervals are half-open."""
    found = dataclasses.asdict(verdict)
    topic, partition = found.pop("partition")
    return {"topic": topic, "partition": partition, **found, "holes": verdict.holes, "ok": verdict.is_good}


def _print_plan(pieces: list[Piece]) -> None:
    for piece in pieces:
        topic, partition = piece.wanted.topic_partition
        start, end = piece.wanted.start, piece.wanted.end
        print(f"{topic} partition={partition} start={start} end={end} files={len(piece.files)}")
    print(f"total offsets={sum(piece.wanted.count for piece in pieces)} tasks={len(pieces)}")
