"""Finding leaders in Metadata responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from klamm.client.asynchronous import AsyncNodeClient
from klamm.client.blocking import NodeClient
from klamm.client.routing import Leader, Routing, load_routing, load_routing_async, metadata_request
from klamm.protocol.errors import (
    KafkaError,
    LeaderNotAvailable,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from klamm.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from klamm.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPIC_ID = bytes(range(16))
Start = Callable[[Callable[[Any], "bytes | None"]], Any]

RESPONSE = MetadataResponse(
    brokers=[
        MetadataResponseBroker(node_id=1, host="a", port=9092),
        MetadataResponseBroker(node_id=2, host="b", port=1),
    ],
    controller_id=2,
    topics=[
        MetadataResponseTopic(
            name="t",
            topic_id=TOPIC_ID,
            partitions=[
                MetadataResponsePartition(partition_index=1, leader_id=2, leader_epoch=5),
                MetadataResponsePartition(partition_index=0, leader_id=-1, error_code=5),
            ],
        ),
        MetadataResponseTopic(name="denied", error_code=29),
        MetadataResponseTopic(name="future", error_code=9999),
    ],
)


@pytest.mark.parametrize("topic", ["t", TOPIC_ID])
def test_the_leader_is_found_by_name_and_by_id(topic: str | bytes) -> None:
    assert Routing(RESPONSE).leader(topic, 1) == Leader(2, "b", 1, 5, "t", TOPIC_ID, 1)


@pytest.mark.parametrize(
    ("topic", "partition", "error"),
    [
        ("t", 0, LeaderNotAvailable),
        ("t", 2, UnknownTopicOrPartition),
        ("x", 0, UnknownTopicOrPartition),
        (bytes(16), 0, UnknownTopicId),
    ],
)
def test_a_missing_leader_is_a_kafka_error(topic: str | bytes, partition: int, error: type[KafkaError]) -> None:
    with pytest.raises(error):
        Routing(RESPONSE).leader(topic, partition)


@pytest.mark.parametrize(("topic", "code"), [("denied", 29), ("future", -1)])
def test_the_error_of_a_topic_is_raised(topic: str, code: int) -> None:
    with pytest.raises(KafkaError) as raised:
        Routing(RESPONSE).leader(topic, 0)
    assert raised.value.code == code


@pytest.mark.parametrize("version", range(MetadataRequest.versions[0], MetadataRequest.versions[1] + 1))
@pytest.mark.parametrize("topics", [None, ["a", "b"]])
def test_every_version_can_ask(version: int, topics: list[str] | None) -> None:
    encoded = MetadataRequest.encode[version](metadata_request(topics, version), bytearray())
    asked, _ = MetadataRequest.decode[version](bytes(encoded))
    assert [topic.name for topic in asked.topics or []] == (topics or [])
    assert (asked.topics is None) == (topics is None and version > 0)


@pytest.mark.parametrize("highest", [0, 8, 13])
def test_routing_is_loaded_over_both_clients(start_node: Start, highest: int) -> None:
    def script(asked: Any) -> Any:
        if asked.api_key == 18:
            keys = [ApiVersion(api_key=3, min_version=0, max_version=highest)]
            return asked.answer(ApiVersionsResponse(api_keys=keys))
        return asked.answer(RESPONSE)

    node = start_node(script)
    with NodeClient(node.host, node.port) as client:
        assert load_routing(client, ["t"]).leader("t", 1).port == 1

    async def talk() -> int:
        async with AsyncNodeClient(node.host, node.port) as client:
            return (await load_routing_async(client)).leader("t", 1).port

    assert asyncio.run(talk()) == 1
    assert {asked.version for asked in node.asked if asked.api_key == 3} == {highest}
