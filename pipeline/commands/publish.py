"""`klamm-pipeline publish`: a Delta table back to a topic, in one transaction.

    klamm-pipeline publish --table /warehouse/latest --bootstrap-servers localhost:9092 --topic flights.latest

Columns have the names of Spark's Kafka connector (key, value, topic, partition, headers), and timestamp is kept. A mark
of the version is committed with the records, so that it is not published twice; `--again` does.

Exit status: 0 published, or it was already, 1 stopped for the reason on stderr (nothing is visible), 2 a wrong option.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from klamm.cli.program import EXIT_OK
from klamm.pipeline.jobs.arguments import add_table_arguments, location, seconds
from klamm.pipeline.report import Report, add_report_arguments, reporting

if TYPE_CHECKING:
    from klamm.pipeline.jobs.publishing import Publication

NAME = "publish"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def declare(parser: argparse.ArgumentParser) -> None:
    add_table_arguments(parser)
    group = parser.add_argument_group("what to publish")
    group.add_argument("--version", metavar="N", type=int, help="version of the table (default: the last)")
    group.add_argument("--since-version", metavar="N", type=int, help="only rows that were not in that version")
    group.add_argument("--tombstones", action="store_true", help="also null for keys that were in it and are gone")
    group.add_argument("--where", metavar="SQL", help="a condition, such as \"carrier = 'UA' and date > '2026-01-01'\"")
    group.add_argument("--key", metavar="COLUMN", default="key", help="(default: key)")
    group.add_argument("--value", metavar="COLUMN", default="value", help="(default: value)")
    group.add_argument("--json", action="store_true", help="write values that are neither binary nor string as JSON")
    group = parser.add_argument_group("where to")
    group.add_argument("--bootstrap-servers", metavar="HOST:PORT,...", required=True, help="brokers of the cluster")
    group.add_argument("--topic", metavar="NAME", help="the topic of all rows (default: the column topic)")
    group.add_argument("--keep-partitions", action="store_true", help="use the column partition, not the key's hash")
    group.add_argument("--compression", choices=CODECS, default="none", help="codec of the batches")
    group.add_argument("--transaction-timeout", metavar="SECONDS", type=seconds, default=900.0, help="(default: 900)")
    group.add_argument("--again", action="store_true", help="also if it was published before")
    group.add_argument("--dry-run", action="store_true", help="print the plan, change nothing")
    add_report_arguments(parser)


@reporting
def run(options: argparse.Namespace, report: Report) -> int:
    from klamm.pipeline.jobs.publishing import publish
    from klamm.pipeline.kafka.cluster import Cluster

    publication = publication_of(options)
    with Cluster(options.bootstrap_servers) as cluster:
        count = publication.count()
        if options.dry_run:
            for name in publication.topics():
                cluster.topics([name])
                print(f"topic {name}")
            print(f"table {publication.table.location} version={publication.table.version} records={count}")
            return EXIT_OK
        with report.progress(NAME, total=count) as progress:
            done = publish(
                publication,
                cluster,
                again=options.again,
                on_progress=lambda records, size_bytes: progress.advance(records, size_bytes=size_bytes),
                transaction_timeout_s=options.transaction_timeout,
            )
    if done.again:
        report.event("already published", version=publication.table.version)
    else:
        report.event("published", version=publication.table.version, records=done.records, mb=done.size_bytes / 1e6)
    report.succeeded(NAME)
    return EXIT_OK


def publication_of(options: argparse.Namespace) -> Publication:
    """Return the publication. Raises NotATable, BadOption."""
    from klamm.pipeline.jobs.publishing import Publication, Selection
    from klamm.pipeline.table import Table
    from klamm.protocol.records.compression import Codec

    selection = Selection(
        topic=options.topic,
        key=options.key,
        value=options.value,
        where=options.where,
        since_version=options.since_version,
        tombstones=options.tombstones,
        as_json=options.json,
        keep_partitions=options.keep_partitions,
        codec=Codec[options.compression.upper()],
    )
    where = location(options)
    before = None if options.since_version is None else Table.open(where, options.since_version)
    return Publication(Table.open(where, options.version), selection, before)
