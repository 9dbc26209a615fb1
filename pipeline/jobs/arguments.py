"""Options that several commands share, and their meaning: the source of topics, the table, Spark, times."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from klamm.pipeline.errors import BadOption

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from klamm.pipeline.spark.source.options import SourceOptions
    from klamm.pipeline.table import Location


def add_source_arguments(parser: argparse.ArgumentParser, *, topics_required: bool = True) -> None:
    """Add the options for the cluster or directories, and the topics."""
    group = parser.add_argument_group("source")
    group.add_argument("--bootstrap-servers", metavar="HOST:PORT,...", help="brokers of the cluster")
    group.add_argument(
        "--log-dirs",
        metavar="DIR,...",
        help="read segment files there, up to the end that the cluster (--bootstrap-servers) or the directories give",
    )
    group.add_argument(
        "--option",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="an option of the data source, as kafka.client.id",
    )
    add_topics_arguments(group, required=topics_required)


def add_topics_arguments(group: argparse._ArgumentGroup, *, required: bool) -> None:
    """Add the options for topics, by name or by pattern."""
    which = group.add_mutually_exclusive_group(required=required)
    which.add_argument("--topics", metavar="NAME,...", help="these topics")
    which.add_argument("--pattern", metavar="REGEX", help="topics with a whole name that matches")


def source_options(options: argparse.Namespace) -> SourceOptions:
    """Return the options of the source. Raises BadOption."""
    from klamm.pipeline.spark.source.options import BATCH, parse

    given = dict(_pairs("--option", options.option))
    if reserved := {"subscribe", "subscribePattern", "assign", "logDirs", "kafka.bootstrap.servers"} & set(given):
        raise BadOption(f"--option {min(reserved)}: this command has its own option for that")
    if options.bootstrap_servers is None and options.log_dirs is None:
        raise BadOption("--bootstrap-servers or --log-dirs is required: it says where the topics are")
    named = {
        "kafka.bootstrap.servers": options.bootstrap_servers,
        "logDirs": options.log_dirs,
        "subscribe": options.topics,
        "subscribePattern": options.pattern if options.topics is not None or options.pattern is not None else ".*",
    }
    return parse({**given, **{key: value for key, value in named.items() if value is not None}}, BATCH)


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the table."""
    group = parser.add_argument_group("table")
    group.add_argument("--table", metavar="PATH", required=True, help="the Delta table: a path or a URL")
    group.add_argument(
        "--storage-option",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="for a URL, as delta-rs names them (AWS_REGION=...)",
    )


def location(options: argparse.Namespace) -> Location:
    """Return the location of the table. Raises BadOption."""
    from klamm.pipeline.table import Location

    return Location.of(options.table, dict(_pairs("--storage-option", options.storage_option)))


def add_spark_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for Spark."""
    group = parser.add_argument_group("spark")
    group.add_argument("--master", metavar="URL", help="as local[4] (default: local[*], or SPARK_MASTER)")
    group.add_argument(
        "--conf", metavar="KEY=VALUE", action="append", default=[], help="a setting, as spark.driver.memory=4g"
    )


def spark_session(options: argparse.Namespace, name: str) -> SparkSession:
    """Return a Spark session. Raises PipelineError."""
    from klamm.pipeline.spark.session import session, settings

    return session(f"klamm-pipeline {name}", options.master, settings(options.conf))


def parse_time(option: str, text: str) -> int:
    """Return milliseconds since 1970, from ISO 8601 (UTC without a zone) or a number of them. Raises BadOption."""
    if text.isascii() and text.isdecimal() and len(text) > 8:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(
            f"{option} {text}: a time has the form 2026-11-21T18:30:00 (UTC), or is in milliseconds since 1970"
        ) from None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


def positive(text: str) -> int:
    """Parse a positive integer, for argparse."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def seconds(text: str) -> float:
    """Parse a positive number of seconds, for argparse."""
    number = float(text)
    if not 0 < number < 1e9:
        raise ValueError
    return number


def _pairs(option: str, given: list[str]) -> list[tuple[str, str]]:
    found = []
    for text in given:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise BadOption(f"{option} {text}: it has the form key=value")
        found.append((key, value))
    return found
