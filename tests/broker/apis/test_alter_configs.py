"""AlterConfigs and IncrementalAlterConfigs: what changes, takes effect and is refused, for topics, brokers, loggers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages import alter_configs, incremental_alter_configs
from tests.broker.apis.test_describe_configs import BROKER, GROUP, LOGGER, METRICS, TOPIC, describe
from tests.support.embedded import EmbeddedBroker, batch

SET, DELETE, APPEND, SUBTRACT = range(4)
Key = tuple[str, int, str | None]
Resource = tuple[int, str, list[Key]]


def alter(broker: EmbeddedBroker, *resources: Resource, version: int = 1, validate_only: bool = False) -> list[int]:
    wanted = [
        incremental_alter_configs.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                incremental_alter_configs.AlterableConfig(name=key, config_operation=op, value=value)
                for key, op, value in keys
            ],
        )
        for kind, name, keys in resources
    ]
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=wanted, validate_only=validate_only)
    return codes(broker.call(request, version), resources)


def replace(broker: EmbeddedBroker, kind: int, name: str, *, version: int = 2, **configs: str | None) -> int:
    keys = [alter_configs.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=keys)
    request = alter_configs.AlterConfigsRequest(resources=[resource], validate_only=False)
    return codes(broker.call(request, version), [(kind, name, [])])[0]


def codes(response: Any, resources: Any) -> list[int]:
    answers = response.responses
    assert [(a.resource_type, a.resource_name) for a in answers] == [(kind, name) for kind, name, _ in resources]
    assert all((a.error_message is None) == (a.error_code == 0) for a in answers)
    return [a.error_code for a in answers]


def value(broker: EmbeddedBroker, kind: int, name: str, key: str) -> tuple[str | None, int]:
    (config,) = describe(broker, kind, name, key).configs
    return config.value, config.config_source


@pytest.mark.parametrize("version", [0, 1])
def test_a_topic_is_altered_key_by_key(broker: EmbeddedBroker, version: int) -> None:
    keys: list[Key] = [("retention.ms", SET, "5"), ("cleanup.policy", APPEND, "compact")]
    assert alter(broker, (TOPIC, "t", keys), version=version) == [0]
    assert value(broker, TOPIC, "t", "retention.ms") == ("5", 1)
    assert value(broker, TOPIC, "t", "cleanup.policy") == ("delete,compact", 1)
    keys = [("retention.ms", DELETE, None), ("cleanup.policy", SUBTRACT, "compact")]
    assert alter(broker, (TOPIC, "t", keys), version=version) == [0]
    assert value(broker, TOPIC, "t", "retention.ms") == ("604800000", 5)
    assert value(broker, TOPIC, "t", "cleanup.policy") == ("delete", 1)


def test_a_topic_obeys_at_once(broker: EmbeddedBroker) -> None:
    assert broker.produce("t", batch(bytes(1000))).error_code == 0
    assert alter(broker, (TOPIC, "t", [("max.message.bytes", SET, "500")])) == [0]
    assert broker.produce("t", batch(bytes(1000))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert alter(broker, (TOPIC, "t", [("max.message.bytes", DELETE, None)])) == [0]
    assert broker.produce("t", batch(bytes(1000))).error_code == 0


@pytest.mark.parametrize("name", ["", "1"])
def test_a_dynamic_broker_config_reaches_the_topics(broker: EmbeddedBroker, name: str) -> None:
    assert alter(broker, (BROKER, name, [("message.max.bytes", SET, "500")])) == [0]
    assert value(broker, BROKER, "1", "message.max.bytes") == ("500", 2 if name else 3)
    assert broker.produce("t", batch(bytes(1000))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert value(broker, TOPIC, "t", "max.message.bytes") == ("500", 2 if name else 3)
    assert alter(broker, (BROKER, name, [("message.max.bytes", DELETE, None)])) == [0]
    assert broker.produce("t", batch(bytes(1000))).error_code == 0


def test_what_is_altered_outlives_the_process(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t")
        keys: list[Key] = [("retention.ms", SET, "5")]
        assert alter(broker, (TOPIC, "t", keys), (BROKER, "", [("message.max.bytes", SET, "500")])) == [0, 0]
    with EmbeddedBroker(tmp_path) as broker:
        assert value(broker, TOPIC, "t", "retention.ms") == ("5", 1)
        assert value(broker, BROKER, "", "message.max.bytes") == ("500", 3)
        assert broker.produce("t", batch(bytes(1000))).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_validate_only_changes_nothing(broker: EmbeddedBroker) -> None:
    levels = logging.getLogger("klamm").level
    resources: list[Resource] = [
        (TOPIC, "t", [("retention.ms", SET, "5")]),
        (BROKER, "1", [("message.max.bytes", SET, "500")]),
        (LOGGER, "1", [("klamm", SET, "ERROR")]),
        (TOPIC, "nobody", [("retention.ms", SET, "5")]),
    ]
    assert alter(broker, *resources, validate_only=True) == [0, 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert value(broker, TOPIC, "t", "retention.ms")[1] == 5
    assert value(broker, BROKER, "1", "message.max.bytes")[1] == 5
    assert logging.getLogger("klamm").level == levels


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        ((TOPIC, "nobody", [("retention.ms", SET, "5")]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((TOPIC, "t", [("nonsense", SET, "5")]), ErrorCode.INVALID_CONFIG),
        ((TOPIC, "t", [("retention.ms", SET, "soon")]), ErrorCode.INVALID_CONFIG),
        ((TOPIC, "t", [("retention.ms", APPEND, "5")]), ErrorCode.INVALID_CONFIG),
        ((TOPIC, "t", [("retention.ms", SET, None)]), ErrorCode.INVALID_REQUEST),
        ((TOPIC, "t", [("retention.ms", 7, "5")]), ErrorCode.INVALID_REQUEST),
        ((TOPIC, "t", [("retention.ms", SET, "5"), ("retention.ms", DELETE, None)]), ErrorCode.INVALID_REQUEST),
        ((BROKER, "2", [("message.max.bytes", SET, "500")]), ErrorCode.INVALID_REQUEST),
        ((BROKER, "one", [("message.max.bytes", SET, "500")]), ErrorCode.INVALID_REQUEST),
        ((BROKER, "1", [("message.max.bytes", SET, "many")]), ErrorCode.INVALID_REQUEST),
        ((BROKER, "1", [("log.dirs", SET, "/tmp")]), ErrorCode.INVALID_REQUEST),
        ((LOGGER, "1", [("klamm.no.such.logger", SET, "INFO")]), ErrorCode.INVALID_CONFIG),
        ((LOGGER, "1", [("klamm", SET, "LOUD")]), ErrorCode.INVALID_CONFIG),
        ((LOGGER, "1", [("klamm", APPEND, "INFO")]), ErrorCode.INVALID_REQUEST),
        ((LOGGER, "1", [("root", DELETE, None)]), ErrorCode.INVALID_REQUEST),
        ((LOGGER, "2", [("klamm", SET, "INFO")]), ErrorCode.INVALID_REQUEST),
        ((METRICS, "m", [("interval.ms", SET, "5")]), ErrorCode.INVALID_REQUEST),
        ((GROUP, "g", [("consumer.session.timeout.ms", SET, "5")]), ErrorCode.INVALID_CONFIG),
        ((99, "g", []), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_refused(broker: EmbeddedBroker, resource: Resource, code: int) -> None:
    before = broker.broker.image
    logging.getLogger("klamm")
    assert alter(broker, resource) == [code]
    assert broker.broker.image is before


def test_a_limit_for_an_unknown_host_is_refused(broker: EmbeddedBroker) -> None:
    key = "max.connections.per.ip.overrides"
    assert alter(broker, (BROKER, "1", [(key, SET, "nosuch.invalid:5")])) == [ErrorCode.INVALID_REQUEST]
    assert replace(broker, BROKER, "", max_connections_per_ip_overrides="nosuch.invalid:5") == ErrorCode.INVALID_REQUEST
    assert alter(broker, (BROKER, "1", [(key, SET, "localhost:5,10.0.0.7:6")])) == [ErrorCode.NONE]


def test_a_key_without_effect_is_logged_once(broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    def logged() -> list[str]:
        lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        caplog.clear()
        return [line.partition(": ")[0] for line in lines]

    keys: list[Key] = [
        ("num.io.threads", SET, "4"),
        ("num.partitions.of.mine", SET, "4"),
        ("max.connections", SET, "9"),
    ]
    assert alter(broker, (BROKER, "", keys), validate_only=True) == [0] and logged() == []
    for expected in (["broker config num.io.threads", "unknown broker config num.partitions.of.mine"], []):
        assert alter(broker, (BROKER, "", keys)) == [0]
        assert logged() == expected
    slow: Key = ("leader.replication.throttled.replicas", SET, "*")
    assert alter(broker, (TOPIC, "t", [slow, ("retention.ms", SET, "5")])) == [0]
    assert logged() == ["topic config leader.replication.throttled.replicas"]
    broker.create_topic("remote", config={"local.retention.ms": 1, "leader.replication.throttled.replicas": "*"})
    assert logged() == ["topic config local.retention.ms"]


def test_a_resource_that_occurs_twice_is_refused_and_the_others_are_altered(broker: EmbeddedBroker) -> None:
    broker.create_topic("u")
    one: Resource = (TOPIC, "t", [("retention.ms", SET, "5")])
    other: Resource = (TOPIC, "u", [("retention.ms", SET, "6")])
    assert alter(broker, one, other, one) == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]
    assert broker.broker.image.topic_configs == {"t": {}, "u": {"retention.ms": "6"}}


@pytest.mark.parametrize("version", range(3))
def test_the_old_api_replaces_the_whole_config(broker: EmbeddedBroker, version: int) -> None:
    assert replace(broker, TOPIC, "t", version=version, retention_ms="5", segment_ms="6") == 0
    assert replace(broker, TOPIC, "t", version=version, segment_ms="7") == 0
    assert broker.broker.image.topic_config("t") == {"segment.ms": "7"}
    assert replace(broker, BROKER, "1", version=version, message_max_bytes="500") == 0
    assert replace(broker, BROKER, "1", version=version) == 0
    assert broker.broker.image.broker_config("1") == {}


def test_what_the_old_api_refuses(broker: EmbeddedBroker) -> None:
    assert replace(broker, TOPIC, "t", nonsense="1") == ErrorCode.INVALID_CONFIG
    assert replace(broker, TOPIC, "t", retention_ms=None) == ErrorCode.INVALID_REQUEST
    assert replace(broker, LOGGER, "1", klamm="INFO") == ErrorCode.INVALID_REQUEST


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("klamm.test.levels")
    yield logger
    logger.setLevel(logging.NOTSET)


def test_log_levels_are_set_and_deleted(broker: EmbeddedBroker, logger: logging.Logger) -> None:
    inherited = logger.getEffectiveLevel()
    assert alter(broker, (LOGGER, "1", [(logger.name, SET, "TRACE")])) == [0]
    assert logger.isEnabledFor(5) and value(broker, LOGGER, "1", logger.name) == ("TRACE", 6)
    assert alter(broker, (LOGGER, "1", [(logger.name, SET, "FATAL")])) == [0]
    assert not logger.isEnabledFor(logging.ERROR)
    assert alter(broker, (LOGGER, "1", [(logger.name, DELETE, None)])) == [0]
    assert logger.getEffectiveLevel() == inherited
