"""ListPartitionReassignments, ElectLeaders, DescribeQuorum, UpdateFeatures: little to do on one node, much to tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from klamm.broker.controller import features
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages import describe_quorum, elect_leaders, list_partition_reassignments, update_features
from tests.support.embedded import EmbeddedBroker

PREFERRED, UNCLEAN = 0, 1


def test_no_reassignment_is_under_way(broker: EmbeddedBroker) -> None:
    messages = list_partition_reassignments
    asked = messages.ListPartitionReassignmentsTopics(name="t", partition_indexes=[0])
    for topics in (None, [asked]):
        response = broker.call(messages.ListPartitionReassignmentsRequest(topics=topics), 0)
        assert (response.error_code, response.error_message, response.topics) == (0, None, [])


def elect(broker: EmbeddedBroker, wanted: dict[str, list[int]] | None, version: int, kind: int = PREFERRED) -> Any:
    topics = None
    if wanted is not None:
        topics = [elect_leaders.TopicPartitions(topic=name, partitions=indexes) for name, indexes in wanted.items()]
    request = elect_leaders.ElectLeadersRequest(topic_partitions=topics)
    if version >= 1:
        request.election_type = kind
    return broker.call(request, version)


@pytest.mark.parametrize(
    ("version", "kind"), [(0, PREFERRED), (1, PREFERRED), (2, PREFERRED), (1, UNCLEAN), (2, UNCLEAN)]
)
def test_no_election_is_needed(broker: EmbeddedBroker, version: int, kind: int) -> None:
    response = elect(broker, {"t": [0, 1, 2], "nobody": [0]}, version, kind)
    found = {
        (result.topic, partition.partition_id): partition.error_code
        for result in response.replica_election_results
        for partition in result.partition_result
    }
    assert response.error_code == 0
    assert found == {
        ("t", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nobody", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    everything = elect(broker, None, version, kind).replica_election_results
    assert [(result.topic, result.partition_result) for result in everything] == [("t", [])]


def test_a_leader_that_is_down_cannot_be_elected(broker: EmbeddedBroker) -> None:
    controller = broker.broker.controller
    image = controller.image
    topic = image.topics["t"]
    lost = replace(topic, partitions=(replace(topic.partitions[0], leader=-1), *topic.partitions[1:]))
    controller.image = image.with_topics([lost])
    for kind, code in (
        (PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ):
        (result,) = elect(broker, None, 2, kind).replica_election_results
        assert [(p.partition_id, p.error_code) for p in result.partition_result] == [(0, code)]


def test_an_unknown_election_is_refused(broker: EmbeddedBroker) -> None:
    response = elect(broker, {"t": [0]}, 2, kind=7)
    (result,) = response.replica_election_results
    assert response.error_code == result.partition_result[0].error_code == ErrorCode.INVALID_REQUEST


def quorum(broker: EmbeddedBroker, topic: str, index: int, version: int) -> Any:
    partition = describe_quorum.DescribeQuorumRequestPartitionData(partition_index=index)
    asked = describe_quorum.DescribeQuorumRequestTopicData(topic_name=topic, partitions=[partition])
    return broker.call(describe_quorum.DescribeQuorumRequest(topics=[asked]), version)


@pytest.mark.parametrize("version", range(3))
def test_the_quorum_is_this_node(broker: EmbeddedBroker, version: int) -> None:
    response = quorum(broker, "__cluster_metadata", 0, version)
    assert response.error_code == 0
    (topic,) = response.topics
    (partition,) = topic.partitions
    assert (topic.topic_name, partition.partition_index, partition.error_code) == ("__cluster_metadata", 0, 0)
    assert (partition.leader_id, partition.leader_epoch) == (1, 1) and partition.observers == []
    (voter,) = partition.current_voters
    assert voter.replica_id == 1 and voter.log_end_offset == partition.high_watermark > 0
    if version >= 1:
        assert voter.last_fetch_timestamp == voter.last_caught_up_timestamp == broker.clock.wall_ms()
    if version >= 2:
        assert voter.replica_directory_id != bytes(16)
        (node,) = response.nodes
        (listener,) = node.listeners
        assert (node.node_id, listener.name, listener.host, listener.port) == (1, "PLAINTEXT", "127.0.0.1", 9092)
    broker.create_topic("u")
    assert (
        quorum(broker, "__cluster_metadata", 0, version).topics[0].partitions[0].high_watermark > voter.log_end_offset
    )


def test_other_partitions_have_no_quorum(broker: EmbeddedBroker) -> None:
    for topic, index in (("t", 0), ("__cluster_metadata", 1)):
        (found,) = quorum(broker, topic, index, 2).topics
        assert found.topic_name == topic
        assert found.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def update(broker: EmbeddedBroker, feature: str, level: int, version: int, **options: Any) -> Any:
    wanted = update_features.FeatureUpdateKey(feature=feature, max_version_level=level, **options)
    return broker.call(update_features.UpdateFeaturesRequest(feature_updates=[wanted]), version)


@pytest.mark.parametrize("version", range(3))
def test_a_level_that_is_finalized_already_is_no_error(broker: EmbeddedBroker, version: int) -> None:
    response = update(broker, "metadata.version", features.INITIAL["metadata.version"], version)
    assert response.error_code == 0 and response.error_message is None
    expected = [("metadata.version", 0)] if version < 2 else []
    assert [(result.feature, result.error_code) for result in response.results] == expected


@pytest.mark.parametrize("version", range(3))
def test_levels_that_are_not_built_are_refused(broker: EmbeddedBroker, version: int) -> None:
    for feature, level in (("transaction.version", 3), ("metadata.version", 99), ("metadata.version", 20)):
        response = update(broker, feature, level, version)
        assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert feature in response.error_message and response.results == []


def test_v0_may_allow_a_downgrade(broker: EmbeddedBroker) -> None:
    controller = broker.broker.controller
    controller.supported_features = {**features.SUPPORTED, "test.version": (0, 3)}
    assert update(broker, "test.version", 3, 0).error_code == 0
    assert update(broker, "test.version", 2, 0).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert update(broker, "test.version", 2, 0, allow_downgrade=True).error_code == 0
    assert update(broker, "test.version", 1, 1, upgrade_type=2).error_code == 0
    assert broker.broker.image.features.finalized["test.version"] == 1
    assert broker.broker.image.features.epoch == 3
    wanted = update_features.FeatureUpdateKey(feature="test.version", max_version_level=0, upgrade_type=3)
    request = update_features.UpdateFeaturesRequest(feature_updates=[wanted], validate_only=True)
    assert broker.call(request, 2).error_code == 0
    assert broker.broker.image.features.epoch == 3
    request.validate_only = False
    assert broker.call(request, 2).error_code == 0
    assert "test.version" not in broker.broker.image.features.finalized
