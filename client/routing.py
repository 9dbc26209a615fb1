"""The leaders of partitions, according to one Metadata response.

    routing = load_routing(client, ["flights"])
    leader = routing.leader("flights", 3)       # .host, .port, .leader_epoch

A `Routing` is a snapshot: it does not update itself. When a node answers NOT_LEADER_OR_FOLLOWER, load a new one. Topics
are found by name and, from Metadata v10, by id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from klamm.client.asynchronous import AsyncNodeClient
from klamm.client.blocking import NodeClient
from klamm.protocol.errors import ErrorCode, KafkaError, LeaderNotAvailable, UnknownTopicId, UnknownTopicOrPartition
from klamm.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.protocol.wire import ZERO_UUID, uuid_to_text

NULL_TOPICS_SINCE = 1  # v0 asks for all topics with an empty list, and cannot ask for none
NO_AUTO_CREATION_SINCE = 4


@dataclass(frozen=True, slots=True)
class Node:
    """The address of a broker."""

    node_id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a partition. `leader_epoch` is -1 and `topic_id` zero if the version does not have them."""

    node_id: int
    host: str
    port: int
    leader_epoch: int
    topic: str
    topic_id: bytes
    partition: int


class Routing:
    """A Metadata response, indexed for lookups."""

    def __init__(self, response: Any) -> None:
        self.nodes = {item.node_id: Node(item.node_id, item.host, item.port, item.rack) for item in response.brokers}
        self.controller_id: int = response.controller_id
        self._topics: dict[str | bytes, Any] = {}
        for topic in response.topics:
            if topic.name is not None:
                self._topics[topic.name] = topic
            if topic.topic_id != ZERO_UUID:
                self._topics[topic.topic_id] = topic

    def leader(self, topic: str | bytes, partition: int) -> Leader:
        """Return the leader of a partition of a topic, which is given by name or by its 16-byte id.

        Raises the KafkaError of the response for it: UnknownTopicOrPartition, LeaderNotAvailable, ...
        """
        found = self._topic(topic)
        for item in found.partitions:
            if item.partition_index == partition:
                break
        else:
            raise UnknownTopicOrPartition(f"{found.name} has no partition {partition}")
        node = self.nodes.get(item.leader_id)
        if node is None:
            raise LeaderNotAvailable(f"{found.name}-{partition}: no node leads it (leader_id={item.leader_id})")
        return Leader(
            node.node_id, node.host, node.port, item.leader_epoch, found.name or "", found.topic_id, partition
        )

    def _topic(self, topic: str | bytes) -> Any:
        found = self._topics.get(topic)
        if found is None:
            if isinstance(topic, bytes):
                raise UnknownTopicId(f"topic id {uuid_to_text(topic)} is not in the metadata")
            raise UnknownTopicOrPartition(f"topic {topic} is not in the metadata")
        if found.error_code != ErrorCode.NONE:
            raise KafkaError(_code(found.error_code), f"metadata of topic {found.name}")
        return found


def metadata_request(topics: Iterable[str] | None, version: int) -> MetadataRequest:
    """Return the request for some topics, all (None), or none (empty; not in v0). Creates no topic from v4 on."""
    named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    if named is None and version < NULL_TOPICS_SINCE:
        named = []
    return MetadataRequest(topics=named, allow_auto_topic_creation=version < NO_AUTO_CREATION_SINCE)


def load_routing(client: NodeClient, topics: Iterable[str] | None = None) -> Routing:
    """Ask one node for the leaders of topics (None: of all)."""
    version = client.choose_version(MetadataRequest)
    return Routing(client.request(metadata_request(topics, version), version))


async def load_routing_async(client: AsyncNodeClient, topics: Iterable[str] | None = None) -> Routing:
    """Do the same as `load_routing` over the asynchronous client."""
    version = client.choose_version(MetadataRequest)
    return Routing(await client.request(metadata_request(topics, version), version))


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
