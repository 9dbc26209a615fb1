"""Topics with all that a reader has to tell apart: nulls, empty values, headers, codecs, gaps, aborted transactions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.kafka.producer import Producer
from klamm.pipeline.kafka.topics import create_topic
from klamm.pipeline.ranges import TopicPartition
from klamm.protocol.records.batch import Record, encode_batch
from klamm.protocol.records.compression import Codec

START_MS: Final = 4_000_000_000_000  # later than the markers of transactions, which are of today
KEPT: Final = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
VALUES: Final = (None, b"", b"v", b"value " * 40)
HEADERS: Final = ((), (("trace", b"1"),), (("a", None), ("a", b""), ("\u00fc", b"x" * 300)))


def fill(cluster: Cluster, topic: str, *, partitions: int = 2, records: int = 200, seed: int = 7) -> None:
    """A new topic: batches of all codecs, and between them transactions, every other one aborted.

    The timestamps of a partition ascend, one millisecond from record to record, aborted ones counted too.
    """
    create_topic(cluster, topic, partitions=partitions, configs=KEPT)
    rng = random.Random(seed)
    with Producer(cluster, transactional_id=f"fill.{topic}") as producer:
        for number in range(partitions):
            partition = TopicPartition(topic, number)
            for index, (first, count) in enumerate(_pieces(rng, records)):
                codec = list(Codec)[index % len(Codec)]
                batch = encode_batch(_records(rng, first, count), codec=codec)
                producer.begin()
                producer.send(partition, batch)
                if index % 3 == 2:
                    producer.abort()
                else:
                    producer.commit()


def _pieces(rng: random.Random, count: int) -> Iterator[tuple[int, int]]:
    first = 0
    while first < count:
        size = min(rng.randint(1, 25), count - first)
        yield first, size
        first += size


def _records(rng: random.Random, first: int, count: int) -> list[Record]:
    return [
        Record(index, START_MS + first + index, rng.choice(VALUES), rng.choice(VALUES), rng.choice(HEADERS))
        for index in range(count)
    ]
