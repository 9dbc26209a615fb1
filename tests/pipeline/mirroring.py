"""What the tests of mirrors share: clusters to mirror between, records to put there, and what a reader gets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from klamm.pipeline.__main__ import main
from klamm.pipeline.arrow import record_batch
from klamm.pipeline.kafka.cluster import READ_UNCOMMITTED, Cluster
from klamm.pipeline.kafka.fetcher import fetch_columns
from klamm.pipeline.kafka.producer import Producer
from klamm.pipeline.ranges import OffsetRange, TopicPartition
from klamm.protocol.records.batch import Record, encode_batch
from klamm.protocol.records.compression import Codec
from tests.support.broker_process import wait_for

Row = tuple[Any, ...]


def put(cluster: Cluster, partition: TopicPartition, records: Sequence[Record], codec: Codec = Codec.NONE) -> None:
    """One batch; the offsets of the records count from 0."""
    with Producer(cluster) as producer:
        producer.send(partition, encode_batch(records, codec=codec))


def some(count: int, *, first: int = 0, key: bytes = b"k", value: bytes = b"v") -> list[Record]:
    """Records of which each third has headers, each fifth no key, each seventh no value."""
    return [
        Record(
            at,
            1_000_000 + first + at,
            None if n % 5 == 0 else b"%s-%d" % (key, n),
            None if n % 7 == 0 else b"%s-%d" % (value, n),
            (("h", b"%d" % n), ("null", None)) if n % 3 == 0 else (),
        )
        for at, n in enumerate(range(first, first + count))
    ]


def rows(cluster: Cluster, partition: TopicPartition) -> list[Row]:
    """(key, value, timestamp, headers) of all committed records, once no transaction is open."""
    wait_for(
        lambda: cluster.latest([partition]) == cluster.latest([partition], READ_UNCOMMITTED),
        90,
        "the end of all transactions",
    )
    start, end = cluster.earliest([partition])[partition], cluster.latest([partition])[partition]
    found: list[Row] = []
    for part in fetch_columns(cluster, OffsetRange(*partition, start, end)):
        batch = record_batch(part, *partition, headers=True)
        found += [
            (row["key"], row["value"], row["timestamp"], [(one["key"], one["value"]) for one in row["headers"] or ()])
            for row in batch.to_pylist()
        ]
    return found


def all_rows(cluster: Cluster, topic: str) -> list[list[Row]]:
    """Return all rows of a topic, by partition."""
    return [rows(cluster, one) for one in cluster.topics([topic])[topic].topic_partitions]


def mirror(source: Cluster, target: Cluster, *arguments: str, master: str = "none") -> int:
    """The exit status of `klamm-pipeline mirror`."""
    return main(command(source.bootstrap_servers, target.bootstrap_servers, *arguments, master=master))


def command(source: str, target: str, *arguments: str, master: str = "none") -> list[str]:
    more: Iterable[str] = arguments
    return ["mirror", "--source", source, "--target", target, "--master", master, "--progress", "none", *more]
