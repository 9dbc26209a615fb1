"""The replay of dead letters to their topics, for `dlq`. `dead_letters` has the format of a letter.

A replay is a series of transactions. Each holds records made of letters (key, value, timestamp and own headers, as they
were) and, for the group `klamm-dlq.<topic>`, the offset after the last of these letters. So a run that is killed
anywhere continues after the committed offset, and no letter is replayed twice. A duplicate, written because the job was
killed and run again, is skipped; the record's topic, partition and offset identify it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from klamm.pipeline.arrow import record_batch
from klamm.pipeline.errors import PipelineError, UnknownTopic
from klamm.pipeline.jobs.dead_letters import Reason, own_headers
from klamm.pipeline.jobs.publishing import HEADERS
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.kafka.encoding import encode_batches, header_tails
from klamm.pipeline.kafka.fetcher import fetch_columns
from klamm.pipeline.kafka.groups import committed
from klamm.pipeline.kafka.partitioner import NO_KEY, partitions_of
from klamm.pipeline.kafka.producer import Producer
from klamm.pipeline.ranges import OffsetRange, TopicPartition
from klamm.protocol.records.batch import Header

PER_TRANSACTION: Final = 1000


@dataclass(frozen=True, slots=True)
class Letter:
    """A record of the dead letter topic. `is_double`: an earlier letter has the same origin."""

    place: TopicPartition
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    reason: Reason
    is_double: bool = False


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay."""

    letters: int
    doubles: int
    transactions: int


def group_of(topic: str) -> str:
    """Return the group that holds the offsets of the replay."""
    return f"klamm-dlq.{topic}"


def positions(cluster: Cluster, topic: str, *, stable: bool = False) -> dict[TopicPartition, int]:
    """Return the first letter of each partition that was not replayed."""
    partitions = cluster.topics([topic])[topic].topic_partitions
    found = committed(cluster, group_of(topic), partitions, stable=stable)
    return {
        one: max(found[one].offset if one in found else 0, start) for one, start in cluster.earliest(partitions).items()
    }


def letters(cluster: Cluster, topic: str) -> Iterator[Letter]:
    """Yield all letters, by partition and offset. Raises UnknownTopic."""
    partitions = cluster.topics([topic])[topic].topic_partitions
    starts, ends = cluster.earliest(partitions), cluster.latest(partitions)
    for place in partitions:
        seen: set[tuple[str, int, int]] = set()
        for part in fetch_columns(cluster, OffsetRange(*place, starts[place], ends[place])):
            rows = record_batch(part, *place, headers=True).select(["offset", "key", "value", "headers"]).to_pylist()
            for row, timestamp_ms in zip(rows, part.timestamps.tolist(), strict=True):
                letter = _letter(place, row, timestamp_ms)
                origin = _origin(letter.reason)
                yield letter if origin not in seen else _double(letter)
                if origin is not None:
                    seen.add(origin)


def replay(cluster: Cluster, topic: str, *, to: str | None = None, limit: int | None = None) -> Replayed:
    """Replay the remaining letters, at most `limit`.

    Raises UnknownTopic, PipelineError for a letter that does not name its topic, ProducerFenced.
    """
    done = doubles = transactions = 0
    with Producer(cluster, transactional_id=group_of(topic)) as producer:
        starts = positions(cluster, topic, stable=True)
        waiting: list[Letter] = []
        sender = _Sender(cluster, topic, producer, to)
        for letter in letters(cluster, topic):
            if letter.offset < starts[letter.place]:
                continue
            if limit is not None and done + len(waiting) >= limit:
                break
            if waiting and (waiting[0].place != letter.place or len(waiting) >= PER_TRANSACTION):
                transactions += sender.send(waiting)
                done += len(waiting)
                waiting = []
            waiting.append(letter)
            doubles += letter.is_double
        if waiting:
            transactions += sender.send(waiting)
            done += len(waiting)
    return Replayed(done - doubles, doubles, transactions)


def target_of(letter: Letter, to: str | None) -> str:
    """Return the topic of a letter. Raises PipelineError."""
    target = to if to is not None else letter.reason.topic
    if target is None:
        raise PipelineError(f"{letter.place} offset {letter.offset} does not name its topic; name one with --to")
    return target


class _Sender:
    def __init__(self, cluster: Cluster, topic: str, producer: Producer, to: str | None) -> None:
        self._cluster = cluster
        self._topic = topic
        self._producer = producer
        self._to = to
        self._counts: dict[str, int] = {}

    def send(self, waiting: list[Letter]) -> int:
        """Send letters of one partition in one transaction."""
        by_place: dict[TopicPartition, list[Letter]] = {}
        for letter in waiting:
            if not letter.is_double:
                by_place.setdefault(self._place(letter), []).append(letter)
        self._producer.begin()
        for place, chosen in by_place.items():
            for data in _batches(chosen):
                self._producer.send(place, data)
        last = waiting[-1]
        self._producer.send_offsets(group_of(self._topic), {last.place: last.offset + 1})
        self._producer.commit()
        return 1

    def _place(self, letter: Letter) -> TopicPartition:
        """Return the partition of the record, if it goes back to its topic; else the partition of its key."""
        target = target_of(letter, self._to)
        if target == self._topic:
            raise PipelineError(f"{target} would be replayed into itself")
        if target not in self._counts:
            found = self._cluster.topics([target], missing_ok=True)
            if target not in found:
                origin = f"{letter.place} offset {letter.offset} is from topic {target}"
                raise UnknownTopic(f"{origin}, which does not exist; name one with --to")
            self._counts[target] = len(found[target].partitions)
        count, partition = self._counts[target], letter.reason.partition
        if target == letter.reason.topic and partition is not None and partition < count:
            return TopicPartition(target, partition)
        hashed = int(partitions_of(pa.array([letter.key], pa.binary()), count)[0])
        return TopicPartition(target, letter.place.partition % count if hashed == NO_KEY else hashed)


def _batches(chosen: list[Letter]) -> Iterator[bytearray]:
    headers = [[{"key": name, "value": value} for name, value in own_headers(one.headers)] for one in chosen]
    for encoded in encode_batches(
        pa.array([one.key for one in chosen], pa.binary()),
        pa.array([one.value for one in chosen], pa.binary()),
        np.array([one.timestamp_ms for one in chosen], np.int64),
        header_tails(pa.array(headers, HEADERS)),
    ):
        yield encoded.data


def _letter(place: TopicPartition, row: dict[str, Any], timestamp_ms: int) -> Letter:
    headers = tuple((one["key"], one["value"]) for one in row["headers"] or ())
    return Letter(place, row["offset"], timestamp_ms, row["key"], row["value"], headers, Reason.of(headers))


def _origin(reason: Reason) -> tuple[str, int, int] | None:
    if reason.topic is None or reason.partition is None or reason.offset is None:
        return None
    return reason.topic, reason.partition, reason.offset


def _double(letter: Letter) -> Letter:
    from dataclasses import replace

    return replace(letter, is_double=True)
