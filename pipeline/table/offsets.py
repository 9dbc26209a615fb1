"""The next offsets of a table, as Delta app transactions.

They are in the same commit as the files, survive checkpoints, and other writers of the table leave them alone.

klamm:<topic>:<partition>           version = the next offset to load
klamm-topic:<topic>:<id in hex>     version = 1: the topic of this id is (or was) loaded. Brokers without topic ids have
                                    none here. A name with offsets but without its id was deleted and created again

They do not name a cluster: a table follows its topics when they move to another cluster with their ids and offsets (a
take-over of log directories, a restored snapshot). It does not follow a mirror, which has other offsets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from klamm.pipeline.ranges import NO_TOPIC_ID, TopicPartition

OFFSET: Final = re.compile(r"klamm:([^:]+):(\d+)")
TOPIC: Final = re.compile(r"klamm-topic:([^:]+):([0-9a-f]{32})")


def offset_app(partition: TopicPartition) -> str:
    return f"klamm:{partition.topic}:{partition.partition}"


def topic_app(topic: str, topic_id: bytes) -> str:
    return f"klamm-topic:{topic}:{topic_id.hex()}"


def next_offsets(transactions: Mapping[str, int]) -> dict[TopicPartition, int]:
    """Return the next offsets of all topic partitions in a table, sorted."""
    matches = ((OFFSET.fullmatch(app), version) for app, version in transactions.items())
    found = {TopicPartition(match[1], int(match[2])): version for match, version in matches if match}
    return dict(sorted(found.items()))


def topic_ids(transactions: Mapping[str, int]) -> dict[str, set[bytes]]:
    """Return the ids of each topic, oldest and newest alike."""
    found: dict[str, set[bytes]] = {}
    for app in transactions:
        if match := TOPIC.fullmatch(app):
            found.setdefault(match[1], set()).add(bytes.fromhex(match[2]))
    return found


def is_recreated(ids: Mapping[str, set[bytes]], topic: str, topic_id: bytes) -> bool:
    """Return whether a topic that was loaded only under other ids was created again."""
    return topic_id != NO_TOPIC_ID and topic in ids and topic_id not in ids[topic]
