"""Requests of our own client at any version, and what they bring back as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klamm.client.blocking import NodeClient
from klamm.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.protocol.records.batch import batches
from tests.support.broker_process import wait_for

TOPIC_IDS_FROM = 13  # of Produce and of Fetch
SESSIONS_FROM = 7
REPLICA_STATE_FROM = 15
MAX_BYTES = 64 << 20


def create(client: NodeClient, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> bytes:
    """A new topic, all its partitions ready for use (Apache Kafka takes a moment for that); returns its id."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()],
    )
    response = client.request(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    (result,) = response.topics
    assert result.error_code == 0, result
    wait_for(
        lambda: not any(list_offsets(client, name, -1, 5, partition=index).error_code for index in range(partitions)),
        what=f"{name} is ready",
    )
    identity = result.topic_id
    assert isinstance(identity, bytes)
    return identity


def topic_id(client: NodeClient, name: str) -> bytes:
    response = client.request(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12)
    found = response.topics[0].topic_id
    assert isinstance(found, bytes)
    return found


def produce(
    client: NodeClient, topic: str, records: bytes | bytearray, version: int, *, partition: int = 0, acks: int = -1
) -> Any:
    """The answer for the partition; None for acks=0."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=records)])
    if version >= TOPIC_IDS_FROM:
        data.topic_id = topic_id(client, topic)
    response = client.request(ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[data]), version)
    if response is None:
        return None
    (answer,) = response.responses[0].partition_responses
    return answer


def fetch_answer(
    client: NodeClient,
    topic: str,
    partition: int = 0,
    offset: int = 0,
    *,
    version: int = 12,
    max_bytes: int = MAX_BYTES,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
) -> Any:
    """The answer for the partition, to a full fetch without a session."""
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    data = FetchTopic(topic=topic, partitions=[wanted])
    if version >= TOPIC_IDS_FROM:
        data.topic_id = topic_id(client, topic)
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, topics=[data])
    if version >= 3:
        request.max_bytes = max_bytes
    if version >= SESSIONS_FROM:
        request.session_epoch = -1
    if version < REPLICA_STATE_FROM:
        request.replica_id = -1
    response = client.request(request, version)
    (answer,) = response.responses[0].partitions
    return answer


def fetch(client: NodeClient, topic: str, partition: int = 0, offset: int = 0, *, version: int = 12) -> bytes:
    """The records of one answer, which must not be an error."""
    answer = fetch_answer(client, topic, partition, offset, version=version)
    assert answer.error_code == 0, answer
    return bytes(answer.records)


def fetch_all(client: NodeClient, topic: str, partition: int) -> bytes:
    """All batches of a partition, as they are."""
    found = b""
    offset = 0
    while data := fetch(client, topic, partition, offset):
        found += data
        offset = max(header.next_offset for _, header in batches(data))
    return found


def list_offsets(
    client: NodeClient, topic: str, timestamp: int, version: int, *, partition: int = 0, count: int = 1
) -> Any:
    """The answer for the partition."""
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    if version == 0:
        wanted.max_num_offsets = count
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
    response = client.request(request, version)
    (answer,) = response.topics[0].partitions
    return answer
