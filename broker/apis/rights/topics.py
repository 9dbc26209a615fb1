"""Rights of the APIs about topics: Metadata, DescribeTopicPartitions, CreateTopics, DeleteTopics."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from klamm.broker.apis.metadata import AUTO_CREATION_FROM
from klamm.broker.apis.rights.asker import REFUSED
from klamm.broker.apis.rights.guards import MANY, Guarded, after, ask_in_turns, copy_with, joined, name_of, seen, split
from klamm.broker.apis.rights.table import (
    CLUSTER,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    TOPIC,
    Each,
    Right,
)
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from klamm.protocol.messages.metadata import MetadataRequestTopic

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from klamm.protocol.messages.delete_topics import DeleteTopicsRequest
    from klamm.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
    from klamm.protocol.messages.metadata import MetadataRequest, MetadataResponse

DESCRIBE_TOPIC = Right(DESCRIBE, TOPIC)
CREATE_ANY, CREATE_TOPIC = Right(CREATE, CLUSTER), Right(CREATE, TOPIC)
DELETE_ANY, DELETE_TOPIC = Right(DELETE, CLUSTER), Right(DELETE, TOPIC)

CREATED = Each(CREATE_TOPIC, "topics", "topics")
DESCRIBED = Each(DESCRIBE_TOPIC, "topics", "topics")

CONFIGS_FROM = 5
DELETES_BY_ID_FROM = 6


def metadata(inner: Guarded, broker: Broker, context: RequestContext, request: MetadataRequest) -> Any:
    """Refuse named topics one by one; a request for all topics gets those that the client may describe. A topic that
    would be created needs CREATE, too."""
    wanted = request.topics
    if wanted is None or (context.api_version == 0 and not wanted):
        if len(broker.image.topics) > MANY:
            return _all_in_turns(inner, broker, context, request)
        return _all(inner, broker, context, request)
    creates = broker.auto_create and (context.api_version < AUTO_CREATION_FROM or request.allow_auto_topic_creation)
    refused = [topic for topic in wanted if not _may_have(broker, context, topic, creates=creates)]
    if not refused:
        return inner.handle(broker, context, request)
    refusals = inner.refuse(copy_with(request, "topics", refused), REFUSED[TOPIC](), context.api_version)
    are_refused = {id(topic) for topic in refused}
    rest = [topic for topic in wanted if id(topic) not in are_refused]
    response = _of_topics(inner, broker, context, request, rest)
    return after(response, partial(joined, refusals, "topics"))


def _may_have(broker: Broker, context: RequestContext, topic: MetadataRequestTopic, *, creates: bool) -> bool:
    ask, name = context.ask, name_of(broker, topic, "name")
    if name is None:
        return True
    if not ask.may(DESCRIBE_TOPIC, name):
        return False
    if not creates or name in broker.image.topics:
        return True
    return ask.may(CREATE_ANY, quiet=True) or ask.may(CREATE_TOPIC, name)


async def _all_in_turns(inner: Guarded, broker: Broker, context: RequestContext, request: MetadataRequest) -> Any:
    await ask_in_turns(broker, context.ask, DESCRIBE_TOPIC, list(broker.image.topics))
    return _all(inner, broker, context, request)


def _all(inner: Guarded, broker: Broker, context: RequestContext, request: MetadataRequest) -> Any:
    names = seen(context.ask, DESCRIBE_TOPIC, broker.image.topics)
    return _of_topics(inner, broker, context, request, [MetadataRequestTopic(name=name) for name in names])


def _of_topics(
    inner: Guarded,
    broker: Broker,
    context: RequestContext,
    request: MetadataRequest,
    topics: Sequence[MetadataRequestTopic],
) -> Any:
    """The response about these topics only."""
    response = inner.handle(broker, context, copy_with(request, "topics", list(topics)))
    if not topics and context.api_version == 0:  # where no topics mean all of them
        return after(response, _without_topics)
    return response


def _without_topics(response: MetadataResponse) -> MetadataResponse:
    response.topics = []
    return response


def describe_topic_partitions(
    inner: Guarded, broker: Broker, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> Any:
    ask = context.ask
    if request.topics:
        return split(
            inner,
            broker,
            context,
            request,
            DESCRIBED,
            lambda topic: ask.may(DESCRIBE_TOPIC, topic.name),
            REFUSED[TOPIC],
        )
    if len(broker.image.topics) > MANY:
        return _describe_in_turns(inner, broker, context, request)
    return _describe_all(inner, broker, context, request)


async def _describe_in_turns(
    inner: Guarded, broker: Broker, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> Any:
    await ask_in_turns(broker, context.ask, DESCRIBE_TOPIC, list(broker.image.topics))
    return _describe_all(inner, broker, context, request)


def _describe_all(
    inner: Guarded, broker: Broker, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> Any:
    """A cursor at a topic that may not be seen any more goes on at the next one."""
    cursor = request.cursor
    names = seen(context.ask, DESCRIBE_TOPIC, broker.image.topics)
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    if not names:
        return DescribeTopicPartitionsResponse()
    visible = copy_with(request, "topics", [TopicRequest(name=name) for name in names])
    if cursor is not None and cursor.topic_name != (first := min(names)):
        visible.cursor = Cursor(topic_name=first, partition_index=0)
    return inner.handle(broker, context, visible)


def create_topics(inner: Guarded, broker: Broker, context: RequestContext, request: CreateTopicsRequest) -> Any:
    """Ask for CREATE on the cluster or on each topic. Configs of a new topic need DESCRIBE_CONFIGS, or are left out."""
    ask = context.ask
    if ask.may(CREATE_ANY, quiet=True):
        response = inner.handle(broker, context, request)
    else:
        error = partial(KafkaError, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        response = split(
            inner, broker, context, request, CREATED, lambda topic: ask.may(CREATE_TOPIC, topic.name), error
        )
    return after(response, partial(_without_configs, context))


def _without_configs(context: RequestContext, response: CreateTopicsResponse) -> CreateTopicsResponse:
    if context.api_version < CONFIGS_FROM:
        return response
    for topic in response.topics:
        if not topic.error_code and not context.ask.may(Right(DESCRIBE_CONFIGS, TOPIC), topic.name, quiet=True):
            topic.topic_config_error_code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            topic.num_partitions = topic.replication_factor = -1
            topic.configs = []
    return response


def delete_topics(inner: Guarded, broker: Broker, context: RequestContext, request: DeleteTopicsRequest) -> Any:
    """Ask for DELETE on the cluster or on each topic. The name of a topic id needs DESCRIBE, or is left out."""
    ask, field = context.ask, "topics" if context.api_version >= DELETES_BY_ID_FROM else "topic_names"
    if ask.may(DELETE_ANY, quiet=True):
        return inner.handle(broker, context, request)
    lists = Each(DELETE_TOPIC, field, "responses")
    named: dict[int, Any] = {}  # refused ids, with the name

    def may(topic: Any) -> bool:
        name = name_of(broker, topic, "name")
        if name is None:
            return True
        may_describe = ask.may(DESCRIBE_TOPIC, name)
        if may_describe and (name not in broker.image.topics or ask.may(DELETE_TOPIC, name)):
            return True
        if may_describe and not isinstance(topic, str) and not topic.name:
            named[id(topic)] = copy_with(topic, "name", name)
        return False

    def refuse(part: DeleteTopicsRequest, error: KafkaError, version: int) -> Any:
        if named:
            part.topics = [named.get(id(topic), topic) for topic in part.topics]
        return inner.refuse(part, error, version)

    return split(Guarded(inner.handle, refuse), broker, context, request, lists, may, REFUSED[TOPIC])
