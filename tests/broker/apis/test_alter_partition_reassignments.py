"""AlterPartitionReassignments on one node: what Apache Kafka 4.4 with one broker was seen to answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.support.embedded import EmbeddedBroker

SEEN = [
    ("t", 0, [1], 0, None),
    ("t", 0, None, 85, None),
    ("t", 0, [], 39, "The manual partition assignment includes an empty replica list."),
    ("t", 0, [1, 1], 39, "The manual partition assignment includes the broker 1 more than once."),
    ("t", 0, [2], 39, "The manual partition assignment includes broker 2, but no such broker is registered."),
    ("t", 0, [1, 2], 39, "The manual partition assignment includes broker 2, but no such broker is registered."),
    ("t", 0, [-1], 39, "The manual partition assignment includes broker -1, but no such broker is registered."),
    ("t", 9, [1], 3, "Unable to find partition t:9."),
    ("t", -1, [1], 3, "Unable to find partition t:-1."),
    ("nope", 0, [1], 3, "Unable to find a topic named nope."),
    ("nope", 0, None, 3, "Unable to find a topic named nope."),
]


@pytest.mark.parametrize("version", [0, 1])
def test_answers_are_those_of_apache_kafka(tmp_path: Path, version: int) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.run(broker.broker.controller.register(broker._server._registration(["PLAINTEXT://127.0.0.1:9092"])))
        broker.create_topic("t", partitions=2)
        for topic, index, replicas, code, message in SEEN:
            wanted = ReassignableTopic(
                name=topic, partitions=[ReassignablePartition(partition_index=index, replicas=replicas)]
            )
            answer = broker.call(AlterPartitionReassignmentsRequest(topics=[wanted]), version)
            assert (answer.error_code, answer.error_message, answer.responses[0].name) == (0, None, topic)
            (found,) = answer.responses[0].partitions
            assert (found.partition_index, found.error_code, found.error_message) == (index, code, message), replicas
