"""Ranges of offsets to read, half-open, cut into tasks; and offsets as the JSON of Spark's Kafka options.

{"flights": {"0": 23, "1": -1}}         -2 stands for the first offset of the log, -1 for its end
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NamedTuple

from klamm.pipeline.errors import BadOption

EARLIEST: Final = -2
LATEST: Final = -1
NO_TOPIC_ID: Final = bytes(16)


class TopicPartition(NamedTuple):
    """A topic and a partition number; sorts by topic, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets from `start` up to, not including, `end`. `topic_id` shows whether the topic was created again."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: bytes = NO_TOPIC_ID

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def count(self) -> int:
        """Return the number of offsets; there may be fewer records."""
        return max(self.end - self.start, 0)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offsets {self.start} to {self.end}"


def split(
    ranges: Iterable[OffsetRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Cut ranges into tasks: one for each range that is not empty.

    A range of more than `max_records` is cut further. To get `min_partitions` tasks, each range is cut by its share of
    all offsets, so the number is not met exactly.
    """
    cut = [item for item in ranges if item.count]
    if max_records is not None:
        cut = [part for item in cut for part in _parts(item, -(-item.count // max_records))]
    if min_partitions is not None and min_partitions > len(cut):
        total = sum(item.count for item in cut)
        cut = [part for item in cut for part in _parts(item, round(item.count * min_partitions / total))]
    return cut


def _parts(whole: OffsetRange, wanted: int) -> list[OffsetRange]:
    number = min(max(wanted, 1), whole.count)
    cuts = [whole.start + whole.count * index // number for index in range(number + 1)]
    return [replace(whole, start=start, end=end) for start, end in pairwise(cuts)]


def parse_offsets(option: str, text: str, *, what: str = "offset") -> dict[TopicPartition, int]:
    """Parse `{"topic": {"0": 1}}`. Raises BadOption that names `option`."""
    wanted = f'{option} has the form {{"topic": {{"0": {what}}}}}, not {_shortened(text)}'
    try:
        topics = json.loads(text)
    except ValueError:
        raise BadOption(wanted) from None
    if not isinstance(topics, dict) or not all(isinstance(item, dict) for item in topics.values()):
        raise BadOption(wanted)
    found = {}
    for topic, partitions in topics.items():
        for partition, number in partitions.items():
            if not partition.isdecimal() or not isinstance(number, int) or isinstance(number, bool):
                raise BadOption(wanted)
            found[TopicPartition(topic, int(partition))] = number
    return found


def parse_assignment(option: str, text: str) -> list[TopicPartition]:
    """Parse `{"topic": [0, 1]}`. Raises BadOption that names `option`."""
    wanted = f'{option} has the form {{"topic": [0, 1]}}, not {_shortened(text)}'
    try:
        topics = json.loads(text)
    except ValueError:
        raise BadOption(wanted) from None
    if not isinstance(topics, dict) or not topics:
        raise BadOption(wanted)
    found = []
    for topic, partitions in topics.items():
        if not isinstance(partitions, list) or not all(type(item) is int and item >= 0 for item in partitions):
            raise BadOption(wanted)
        found += [TopicPartition(topic, item) for item in partitions]
    return sorted(set(found))


def nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets as nested dictionaries, sorted: the form of a stream's checkpoint and of the JSON options."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def flat(offsets: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Return nested dictionaries as offsets: the opposite of `nested`."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
