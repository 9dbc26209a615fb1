"""`klamm export-kafka`: writes all data of a stopped broker as a log directory of Apache Kafka."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import Final

from klamm.broker.commands import CannotBeDone
from klamm.cli.program import EXIT_OK
from klamm.config.load import load
from klamm.config.secrets import from_command_line

DESCRIPTION: Final = """\
Write a log directory on which Apache Kafka 4.4 starts at once: all topics with their ids, settings and records, the
committed offsets of all groups, transactions, producers. The broker must be stopped; its own directories stay as they
are. Files that never change are shared (hard links) where both are on one filesystem.

Exit code: 0 done, 2 a bad command line or config, 3 it cannot be done; the reason is one line.

example:
  klamm export-kafka /var/lib/kafka server.properties
"""


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="the log directory to make; missing or empty")
    parser.add_argument("file", nargs="?", metavar="server.properties", help="the broker's config file")
    parser.add_argument(
        "--override", action="append", default=[], metavar="key=value", help="set one key; may be given several times"
    )


def run(options: argparse.Namespace) -> int:
    from klamm.broker.tools.kafka_export import CannotExport, export_kafka

    config = load(options.file, from_command_line(options.override), os.environ)
    logging.basicConfig(level="WARNING", stream=sys.stderr, format="%(levelname)s %(message)s")
    try:
        done = export_kafka(config, options.directory)
    except CannotExport as error:
        raise CannotBeDone(str(error)) from error
    directory = options.directory.resolve()
    print(
        f"{directory}: topics={done.topic_count} partitions={done.partition_count} "
        f"linked_bytes={done.size.linked_bytes} copied_bytes={done.size.copied_bytes}\n"
        f"Start Apache Kafka with process.roles=broker,controller node.id={done.node_id} log.dirs={directory} and "
        f"controller.quorum.voters={done.node_id}@<host>:<controller port>; do not format it."
    )
    return EXIT_OK
