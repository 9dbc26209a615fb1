"""How far a mirror has come: offsets of the source, in a group at the target, committed with the records themselves.

The group is named after the mirror (`klamm-mirror.<alias>` unless told otherwise). Partition p of target topic t holds
the next offset of source partition p; where the target has fewer partitions, a further group `<group>.<n>` has those
from n times as many on. The metadata of a commit is the source topic's name and id, so that another topic of that name,
or another mirror with the same alias, is not taken for the same one.

Brokers forget the offsets of a group without members after `offsets.retention.minutes`. The newest offset sync
(`syncs`) of the partition then takes its place, if the target still has what it tells of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from klamm.pipeline.errors import BadOption, DataLoss
from klamm.pipeline.jobs.mirror.batches import Way
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.kafka.groups import Committed, committed
from klamm.pipeline.ranges import NO_TOPIC_ID, OffsetRange, TopicPartition

UNKNOWN_ID: Final = "-"


@dataclass(frozen=True, slots=True)
class Flow:
    """One source partition on its way: `wanted` from where it was when this was planned, to where to stop.

    `begin` is where to start when nothing has been committed; `pin` says that it is to be committed even if there is
    nothing to copy, because it would be another one next time.
    """

    wanted: OffsetRange
    target_topic: str
    way: Way
    begin: int
    pin: bool = False

    @property
    def source(self) -> TopicPartition:
        return self.wanted.topic_partition

    @property
    def place(self) -> TopicPartition:
        """Where progress is kept."""
        return TopicPartition(self.target_topic, self.wanted.partition % self.way.target_partitions)

    def group(self, name: str) -> str:
        """Who keeps it."""
        return group_of(name, self.wanted.partition, self.way.target_partitions)

    @property
    def metadata(self) -> str:
        return metadata(self.wanted.topic, self.wanted.topic_id)


def group_of(name: str, partition: int, target_partitions: int) -> str:
    further = partition // target_partitions
    return f"{name}.{further}" if further else name


def metadata(topic: str, topic_id: bytes) -> str:
    return f"{topic} {topic_id.hex() if topic_id != NO_TOPIC_ID else UNKNOWN_ID}"


def position(target: Cluster, flow: Flow, group: str, *, fail_on_data_loss: bool) -> int | None:
    """Where to go on, None when nothing is committed: to be asked once the producer has fenced all others.

    Raises DataLoss, BadOption.
    """
    found = committed(target, flow.group(group), [flow.place], stable=True).get(flow.place)
    if found is None:
        return None
    if not is_of(found, flow.wanted.topic, flow.wanted.topic_id, flow.group(group)):
        text = f"{flow.source}: the topic was deleted and made anew since offset {found.offset} was mirrored"
        if fail_on_data_loss:
            raise DataLoss(text)
        return 0
    return found.offset


def is_of(found: Committed, topic: str, topic_id: bytes, group: str) -> bool:
    """Whether what was committed tells of this topic. Raises BadOption when it tells of one with another name."""
    name, _, identity = found.metadata.partition(" ")
    if name and name != topic:
        raise BadOption(f"group {group} holds the offsets of topic {name} for the same target: give one a --group")
    return not identity or UNKNOWN_ID in (identity, metadata("", topic_id).strip()) or identity == topic_id.hex()
