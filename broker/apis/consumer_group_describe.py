"""ConsumerGroupDescribe (69): v0-1. State, members and assignments of groups of the consumer protocol (KIP-848).

A group that does not exist, or is a classic one, is GROUP_ID_NOT_FOUND: tools then call DescribeGroups. v1 has the
protocol of each member (KIP-1099).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from klamm.broker.apis.common import NOT_ASKED, group_operations, unseen
from klamm.protocol.errors import GroupIdNotFound, InvalidGroupId, KafkaError, UnsupportedVersion
from klamm.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
    from klamm.broker.coordinator.group.consumer.consumer_member import ConsumerMember
    from klamm.broker.metadata.image import TopicImage

CLASSIC, CONSUMER = 0, 1


def handle(
    broker: Broker, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    if not broker.groups.consumer_protocol:
        raise UnsupportedVersion("the consumer protocol is not enabled")
    return ConsumerGroupDescribeResponse(
        groups=[
            _group(
                broker,
                group_id,
                group_operations(context, group_id) if request.include_authorized_operations else NOT_ASKED,
            )
            for group_id in request.group_ids
            if unseen(context, group_id)
        ]
    )


def _group(broker: Broker, group_id: str, operations: int) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(group_id=group_id, error_code=int(InvalidGroupId.CODE))
    try:
        broker.groups.check(group_id)
        group = broker.groups.consumers.groups.get(group_id)
        if group is not None:
            return _described(group, broker.image.topics_by_id, operations)
        if broker.groups.groups.get(group_id) is not None:
            raise GroupIdNotFound(f"group {group_id!r} is not a consumer group")
        raise GroupIdNotFound(f"there is no group {group_id!r}")
    except KafkaError as error:
        return _failed(group_id, error)


def _failed(group_id: str, error: KafkaError) -> DescribedGroup:
    message = error.message if isinstance(error, GroupIdNotFound) else None
    return DescribedGroup(group_id=group_id, error_code=int(error.code), error_message=message)


def _described(group: ConsumerGroup, topics: Mapping[bytes, TopicImage], operations: int) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        authorized_operations=operations,
        members=[_member(group, member, topics) for member in group.members.values()],
    )


def _member(group: ConsumerGroup, member: ConsumerMember, topics: Mapping[bytes, TopicImage]) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(member.held(), topics),
        target_assignment=_assignment(group.target.get(member.member_id, {}), topics),
        member_type=CLASSIC if member.classic is not None else CONSUMER,
    )


def _assignment(partitions: Mapping[bytes, Collection[int]], topics: Mapping[bytes, TopicImage]) -> Assignment:
    """Return an assignment without deleted topics, which have no name to show."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=topics[topic_id].name, partitions=sorted(indexes))
            for topic_id, indexes in partitions.items()
            if topic_id in topics
        ]
    )


def error_response(
    request: ConsumerGroupDescribeRequest, error: KafkaError, version: int
) -> ConsumerGroupDescribeResponse:
    """Return the same error for every group."""
    return ConsumerGroupDescribeResponse(groups=[_failed(group_id, error) for group_id in request.group_ids])
