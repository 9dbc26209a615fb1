"""Rights of the APIs about groups and their offsets, and of FindCoordinator."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from klamm.broker.apis.find_coordinator import GROUP as GROUP_KEY
from klamm.broker.apis.find_coordinator import MANY_KEYS_FROM, SHARE, TRANSACTION
from klamm.broker.apis.offset_fetch import MANY_GROUPS_FROM, refused_topic
from klamm.broker.apis.rights.asker import REFUSED, Asker, refusal
from klamm.broker.apis.rights.guards import Guarded, after, copy_with, name_of, seen, show_only, split
from klamm.broker.apis.rights.table import (
    CLUSTER,
    CLUSTER_ACTION,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    Each,
    Right,
    Silent,
)
from klamm.broker.security.authorizer.codes import CLUSTER_NAME
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse, DescribedGroup
from klamm.protocol.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.protocol.errors import KafkaError
    from klamm.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
    from klamm.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from klamm.protocol.messages.find_coordinator import FindCoordinatorRequest
    from klamm.protocol.messages.list_groups import ListGroupsRequest
    from klamm.protocol.messages.offset_delete import OffsetDeleteRequest
    from klamm.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

DESCRIBE_GROUP, DESCRIBE_TOPIC = Right(DESCRIBE, GROUP), Right(DESCRIBE, TOPIC)

COORDINATED = {
    GROUP_KEY: DESCRIBE_GROUP,
    TRANSACTION: Right(DESCRIBE, TRANSACTIONAL_ID),
    SHARE: Right(CLUSTER_ACTION, CLUSTER),
}
KEYS = Each(DESCRIBE_GROUP, "coordinator_keys", "coordinators")
FETCHED = Each(DESCRIBE_GROUP, "groups", "groups", "group_id")
DESCRIBED = Each(DESCRIBE_GROUP, "group_ids", "groups")
LISTED = Silent(DESCRIBE_GROUP, "groups", "group_id")
DELETED = Each(Right(READ, TOPIC), "topics", "topics")

HIDDEN_MEMBERS = "The group has described topic(s) that the client is not authorized to describe."


def find_coordinator(inner: Guarded, broker: Broker, context: RequestContext, request: FindCoordinatorRequest) -> Any:
    """Ask for the right that goes with the type of the key."""
    right = COORDINATED.get(request.key_type)
    if right is None:
        return inner.handle(broker, context, request)

    def may(key: str) -> bool:
        return context.ask.may(right, CLUSTER_NAME if right.resource is CLUSTER else key)

    if context.api_version < MANY_KEYS_FROM:
        if not may(request.key):
            raise refusal(right.resource)
        return inner.handle(broker, context, request)
    return split(inner, broker, context, request, KEYS, may, REFUSED[right.resource])


def list_groups(inner: Guarded, broker: Broker, context: RequestContext, request: ListGroupsRequest) -> Any:
    """List all groups with the right to describe the cluster, else those that the client may describe."""
    response = inner.handle(broker, context, request)
    if context.ask.may(Right(DESCRIBE, CLUSTER), quiet=True):
        return response
    return after(response, partial(show_only, broker, context.ask, LISTED))


# -- offsets ----------------------------------------------------------------------------------------------------


def offset_fetch(inner: Guarded, broker: Broker, context: RequestContext, request: OffsetFetchRequest) -> Any:
    """Refuse groups one by one, and topics in them. A request for all topics gets those that may be described."""
    ask = context.ask
    if context.api_version < MANY_GROUPS_FROM:
        ask.need(DESCRIBE_GROUP, request.group_id)
        return _offsets_of_one(inner, broker, context, request)
    return split(
        Guarded(partial(_offsets_of_many, inner), inner.refuse),
        broker,
        context,
        request,
        FETCHED,
        lambda group: ask.may(DESCRIBE_GROUP, group.group_id),
        REFUSED[GROUP],
    )


def _offsets_of_one(inner: Guarded, broker: Broker, context: RequestContext, request: OffsetFetchRequest) -> Any:
    ask = context.ask
    if request.topics is None:
        return after(inner.handle(broker, context, request), partial(_hide_topics, context))
    refused = [topic for topic in request.topics if not ask.may(DESCRIBE_TOPIC, topic.name)]
    if not refused:
        return inner.handle(broker, context, request)
    names = {topic.name for topic in refused}
    rest = copy_with(request, "topics", [topic for topic in request.topics if topic.name not in names])

    def add(response: OffsetFetchResponse) -> OffsetFetchResponse:
        if not response.error_code:
            answers: list[Any] = [*response.topics, *map(refused_topic, refused)]
            response.topics = answers
        return response

    return after(inner.handle(broker, context, rest), add)


def _offsets_of_many(inner: Guarded, broker: Broker, context: RequestContext, request: OffsetFetchRequest) -> Any:
    ask = context.ask
    groups: list[OffsetFetchRequestGroup] = []
    refused: dict[str, list[Any]] = {}
    for group in request.groups:
        passed = []
        for topic in group.topics or ():
            name = name_of(broker, topic, "name")
            if name is None or ask.may(DESCRIBE_TOPIC, name):
                passed.append(topic)
            else:
                refused.setdefault(group.group_id, []).append(refused_topic(topic))
        groups.append(group if group.topics is None else copy_with(group, "topics", passed))
    are_all = {group.group_id for group in request.groups if group.topics is None}

    def add(response: OffsetFetchResponse) -> OffsetFetchResponse:
        for group in response.groups:
            if group.group_id in are_all:
                _hide_topics(context, group)
            if not group.error_code:
                group.topics = [*group.topics, *refused.pop(group.group_id, ())]
        return response

    return after(inner.handle(broker, context, copy_with(request, "groups", groups)), add)


def _hide_topics(context: RequestContext, answer: Any) -> Any:
    answer.topics = [topic for topic in answer.topics if context.ask.may(DESCRIBE_TOPIC, topic.name, quiet=True)]
    return answer


def offset_delete(inner: Guarded, broker: Broker, context: RequestContext, request: OffsetDeleteRequest) -> Any:
    """Refuse topics at their partitions; an error at the top is one of the group."""
    return split(
        Guarded(inner.handle, _refused_topics),
        broker,
        context,
        request,
        DELETED,
        lambda topic: context.ask.may(DELETED.right, topic.name),
        REFUSED[TOPIC],
    )


def _refused_topics(request: OffsetDeleteRequest, error: KafkaError, version: int) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=int(error.code))
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


# -- the consumer protocol --------------------------------------------------------------------------------------


def consumer_heartbeat(
    inner: Guarded, broker: Broker, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> Any:
    """Ask for READ on the group and DESCRIBE on each named topic. An expression matches topics that the member may
    describe."""
    ask, groups = context.ask, broker.groups
    if not groups.consumer_protocol:
        return inner.handle(broker, context, request)
    ask.need(Right(READ, GROUP), request.group_id)
    for name in request.subscribed_topic_names or ():
        ask.need(DESCRIBE_TOPIC, name)
    with groups.consumers.reconciler.matching_only(lambda name: ask.may(DESCRIBE_TOPIC, name, quiet=True)):
        return inner.handle(broker, context, request)


def consumer_describe(
    inner: Guarded, broker: Broker, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> Any:
    """Ask for DESCRIBE on each group, and on the topics of its members; without these, members are left out."""
    if not broker.groups.consumer_protocol:
        return inner.handle(broker, context, request)
    ask = context.ask
    visible = Guarded(partial(_described, inner), inner.refuse)
    return split(
        visible,
        broker,
        context,
        request,
        DESCRIBED,
        lambda group_id: ask.may(DESCRIBE_GROUP, group_id),
        REFUSED[GROUP],
    )


def _described(inner: Guarded, broker: Broker, context: RequestContext, request: ConsumerGroupDescribeRequest) -> Any:
    ask = context.ask

    def hide(response: ConsumerGroupDescribeResponse) -> ConsumerGroupDescribeResponse:
        response.groups = [_with_hidden_topics(ask, group) for group in response.groups]
        return response

    return after(inner.handle(broker, context, request), hide)


def _with_hidden_topics(ask: Asker, group: DescribedGroup) -> DescribedGroup:
    """Return the group without members if one is assigned a hidden topic. Hidden names in subscriptions are left
    out."""
    for member in group.members:
        assigned = [*member.assignment.topic_partitions, *member.target_assignment.topic_partitions]
        if any(not ask.may(DESCRIBE_TOPIC, topic.topic_name, quiet=True) for topic in assigned):
            code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return DescribedGroup(group_id=group.group_id, error_code=code, error_message=HIDDEN_MEMBERS)
        member.subscribed_topic_names = seen(ask, DESCRIBE_TOPIC, member.subscribed_topic_names)
    return group
