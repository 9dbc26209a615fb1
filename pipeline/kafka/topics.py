"""Topics of a cluster: match names, read and set configs, create topics.

A pattern must match the whole name, as in Kafka, and never matches an internal topic. Requests that change something
go to any broker, which forwards them to the controller.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from klamm.pipeline.errors import BadOption, ClusterError, UnknownTopic
from klamm.pipeline.kafka.cluster import Cluster, Topic, kafka_error
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from klamm.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from klamm.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

TOPIC_RESOURCE: Final = 2
SET: Final = 0
DELETE: Final = 1
DYNAMIC_TOPIC_CONFIG: Final = 1
BROKERS_DEFAULT: Final = -1


def compiled(pattern: str, *, option: str = "subscribePattern") -> re.Pattern[str]:
    """Compile a pattern. Raises BadOption that names the option."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise BadOption(f"{option} {pattern} is not a regular expression: {error}") from None


class HasTopics(Protocol):
    """A cluster, or log directories."""

    @property
    def place(self) -> str: ...

    def topics(self) -> dict[str, Topic]: ...


def matching(logs: HasTopics, pattern: str, *, option: str = "subscribePattern") -> dict[str, Topic]:
    """Return the topics with a whole name that matches. Raises UnknownTopic when there is none."""
    expression = compiled(pattern, option=option)
    found = {
        name: topic
        for name, topic in logs.topics().items()
        if not topic.is_internal and expression.fullmatch(name) is not None
    }
    if not found:
        raise UnknownTopic(f"no topic on {logs.place} matches {option} {pattern}")
    return found


def topic_configs(cluster: Cluster, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the configs set on the topics themselves, without the brokers' defaults."""
    resources = [
        DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
        for name in names
    ]
    found = {}
    for result in cluster.ask(DescribeConfigsRequest(resources=resources)).results if resources else ():
        _check(f"configs of topic {result.resource_name}", result)
        found[result.resource_name] = {
            item.name: item.value
            for item in result.configs
            if item.config_source == DYNAMIC_TOPIC_CONFIG and item.value is not None
        }
    return found


def effective_configs(cluster: Cluster, names: Iterable[str], keys: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return some keys of each topic as they are in effect, defaults included."""
    wanted = list(keys)
    resources = [
        DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=wanted)
        for name in names
    ]
    found = {}
    for result in cluster.ask(DescribeConfigsRequest(resources=resources)).results if resources else ():
        _check(f"configs of topic {result.resource_name}", result)
        found[result.resource_name] = {item.name: item.value for item in result.configs if item.value is not None}
    return found


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create."""

    name: str
    partitions: int = BROKERS_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)


def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = BROKERS_DEFAULT,
    replication_factor: int = BROKERS_DEFAULT,
    configs: Mapping[str, str] | None = None,
) -> Topic:
    """Create a topic, and wait until its partitions have leaders. One that exists already is a ClusterError."""
    wanted = NewTopic(name, partitions, configs or {})
    return create_topics(cluster, [wanted], replication_factor=replication_factor)[name]


def create_topics(
    cluster: Cluster, wanted: Sequence[NewTopic], *, replication_factor: int = BROKERS_DEFAULT
) -> dict[str, Topic]:
    """Create several topics at once, as `create_topic` does."""
    left = {one.name: one for one in wanted}
    retries = cluster.retries()
    while left:
        rows = [
            CreatableTopic(
                name=one.name,
                num_partitions=one.partitions,
                replication_factor=replication_factor,
                assignments=[],
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in one.configs.items()],
            )
            for one in left.values()
        ]
        request = CreateTopicsRequest(topics=rows, timeout_ms=int(cluster.timeout_s * 1000))
        results = list(cluster.ask(request).topics)
        for result in results:
            if not (result.error_code and _is_retriable(result)):
                _check(f"topic {result.name}", result)
                del left[result.name]
        if left:
            retries.again(f"topic {results[0].name}: {results[0].error_message}")
    retries.progress()
    names = [one.name for one in wanted]
    while len(found := cluster.topics(names, missing_ok=True)) < len(names) or not all(
        topic.partitions for topic in found.values()
    ):
        retries.again(f"topic {min(set(names) - set(found), default=names[0])} was created but is not visible")
    cluster.latest([one for topic in found.values() for one in topic.topic_partitions])
    return found


def add_partitions(cluster: Cluster, name: str, count: int) -> None:
    """Raise the number of partitions to `count`."""
    topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=int(cluster.timeout_s * 1000), validate_only=False)
    _check(f"partitions of topic {name}", cluster.ask(request).results[0])


def set_configs(cluster: Cluster, name: str, configs: Mapping[str, str | None]) -> None:
    """Set configs of a topic; None resets one to the default."""
    changes = [
        AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
        for key, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    _check(f"configs of topic {name}", cluster.ask(request).responses[0])


def _is_retriable(result: Any) -> bool:
    error = kafka_error(result.error_code)
    return error is not None and error.code.retriable and error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _check(what: str, result: Any) -> None:
    if (error := kafka_error(result.error_code, result.error_message)) is not None:
        raise ClusterError(f"{what}: {error}")
