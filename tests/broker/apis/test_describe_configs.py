"""DescribeConfigs: topics, brokers and loggers, at every version."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.support.embedded import EmbeddedBroker

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
VERSIONS = range(5)


def describe(
    broker: EmbeddedBroker, kind: int, name: str, *keys: str, version: int = 4, all_keys: Any = None, **options: Any
) -> Any:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or all_keys
    )
    (result,) = broker.call(DescribeConfigsRequest(resources=[resource], **options), version).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic(broker: EmbeddedBroker, version: int) -> None:
    broker.create_topic("u", config={"retention.ms": 77})
    options = {"include_synonyms": True} if version >= 1 else {}
    options |= {"include_documentation": True} if version >= 3 else {}
    result = describe(broker, TOPIC, "u", version=version, **options)
    configs = {config.name: config for config in result.configs}
    assert result.error_code == 0 and result.error_message is None and len(configs) > 30
    own, default = configs["retention.ms"], configs["cleanup.policy"]
    assert (own.value, own.read_only, own.is_sensitive) == ("77", False, False)
    assert (default.value, default.read_only) == ("delete", False)
    if version == 0:
        assert not own.is_default and default.is_default
    else:
        assert (own.config_source, default.config_source) == (1, 5)
        names = [(synonym.name, synonym.source) for synonym in own.synonyms]
        assert names[0] == ("retention.ms", 1)
        assert [(synonym.name, synonym.source) for synonym in default.synonyms] == [("log.cleanup.policy", 5)]
    if version >= 3:
        assert (own.config_type, default.config_type) == (5, 7)
        assert own.documentation


@pytest.mark.parametrize("version", VERSIONS)
def test_this_broker(broker: EmbeddedBroker, version: int) -> None:
    configs = {config.name: config for config in describe(broker, BROKER, "1", version=version).configs}
    assert len(configs) > 80
    assert configs["node.id"].value == "1" and configs["node.id"].read_only
    assert configs["log.dirs"].read_only and not configs["message.max.bytes"].read_only
    if version >= 1:
        assert (configs["node.id"].config_source, configs["message.max.bytes"].config_source) == (4, 5)
        assert configs["message.max.bytes"].synonyms == []
    assert configs["message.max.bytes"].documentation in (None, "")


def test_all_brokers_have_only_what_is_set_for_them(broker: EmbeddedBroker) -> None:
    assert describe(broker, BROKER, "").configs == []


@pytest.mark.parametrize("nothing", [None, []])
def test_no_keys_are_all_keys(broker: EmbeddedBroker, nothing: Any) -> None:
    assert len(describe(broker, TOPIC, "t", all_keys=nothing).configs) > 30


def test_only_the_keys_asked_for(broker: EmbeddedBroker) -> None:
    names = [config.name for config in describe(broker, TOPIC, "t", "retention.ms", "nonsense").configs]
    assert names == ["retention.ms"]
    assert [config.name for config in describe(broker, BROKER, "1", "node.id").configs] == ["node.id"]


def test_log_levels(broker: EmbeddedBroker) -> None:
    logging.getLogger("klamm.test.describe").setLevel(logging.ERROR)
    configs = {config.name: config for config in describe(broker, LOGGER, "1").configs}
    mine = configs["klamm.test.describe"]
    assert (mine.value, mine.config_source, mine.read_only, mine.is_sensitive) == ("ERROR", 6, False, False)
    assert "root" in configs and "klamm.test" in configs


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (METRICS, "m", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (0, "", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_refused(broker: EmbeddedBroker, kind: int, name: str, code: int) -> None:
    result = describe(broker, kind, name)
    assert result.error_code == code and result.error_message and result.configs == []
