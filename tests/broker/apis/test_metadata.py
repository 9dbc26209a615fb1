"""Metadata: which topics, which address, and topics created on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.embedded import EmbeddedBroker


def ask(broker: EmbeddedBroker, version: int, names: list[str] | None, **options: Any) -> Any:
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    return broker.call(MetadataRequest(topics=topics, **options), version)


@pytest.mark.parametrize("version", range(14))
def test_a_topic_and_its_leader(broker: EmbeddedBroker, version: int) -> None:
    response = ask(broker, version, ["t"])
    (node,) = response.brokers
    assert (node.node_id, node.host, node.port) == (1, "127.0.0.1", 9092)
    (topic,) = response.topics
    assert (topic.error_code, topic.name) == (0, "t")
    assert [(partition.partition_index, partition.leader_id) for partition in topic.partitions] == [(0, 1), (1, 1)]
    if version >= 1:
        assert response.controller_id == 1
    if version >= 2:
        assert response.cluster_id == broker.broker.cluster_id


def test_all_and_none(broker: EmbeddedBroker) -> None:
    assert [topic.name for topic in ask(broker, 0, []).topics] == ["t"]
    assert ask(broker, 1, []).topics == []
    assert [topic.name for topic in ask(broker, 1, None).topics] == ["t"]


def test_by_id(broker: EmbeddedBroker) -> None:
    topic_id = broker.broker.image.topics["t"].topic_id
    wanted = [MetadataRequestTopic(topic_id=topic_id, name=None), MetadataRequestTopic(topic_id=b"\1" * 16, name=None)]
    found, unknown = broker.call(MetadataRequest(topics=wanted), 12).topics
    assert (found.name, found.topic_id) == ("t", topic_id)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_missing_topic_is_created_when_it_may(broker: EmbeddedBroker) -> None:
    refused = ask(broker, 4, ["new"], allow_auto_topic_creation=False).topics[0]
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    created = ask(broker, 4, ["new"]).topics[0]
    assert created.error_code == 0 and len(created.partitions) == 1
    assert ask(broker, 3, ["newer"]).topics[0].error_code == 0


def test_no_topic_is_created_when_the_broker_does_not_want_it(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, {"auto.create.topics.enable": "false"}) as broker:
        assert ask(broker, 9, ["new"]).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["a/b", "..", "x" * 250, "ä", "a b"])
@pytest.mark.parametrize("allowed", [True, False])
def test_bad_names_are_reported(broker: EmbeddedBroker, name: str, allowed: bool) -> None:
    topic = ask(broker, 9, [name], allow_auto_topic_creation=allowed).topics[0]
    assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_advertised_listeners_win_over_the_dialled_address(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, {"advertised.listeners": "PLAINTEXT://klamm.example:1234"}) as broker:
        node = ask(broker, 9, []).brokers[0]
        assert (node.host, node.port) == ("klamm.example", 1234)


def test_operations_are_returned_when_asked_for(broker: EmbeddedBroker) -> None:
    asked = ask(broker, 8, ["t"], include_topic_authorized_operations=True)
    assert asked.topics[0].topic_authorized_operations > 0
    assert ask(broker, 8, ["t"]).topics[0].topic_authorized_operations == -(2**31)


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("topic", [{"topic_id": b"\1" * 16, "name": "t"}, {"name": None}], ids=["by id", "no name"])
def test_ids_and_null_names_are_refused_before_v12(broker: EmbeddedBroker, version: int, topic: dict[str, Any]) -> None:
    """The request has a place for them, the response has none for a null name."""
    response = broker.call(MetadataRequest(topics=[MetadataRequestTopic(**topic)]), version)
    assert [found.error_code for found in response.topics] == [ErrorCode.INVALID_REQUEST]
    assert response.topics[0].name == (topic["name"] or "")
