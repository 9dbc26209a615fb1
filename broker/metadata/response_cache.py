"""Topics of Metadata responses, encoded once per version and kept until they change.

A cluster has many more topics than changes. A full response with 10,000 partitions would hold the loop for tens of
milliseconds if each were encoded again. Images are immutable, so an encoded topic is valid as long as the topic's image
is the same object, and is dropped with the topic. Topics with offline partitions are encoded each time: partitions go
offline and online without a new image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from klamm.protocol.schema import encode_part

if TYPE_CHECKING:
    from collections.abc import Mapping

    from klamm.broker.metadata.image import MetadataImage, TopicImage
    from klamm.broker.partitions.partition_manager import PartitionManager

Kind = tuple[int, int]
"""API version and authorized operations: with the topic, these determine the encoding."""


class MetadataResponseCache:
    """See the module's head."""

    def __init__(self, partitions: PartitionManager) -> None:
        self._partitions = partitions
        self._topics: dict[str, tuple[TopicImage, dict[Kind, bytes]]] = {}
        self._all: tuple[Mapping[str, TopicImage], dict[Kind, list[bytes]]] = {}, {}

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Drop the encoded topics that were deleted."""
        if new.topics is not old.topics:
            self._all = new.topics, {}
            for name in self._topics.keys() - new.topics.keys():
                del self._topics[name]

    def one(self, topic: TopicImage, version: int, operations: int) -> bytes:
        """Return one encoded topic."""
        offline = self._partitions.offline_partitions(topic.name)
        if offline:
            return _encoded(topic, version, operations, offline)
        kept = self._topics.get(topic.name)
        if kept is None or kept[0] is not topic:
            kept = self._topics[topic.name] = topic, {}
        answer = kept[1].get((version, operations))
        if answer is None:
            answer = kept[1][version, operations] = _encoded(topic, version, operations, offline)
        return answer

    def all(self, topics: Mapping[str, TopicImage], version: int, operations: int) -> list[bytes]:
        """Return all encoded topics of an image. The caller must not change the list."""
        if self._all[0] is not topics:
            self._all = topics, {}
        if self._partitions.has_offline():
            return [self.one(topic, version, operations) for topic in topics.values()]
        answers = self._all[1].get((version, operations))
        if answers is None:
            answers = self._all[1][version, operations] = [
                self.one(topic, version, operations) for topic in topics.values()
            ]
        return answers


def _encoded(topic: TopicImage, version: int, operations: int, offline: frozenset[int]) -> bytes:
    described = MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            MetadataResponsePartition(
                error_code=0,
                partition_index=partition.index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=list(partition.replicas) if partition.index in offline else [],
            )
            for partition in topic.partitions
        ],
        topic_authorized_operations=operations,
    )
    return bytes(encode_part(MetadataResponse, MetadataResponseTopic, version)(described, bytearray()))
