"""CreateTopics: the topics made, at every version, and refused requests (docs/faults.md, network rows 35-37)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from klamm.protocol.wire import ZERO_UUID
from klamm.storage.log.log import Log
from tests.support.embedded import EmbeddedBroker


def topic(name: str, partitions: int = 1, factor: int = 1, **configs: str | None) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def create(broker: EmbeddedBroker, *topics: CreatableTopic, version: int = 7, **options: Any) -> Any:
    return broker.call(CreateTopicsRequest(topics=list(topics), timeout_ms=1000, **options), version).topics


@pytest.mark.parametrize("version", range(8))
def test_a_topic_is_made_with_its_logs_before_the_answer(broker: EmbeddedBroker, version: int) -> None:
    (result,) = create(broker, topic("new", 3, retention_ms="77"), version=version)
    assert (result.name, result.error_code) == ("new", 0)
    image = broker.broker.image.topics["new"]
    assert len(image.partitions) == 3
    assert broker.broker.image.topic_config("new") == {"retention.ms": "77"}
    served = broker.broker.partitions.topics["new"].partitions
    assert len(served) == 3 and all(isinstance(partition.log, Log) for partition in served)
    if version >= 1:
        assert result.error_message is None
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        configs = {config.name: config for config in result.configs}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("77", 1)
        assert (configs["cleanup.policy"].value, configs["cleanup.policy"].config_source) == ("delete", 5)
        assert not any(config.read_only or config.is_sensitive for config in result.configs)
    assert result.topic_id == (image.topic_id if version >= 7 else ZERO_UUID)


def test_minus_one_asks_for_the_defaults(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, {"num.partitions": 5, "default.replication.factor": 3}) as broker:
        (result,) = create(broker, topic("new", -1, -1))
        assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 5, 1)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        *[
            (topic(name), ErrorCode.INVALID_TOPIC_EXCEPTION)
            for name in ("", ".", "..", "../x", "a/b", "a" * 250, "é", "a b", "a\0b", "with_dot")
        ],
        (topic("a" * 249), ErrorCode.NONE),
        (topic("t"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("new", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("new", 1_000_000), ErrorCode.POLICY_VIOLATION),
        (topic("new", 1, 9), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("new", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("new", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (topic("new", retention_ms=None), ErrorCode.INVALID_CONFIG),
        (topic("new", nonsense="1"), ErrorCode.INVALID_CONFIG),
        (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_refused(broker: EmbeddedBroker, wanted: CreatableTopic, code: int) -> None:
    create(broker, topic("with.dot"))
    before = set(broker.broker.image.topics)
    (result,) = create(broker, wanted)
    assert result.error_code == code and (code == 0 or result.error_message)
    assert set(broker.broker.image.topics) - before == ({wanted.name} if code == 0 else set())


def test_a_name_that_occurs_twice_is_refused_once_and_the_others_are_made(broker: EmbeddedBroker) -> None:
    results = create(broker, topic("a"), topic("b"), topic("a"))
    assert [(result.name, result.error_code) for result in results] == [("a", ErrorCode.INVALID_REQUEST), ("b", 0)]
    assert "a" not in broker.broker.image.topics


def test_an_assignment(broker: EmbeddedBroker) -> None:
    wanted = topic("new", -1, -1)
    wanted.assignments = [CreatableReplicaAssignment(partition_index=index, broker_ids=[1]) for index in (1, 0)]
    assert create(broker, wanted)[0].num_partitions == 2
    wanted.name, wanted.assignments[0].broker_ids = "newer", [2]
    assert create(broker, wanted)[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_validate_only_makes_nothing(broker: EmbeddedBroker) -> None:
    (result,) = create(broker, topic("new", 2), validate_only=True)
    assert (result.error_code, result.num_partitions) == (0, 2)
    assert "new" not in broker.broker.image.topics
    assert create(broker, topic("t"), validate_only=True)[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_topics_are_there_after_a_crash(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path).__enter__()
    create(broker, topic("new", 2, retention_ms="5"))
    image = broker.broker.image
    broker.crash()
    with EmbeddedBroker(tmp_path) as again:
        found = again.broker.image
        assert found.topics["new"].topic_id == image.topics["new"].topic_id
        assert found.topic_configs == image.topic_configs
        assert [partition.leader_epoch for partition in found.topics["new"].partitions] == [1, 1]
