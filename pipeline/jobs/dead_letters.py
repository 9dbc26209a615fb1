"""Dead letters: records that could not be used go to a topic, with the reason in headers, as in Kafka Connect.

    with DeadLetters(cluster, "flights.dead", job="load") as letters:
        letters.put(batch, {3: "value: Expecting value: line 1 column 1"})     # rows of an Arrow record batch
        letters.flush()                                                        # all are acknowledged

A letter has the key, value, headers and timestamp of the record, and after its own headers these, as UTF-8:

    __connect.errors.topic, .partition, .offset       where the record is
    __connect.errors.connector.name, .task.id         the job and its task
    __connect.errors.stage                            KEY_CONVERTER, VALUE_CONVERTER or TRANSFORMATION
    __connect.errors.class.name                       the class that refused it
    __connect.errors.exception.class.name, .message   the reason
    (Connect's `.exception.stacktrace` is left out)

Letters are sent idempotently but not in a transaction. A task that is killed after `flush` and runs again sends them
again; topic, partition and offset identify duplicates. The partition is chosen by the key, as by any producer. Nothing
connects before the first letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.kafka.encoding import encode_batches, header_tails
from klamm.pipeline.kafka.partitioner import NO_KEY, partitions_of
from klamm.pipeline.kafka.producer import Producer
from klamm.pipeline.ranges import TopicPartition
from klamm.protocol.records.batch import Header

PREFIX: Final = "__connect.errors."
TOPIC: Final = PREFIX + "topic"
PARTITION: Final = PREFIX + "partition"
OFFSET: Final = PREFIX + "offset"
JOB: Final = PREFIX + "connector.name"
TASK: Final = PREFIX + "task.id"
STAGE: Final = PREFIX + "stage"
CLASS: Final = PREFIX + "class.name"
EXCEPTION: Final = PREFIX + "exception.class.name"
MESSAGE: Final = PREFIX + "exception.message"

_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason in the headers of a letter; `offset` and `partition` are None if missing or no numbers."""

    topic: str | None
    partition: int | None
    offset: int | None
    job: str
    stage: str
    message: str

    @classmethod
    def of(cls, headers: Iterable[Header]) -> Reason:
        """Parse the headers of a letter, also of one that Kafka Connect wrote. The last header of a name counts."""
        found = {name: (value or b"").decode("utf-8", "replace") for name, value in headers if name.startswith(PREFIX)}
        return cls(
            found.get(TOPIC),
            _number(found.get(PARTITION)),
            _number(found.get(OFFSET)),
            found.get(JOB, ""),
            found.get(STAGE, ""),
            found.get(MESSAGE, ""),
        )


def own_headers(headers: Iterable[Header]) -> list[Header]:
    """Return the headers that the record had before it became a letter."""
    return [item for item in headers if not item[0].startswith(PREFIX)]


class DeadLetters:
    """A dead letter topic, and the producer for it. Connects on the first letter."""

    def __init__(self, cluster: Cluster, topic: str, *, job: str, task: str = "0") -> None:
        self.topic = topic
        self.count = 0
        self._cluster = cluster
        self._job = job
        self._task = task
        self._producer: Producer | None = None
        self._partitions = 0

    def put(self, batch: Any, reasons: Mapping[int, str]) -> None:
        """Send rows of a record batch with the columns of `arrow.SCHEMA_WITH_HEADERS`, each with its reason.

        A reason that begins with "key:" is from the key's converter. Raises UnknownTopic, NotWritten.
        """
        if not reasons:
            return
        producer = self._started()
        rows = batch.take(pa.array(sorted(reasons)))
        facts = rows.select(["topic", "partition", "offset", "headers"]).to_pylist()
        headers = [
            [*(record["headers"] or ()), *self._facts(record, reasons[row])]
            for row, record in zip(sorted(reasons), facts, strict=True)
        ]
        tails = header_tails(pa.array(headers, _HEADERS))
        timestamps = rows["timestamp"].cast(pa.int64()).to_numpy(zero_copy_only=False) // 1000
        for partition, chosen in self._chosen(rows):
            at = pa.array(chosen)
            keys, values = rows["key"].take(at), rows["value"].take(at)
            for encoded in encode_batches(keys, values, timestamps[chosen], tails.take(at)):
                producer.send(TopicPartition(self.topic, partition), encoded.data)
        self.count += len(reasons)

    def flush(self) -> None:
        """Wait until all letters are in the log. Raises NotWritten."""
        if self._producer is not None:
            self._producer.flush()

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self.close()

    def _started(self) -> Producer:
        if self._producer is None:
            self._partitions = len(self._cluster.topics([self.topic])[self.topic].partitions)
            producer = Producer(self._cluster)
            producer.start()
            self._producer = producer
        return self._producer

    def _facts(self, record: Mapping[str, Any], reason: str) -> list[dict[str, Any]]:
        stage = "KEY_CONVERTER" if reason.startswith("key:") else "VALUE_CONVERTER"
        facts = {
            TOPIC: record["topic"],
            PARTITION: record["partition"],
            OFFSET: record["offset"],
            JOB: self._job,
            TASK: self._task,
            STAGE: stage,
            CLASS: f"klamm.pipeline.{self._job}",
            EXCEPTION: "klamm.pipeline.errors.BadRecord",
            MESSAGE: reason,
        }
        return [{"key": name, "value": str(value).encode()} for name, value in facts.items()]

    def _chosen(self, rows: Any) -> Iterator[tuple[int, Any]]:
        partitions = partitions_of(rows["key"], self._partitions)
        without = partitions == NO_KEY
        partitions[without] = rows["partition"].to_numpy(zero_copy_only=False)[without] % self._partitions
        for partition in np.unique(partitions).tolist():
            yield partition, np.flatnonzero(partitions == partition)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
