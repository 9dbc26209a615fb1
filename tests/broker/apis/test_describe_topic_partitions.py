"""DescribeTopicPartitions: pages, cursors, and topics that are not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tests.support.embedded import EmbeddedBroker


def describe(broker: EmbeddedBroker, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    return broker.call(
        DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        ),
        0,
    )


def test_a_topic(broker: EmbeddedBroker) -> None:
    response = describe(broker, "t")
    (topic,) = response.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "t", False)
    assert topic.topic_id == broker.broker.image.topics["t"].topic_id
    assert topic.topic_authorized_operations > 0 and response.next_cursor is None
    for index, partition in enumerate(topic.partitions):
        assert (partition.partition_index, partition.leader_id, partition.leader_epoch) == (index, 1, 0)
        assert partition.replica_nodes == partition.isr_nodes == [1]
        assert partition.eligible_leader_replicas == partition.last_known_elr == partition.offline_replicas == []


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 100, 0, -5])
def test_pages_hold_every_partition_once_and_in_order(broker: EmbeddedBroker, limit: int) -> None:
    for name, count in (("a", 3), ("z", 1), ("m", 4)):
        broker.create_topic(name, partitions=count)
    found, cursor = [], None
    while True:
        response = describe(broker, limit=limit, cursor=cursor)
        page = [(topic.name, partition.partition_index) for topic in response.topics for partition in topic.partitions]
        assert 1 <= len(page) <= max(1, limit)
        found += page
        if response.next_cursor is None:
            break
        cursor = (response.next_cursor.topic_name, response.next_cursor.partition_index)
    sizes = {"a": 3, "m": 4, "t": 2, "z": 1}
    assert found == [(name, index) for name, count in sizes.items() for index in range(count)]


def test_the_broker_has_a_limit_of_its_own(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, {"max.request.partition.size.limit": 2}) as broker:
        broker.create_topic("t", partitions=3)
        response = describe(broker)
        assert len(response.topics[0].partitions) == 2
        assert (response.next_cursor.topic_name, response.next_cursor.partition_index) == ("t", 2)


def test_topics_that_are_not_there_have_their_error(broker: EmbeddedBroker) -> None:
    response = describe(broker, "t", "nobody", "a/b", "t")
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 0),
    ]


def test_a_cursor_at_a_deleted_topic_continues_after_it(broker: EmbeddedBroker) -> None:
    assert [topic.name for topic in describe(broker, cursor=("s", 5)).topics] == ["t"]
    assert describe(broker, cursor=("u", 0)).topics == []


@pytest.mark.parametrize("name", ["a", "u"])
def test_a_cursor_at_a_topic_that_is_not_asked_for_is_refused(broker: EmbeddedBroker, name: str) -> None:
    (topic,) = describe(broker, "t", cursor=(name, 0)).topics
    assert topic.error_code == ErrorCode.INVALID_REQUEST


def test_a_cursor_before_the_first_partition_is_refused(broker: EmbeddedBroker) -> None:
    (topic,) = describe(broker, "t", cursor=("t", -1)).topics
    assert topic.error_code == ErrorCode.INVALID_REQUEST
