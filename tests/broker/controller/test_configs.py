from __future__ import annotations

from pathlib import Path

import pytest

from klamm.broker.controller.configs import ConfigUpdate, KeyUpdate, Op, ResourceType
from klamm.broker.controller.controller import Controller
from klamm.broker.controller.topics import NewTopic
from klamm.protocol.errors import ErrorCode, KafkaError
from tests.broker.controller.helpers import controller, run, stored


def change(
    made: Controller, kind: ResourceType, name: str, *keys: KeyUpdate, replace_all: bool = False
) -> KafkaError | None:
    return run(made.update_configs([ConfigUpdate(kind, name, keys, replace_all)]))[0]


def change_topic(made: Controller, *keys: KeyUpdate, replace_all: bool = False) -> dict[str, str]:
    assert change(made, ResourceType.TOPIC, "t", *keys, replace_all=replace_all) is None
    return dict(made.image.topic_config("t"))


def test_keys_of_a_topic_are_set_deleted_appended_and_subtracted(tmp_path: Path) -> None:
    with controller(tmp_path) as made:
        run(made.create_topics([NewTopic("t", configs=[("retention.ms", "1")])]))
        assert change_topic(made, KeyUpdate("segment.ms", Op.SET, "9")) == {"retention.ms": "1", "segment.ms": "9"}
        assert change_topic(made, KeyUpdate("retention.ms", Op.DELETE)) == {"segment.ms": "9"}
        assert change_topic(made, KeyUpdate("retention.bytes", Op.DELETE)) == {"segment.ms": "9"}
        policy = change_topic(made, KeyUpdate("cleanup.policy", Op.APPEND, "compact"))["cleanup.policy"]
        assert policy == "delete,compact"
        policy = change_topic(made, KeyUpdate("cleanup.policy", Op.APPEND, "compact"))["cleanup.policy"]
        assert policy == "delete,compact"
        policy = change_topic(made, KeyUpdate("cleanup.policy", Op.SUBTRACT, "delete"))["cleanup.policy"]
        assert policy == "compact"
    assert stored(tmp_path).topic_configs == {"t": {"segment.ms": "9", "cleanup.policy": "compact"}}


def test_replacing_all_drops_what_is_not_named(tmp_path: Path) -> None:
    with controller(tmp_path) as made:
        run(made.create_topics([NewTopic("t", configs=[("retention.ms", "1"), ("segment.ms", "5")])]))
        assert change_topic(made, KeyUpdate("segment.ms", Op.SET, "9"), replace_all=True) == {"segment.ms": "9"}
        assert change_topic(made, replace_all=True) == {}


