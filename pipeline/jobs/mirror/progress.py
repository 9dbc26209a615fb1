"""The progress of a mirror: source offsets in a group at the target, committed together with the records.

The group is named after the mirror (by default `klamm-mirror.<alias>`). Partition p of target topic t holds the next
offset of source partition p; if the target has fewer partitions (n), a further group `<group>.<k>` has those from k
times n on. The metadata of a commit is the source topic's name and id, so that another topic of that name, or another
mirror with the same alias, is not taken for the same one.

Brokers drop the offsets of a group without members after `offsets.retention.minutes`. The newest offset sync (`syncs`)
of the partition then takes its place, if the target still has the records of that sync.
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
    """One source partition to copy: `wanted` is from the offset at planning time to the end.

    `begin` is the start if nothing was committed. `pin` commits it even if there is nothing to copy, because it would
    be another offset next time.
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
        """Return the partition that holds the committed offset."""
        return TopicPartition(self.target_topic, self.wanted.partition % self.way.target_partitions)

    def group(self, name: str) -> str:
        """Return the group that holds the committed offset."""
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
    """Return the offset to continue from, None when nothing is committed. Ask after the producer has fenced all others.

    Raises DataLoss, BadOption.
    """
    found = committed(target, flow.group(group), [flow.place], stable=True).get(flow.place)
    if found is None:
        return None
    if not is_of(found, flow.wanted.topic, flow.wanted.topic_id, flow.group(group)):
        text = f"{flow.source}: the topic was deleted and created again since offset {found.offset} was mirrored"
        if fail_on_data_loss:
            raise DataLoss(text)
        return 0
    return found.offset


def is_of(found: Committed, topic: str, topic_id: bytes, group: str) -> bool:
    """Return whether an offset was committed for this topic. Raises BadOption if it was for one with another name."""
    name, _, identity = found.metadata.partition(" ")
    if name and name != topic:
        raise BadOption(f"group {group} holds the offsets of topic {name} for the same target: choose another --group")
    return not identity or UNKNOWN_ID in (identity, metadata("", topic_id).strip()) or identity == topic_id.hex()
