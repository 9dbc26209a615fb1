"""Klamm's descriptions beside those of a running Apache Kafka with the same settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from klamm.client.blocking import NodeClient
from klamm.config import BROKER_KEYS, TOPIC_KEYS, BrokerConfig, ConfigEntry, describe_broker, describe_topic
from klamm.config.describe import describe_cluster_default
from klamm.config.rows_cluster import OLD
from klamm.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from klamm.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from klamm.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.config.test_kafka_definitions import OTHER_DEFAULT, READ_ONLY_HERE
from tests.support.apache_kafka import apache_kafka

pytestmark = [pytest.mark.java, pytest.mark.slow]

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
KAFKAS_TOPIC_KEYS = {name for name in TOPIC_KEYS if not name.startswith(("klamm.", "internal."))}
SET = 0

STATIC = {
    "log.retention.hours": "2",
    "log.roll.ms": "7200000",
    "log.segment.bytes": "2000000",
    "log.flush.scheduler.interval.ms": "60000",
    "log.message.timestamp.type": "LogAppendTime",
    "ssl.key.password": "hush",
}
DYNAMIC_DEFAULT = {"max.connections": "900", "message.max.bytes": "2000000", "log.roll.jitter.ms": "9"}
DYNAMIC_BROKER = {"message.max.bytes": "3000000", "log.retention.ms": "9000000"}
# Set by `apache_kafka` itself.
OF_THE_FIXTURE = {
    *("advertised.listeners", "broker.id", "controller.quorum.voters", "log.dirs", "group.initial.rebalance.delay.ms"),
    *("offsets.topic.replication.factor", "transaction.state.log.replication.factor", "transaction.state.log.min.isr"),
}
# A fresh cluster finalizes eligible.leader.replicas.version, which sets this one for all brokers.
SET_BY_KAFKA = {"min.insync.replicas"}
# A dynamic log.retention.ms makes Kafka forget the value of the file, though it still names the file as the source.
HIDDEN_BY_A_DYNAMIC_SYNONYM = {"log.retention.hours"}
TOPIC = {"retention.ms": "5000", "cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.25"}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory) -> Iterator[NodeClient]:
    with (
        apache_kafka(tmp_path_factory.mktemp("kafka"), STATIC) as broker,
        NodeClient("127.0.0.1", broker.port) as client,
    ):
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in TOPIC.items()]
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=configs)
        created = client.request(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        assert [topic.error_code for topic in created.topics] == [0]
        resources = [
            AlterConfigsResource(
                resource_type=BROKER_RESOURCE,
                resource_name=name,
                configs=[AlterableConfig(name=key, config_operation=SET, value=value) for key, value in values.items()],
            )
            for name, values in (("", DYNAMIC_DEFAULT), ("1", DYNAMIC_BROKER))
        ]
        changed = client.request(IncrementalAlterConfigsRequest(resources=resources))
        assert [(response.error_code, response.error_message) for response in changed.responses] == [(0, None)] * 2
        yield client


@pytest.fixture(scope="module")
def ours() -> BrokerConfig:
    return BrokerConfig(STATIC, dynamic_default=DYNAMIC_DEFAULT, dynamic_broker=DYNAMIC_BROKER)


def described(client: NodeClient, kind: int, name: str) -> dict[str, tuple[object, ...]]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    response = client.request(DescribeConfigsRequest(resources=[resource], include_synonyms=True))
    (result,) = response.results
    assert result.error_code == 0
    return {config.name: facts_of_kafka(config) for config in result.configs}


def facts(entry: ConfigEntry) -> tuple[object, ...]:
    synonyms = [(place.name, place.text, int(place.source)) for place in entry.synonyms]
    return (entry.value, int(entry.source), entry.read_only, entry.sensitive, entry.type, synonyms)


def facts_of_kafka(config: DescribeConfigsResourceResult) -> tuple[object, ...]:
    synonyms = [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms]
    return (config.value, config.config_source, config.read_only, config.is_sensitive, config.config_type, synonyms)


def soon_equal(ask: Callable[[], list[str]]) -> None:
    """Kafka applies dynamic configs a moment after it has answered."""
    end = time.monotonic() + 20
    while ask() and time.monotonic() < end:
        time.sleep(0.1)
    assert ask() == []


def differing(mine: dict[str, tuple[object, ...]], theirs: dict[str, tuple[object, ...]]) -> list[str]:
    return [
        f"{name}: {mine[name]}, Kafka {theirs.get(name)}" for name in sorted(mine) if mine[name] != theirs.get(name)
    ]


def test_a_topic_is_described_as_kafka_does(kafka, ours):
    mine = {entry.name: facts(entry) for entry in describe_topic(ours, TOPIC) if not entry.name.startswith("klamm.")}
    assert mine.keys() == described(kafka, TOPIC_RESOURCE, "t").keys() == KAFKAS_TOPIC_KEYS
    common = {name: mine[name] for name in mine if name not in OTHER_DEFAULT and name not in SET_BY_KAFKA}
    soon_equal(lambda: differing(common, described(kafka, TOPIC_RESOURCE, "t")))


def test_a_broker_is_described_as_kafka_does(kafka, ours):
    theirs = described(kafka, BROKER_RESOURCE, "1")
    other = {*OTHER_DEFAULT, *READ_ONLY_HERE, *OF_THE_FIXTURE, *SET_BY_KAFKA, *HIDDEN_BY_A_DYNAMIC_SYNONYM}
    common = BROKER_KEYS.keys() & theirs.keys() - other
    assert len(common) > 130
    mine = {entry.name: facts(entry) for entry in describe_broker(ours, common)}
    soon_equal(lambda: differing(mine, described(kafka, BROKER_RESOURCE, "1")))
    assert not {row.name for row in OLD} & theirs.keys()


def test_the_default_of_all_brokers_is_described_as_kafka_does(kafka, ours):
    mine = {entry.name: facts(entry) for entry in describe_cluster_default(ours)}
    soon_equal(lambda: differing(mine, described(kafka, BROKER_RESOURCE, "")))
    assert mine.keys() == described(kafka, BROKER_RESOURCE, "").keys() - SET_BY_KAFKA