@pytest.mark.parametrize(
    ("name", "key", "code"),
    [
        ("nobody", KeyUpdate("retention.ms", Op.SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("", KeyUpdate("retention.ms", Op.SET, "1"), ErrorCode.INVALID_REQUEST),
        ("a/b", KeyUpdate("retention.ms", Op.SET, "1"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("t", KeyUpdate("nonsense", Op.SET, "1"), ErrorCode.INVALID_CONFIG),
        ("t", KeyUpdate("retention.ms", Op.SET, "soon"), ErrorCode.INVALID_CONFIG),
        ("t", KeyUpdate("retention.ms", Op.SET, "-7"), ErrorCode.INVALID_CONFIG),
        ("t", KeyUpdate("cleanup.policy", Op.APPEND, "nonsense"), ErrorCode.INVALID_CONFIG),
        ("t", KeyUpdate("retention.ms", Op.APPEND, "1"), ErrorCode.INVALID_CONFIG),
        ("t", KeyUpdate("nonsense", Op.SUBTRACT, "1"), ErrorCode.INVALID_CONFIG),
        ("t", KeyUpdate("retention.ms", Op.SET, None), ErrorCode.INVALID_REQUEST),
        ("t", KeyUpdate("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_a_topic_refuses(tmp_path: Path, name: str, key: KeyUpdate, code: int) -> None:
    with controller(tmp_path) as made:
        run(made.create_topics([NewTopic("t")]))
        before = made.image
        error = change(made, ResourceType.TOPIC, name, key)
        assert error is not None and error.code == code
        assert made.image is before


@pytest.mark.parametrize(
    ("name", "key", "code"),
    [
        ("", KeyUpdate("message.max.bytes", Op.SET, "5000"), ErrorCode.NONE),
        ("1", KeyUpdate("message.max.bytes", Op.SET, "5000"), ErrorCode.NONE),
        ("1", KeyUpdate("plugin.own.key", Op.SET, "x"), ErrorCode.NONE),
        ("", KeyUpdate("leader.replication.throttled.rate", Op.SET, "1000"), ErrorCode.NONE),
        ("1", KeyUpdate("message.max.bytes", Op.SET, "many"), ErrorCode.INVALID_REQUEST),
        ("1", KeyUpdate("node.id", Op.SET, "2"), ErrorCode.INVALID_REQUEST),
        ("1", KeyUpdate("broker.rack", Op.SET, "r"), ErrorCode.INVALID_REQUEST),
        ("1", KeyUpdate("remote.log.reader.threads", Op.SET, "2"), ErrorCode.INVALID_REQUEST),
        ("1", KeyUpdate("message.max.bytes", Op.APPEND, "5000"), ErrorCode.INVALID_CONFIG),
        ("1", KeyUpdate("log.cleanup.policy", Op.APPEND, "compact"), ErrorCode.NONE),
        ("1", KeyUpdate("node.id", Op.DELETE), ErrorCode.NONE),
    ],
)
def test_what_a_broker_takes_and_refuses(tmp_path: Path, name: str, key: KeyUpdate, code: int) -> None:
    with controller(tmp_path) as made:
        before = made.image
        error = change(made, ResourceType.BROKER, name, key)
        assert (error.code if error else 0) == code
        assert (made.image is before) == (code != 0 or key.op == Op.DELETE)


def test_several_resources_of_one_request_stand_alone(tmp_path: Path) -> None:
    with controller(tmp_path) as made:
        run(made.create_topics([NewTopic("t"), NewTopic("u")]))
        good = KeyUpdate("retention.ms", Op.SET, "1")
        errors = run(
            made.update_configs(
                [
                    ConfigUpdate(ResourceType.TOPIC, "t", [good]),
                    ConfigUpdate(ResourceType.TOPIC, "nobody", [good]),
                    ConfigUpdate(ResourceType.TOPIC, "u", [good]),
                    ConfigUpdate(ResourceType.GROUP, "g", [good]),
                    ConfigUpdate(ResourceType.BROKER, "", [KeyUpdate("log.retention.ms", Op.SET, "7")]),
                ]
            )
        )
        codes = [error.code if error else 0 for error in errors]
        assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, ErrorCode.INVALID_CONFIG, 0]
        assert made.image.topic_configs == {"t": {"retention.ms": "1"}, "u": {"retention.ms": "1"}}
        assert made.config["log.retention.ms"] == 7


def test_a_stored_config_that_became_invalid_does_not_stop_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with controller(tmp_path) as made:
        assert change(made, ResourceType.BROKER, "1", KeyUpdate("plugin", Op.SET, "x")) is None
        made._store.set("/config/brokers/1", b'{"version":1,"config":{"message.max.bytes":"many"}}')
    with controller(tmp_path) as made:
        assert made.config.integer("message.max.bytes") == 1048588
    assert "the dynamic broker config is not used" in caplog.text


@pytest.mark.parametrize(
    ("name", "key", "code"),
    [
        ("a/b <default>", KeyUpdate("consumer.session.timeout.ms", Op.SET, "50000"), 0),
        ("g", KeyUpdate("consumer.session.timeout.ms", Op.SET, "1"), ErrorCode.INVALID_CONFIG),
        ("g", KeyUpdate("consumer.session.timeout.ms", Op.SET, "x"), ErrorCode.INVALID_CONFIG),
        ("g", KeyUpdate("consumer.heartbeat.interval.ms", Op.SET, "15001"), ErrorCode.INVALID_CONFIG),
        ("g", KeyUpdate("nope", Op.SET, "1"), ErrorCode.INVALID_CONFIG),
        ("g", KeyUpdate("consumer.session.timeout.ms", Op.APPEND, "50000"), ErrorCode.INVALID_CONFIG),
        ("", KeyUpdate("consumer.session.timeout.ms", Op.SET, "50000"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_a_group_takes_and_refuses(tmp_path: Path, name: str, key: KeyUpdate, code: int) -> None:
    with controller(tmp_path) as made:
        error = change(made, ResourceType.GROUP, name, key)
        assert (error.code if error else 0) == code
    with controller(tmp_path) as made:
        expected = {} if code else {name: {key.name: key.value}}
        assert made.image.group_configs == expected
        if expected:
            assert change(made, ResourceType.GROUP, name, KeyUpdate(key.name, Op.DELETE)) is None
            assert made.image.group_configs == {}
