"""`klamm-pipeline status`: how far a table is loaded, and its lag.

    klamm-pipeline status --table /warehouse/topics --bootstrap-servers localhost:9092

Without a source it prints the offsets only. A line per topic partition, or with --json one document: `next` is the
first offset that is not loaded, `start` and `end` are the log's, `lag` offsets (not records) remain to load, `lost`
offsets were gone from the log before they were loaded. Changes nothing.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from klamm.cli.program import EXIT_OK
from klamm.pipeline.jobs.arguments import add_source_arguments, add_table_arguments, location, source_options
from klamm.pipeline.report import Report, add_report_arguments, reporting

if TYPE_CHECKING:
    from klamm.pipeline.spark.source.planning import Logs
    from klamm.pipeline.table import Table

NAME = "status"


def declare(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser, topics_required=False)
    add_table_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    add_report_arguments(parser)


@reporting
def run(options: argparse.Namespace, report: Report) -> int:
    from klamm.pipeline.spark.source.logs import opened
    from klamm.pipeline.table import Table

    table = Table.open(location(options))
    partitions: list[dict[str, Any]]
    if options.bootstrap_servers is None and options.log_dirs is None:
        partitions = [_one(*item, offset) for item, offset in table.next_offsets.items()]
    else:
        source = source_options(options)
        chosen = options.topics is not None or options.pattern is not None
        with opened(source) as logs:
            from klamm.pipeline.spark.source.planning import subscribed

            names = {item.topic for item in subscribed(logs, source)} if chosen else None
            partitions = compared(table, logs, source.isolation, names)
    found = {"table": table.location.uri, **_last(table), "partitions": partitions}
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        _print(found)
    return EXIT_OK


def compared(table: Table, logs: Logs, isolation: int, names: set[str] | None) -> list[dict[str, Any]]:
    """Return each partition of these topics, or of all in the table, that the table or the log has."""
    loaded = {item: offset for item, offset in table.next_offsets.items() if names is None or item.topic in names}
    topics = logs.topics({item.topic for item in loaded} | (names or set()), missing_ok=True)
    there = [item for topic in topics.values() for item in topic.topic_partitions]
    starts, ends = logs.earliest(there), logs.latest(there, isolation)
    return [_one(*item, loaded.get(item), starts.get(item), ends.get(item)) for item in sorted({*loaded, *there})]


def _one(
    topic: str, partition: int, offset: int | None, start: int | None = None, end: int | None = None
) -> dict[str, Any]:
    found: dict[str, Any] = {"topic": topic, "partition": partition, "next": offset}
    if start is not None and end is not None:
        begin = start if offset is None else max(offset, start)
        found |= {"start": start, "end": end, "lag": max(end - begin, 0)}
        if offset is not None and offset < start:
            found["lost"] = start - offset
    return found


def _last(table: Table) -> dict[str, Any]:
    from klamm.pipeline.jobs.load.plan import shown_time

    found: dict[str, Any] = {"version": table.version}
    for commit in table.commits():
        if commit.facts.get("ranges"):
            found["last_commit"] = {
                "version": commit.version,
                "time": shown_time(commit.timestamp_ms),
                "job": commit.facts.get("job"),
                "records": commit.facts.get("records"),
            }
            break
    return found


def _print(found: dict[str, Any]) -> None:
    last = found.get("last_commit")
    text = (
        ""
        if last is None
        else f", version {last['version']} at {last['time']} by {last['job']}: {last['records']} records"
    )
    print(f"table {found['table']} (version {found['version']}{text})")
    for item in found["partitions"]:
        rest = " ".join(f"{key}={value}" for key, value in item.items() if key not in ("topic", "partition"))
        print(f"{item['topic']} partition={item['partition']} {rest}")
    if any("lag" in item for item in found["partitions"]):
        print(
            f"total partitions={len(found['partitions'])} lag={sum(item.get('lag', 0) for item in found['partitions'])}"
        )
