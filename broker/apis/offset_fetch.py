"""OffsetFetch (9): v0-10. Reads the committed positions of groups.

v0 reads the nodes of the ZooKeeper era (`old_offsets`), where a partition without an offset is
UNKNOWN_TOPIC_OR_PARTITION; in newer versions its offset is -1. v2 can request all topics (null) and has an error for
the group, v5 the leader epoch. v7 can require stable offsets (KIP-447): UNSTABLE_OFFSET_COMMIT while an open
transaction has committed one. v8 has several groups (KIP-709), v9 the requesting member and its epoch (KIP-848), v10
names topics by id.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING

from klamm.broker.apis.common import unseen
from klamm.broker.coordinator.group import old_offsets
from klamm.broker.coordinator.group.consumer.consumer_checks import check_fetch
from klamm.broker.coordinator.group.offsets import CommittedOffset
from klamm.broker.coordinator.group.pending_transactional_offsets import Key
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from klamm.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker

GROUP_ERROR_FROM = 2
MANY_GROUPS_FROM = 8
MEMBER_EPOCH_FROM = 9
TOPIC_IDS_FROM = 10
NONE = CommittedOffset(-1)


def handle(
    broker: Broker, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    version = context.api_version
    if version == 0:
        return _fetch_old(broker, request)
    if version >= MANY_GROUPS_FROM:
        return OffsetFetchResponse(
            groups=[
                _group(broker, group, version, request.require_stable)
                for group in request.groups
                if group.topics is not None or unseen(context, group.group_id)
            ]
        )
    group_id, stable = request.group_id, request.require_stable
    broker.groups.check(group_id)
    if request.topics is None:
        wanted: Iterable[tuple[str, Iterable[int]]] = broker.groups.offsets.of(group_id).items()
    else:
        wanted = [(topic.name, topic.partition_indexes) for topic in request.topics]
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[_partition(index, *_look_up(broker, (group_id, name, index), stable)) for index in indexes],
            )
            for name, indexes in wanted
        ]
    )


def _look_up(broker: Broker, key: Key, stable: bool) -> tuple[CommittedOffset, int]:
    """Return the offset of a partition, and its error."""
    if stable and broker.groups.pending.is_pending(key):
        return NONE, int(ErrorCode.UNSTABLE_OFFSET_COMMIT)
    return broker.groups.offsets.get(*key) or NONE, 0


def _partition(index: int, committed: CommittedOffset, code: int = 0) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=code,
    )


def _group(broker: Broker, group: OffsetFetchRequestGroup, version: int, stable: bool) -> OffsetFetchResponseGroup:
    group_id = group.group_id
    try:
        broker.groups.check(group_id)
        consumers = broker.groups.consumers.groups.get(group_id)
        if consumers is not None and version >= MEMBER_EPOCH_FROM:
            check_fetch(consumers, group.member_id, group.member_epoch)
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=group_id, error_code=int(error.code))
    by_id = version >= TOPIC_IDS_FROM
    topics, topics_by_id = broker.image.topics, broker.image.topics_by_id
    answers = []
    if group.topics is None:
        for name, partitions in broker.groups.offsets.of(group_id).items():
            topic = topics.get(name)
            if topic is not None or not by_id:
                answers.append(
                    OffsetFetchResponseTopics(
                        name=name,
                        topic_id=topic.topic_id if topic is not None else ZERO_UUID,
                        partitions=[
                            _partitions(index, *_look_up(broker, (group_id, name, index), stable))
                            for index in partitions
                        ],
                    )
                )
        return OffsetFetchResponseGroup(group_id=group_id, topics=answers)
    for asked in group.topics:
        topic = topics_by_id.get(asked.topic_id) if by_id else None
        name = topic.name if topic is not None else asked.name
        code = int(ErrorCode.UNKNOWN_TOPIC_ID) if by_id and topic is None else 0
        answers.append(
            OffsetFetchResponseTopics(
                name=name,
                topic_id=asked.topic_id,
                partitions=[
                    _partitions(index, *((NONE, code) if code else _look_up(broker, (group_id, name, index), stable)))
                    for index in asked.partition_indexes
                ],
            )
        )
    return OffsetFetchResponseGroup(group_id=group_id, topics=answers)


def _partitions(index: int, committed: CommittedOffset, code: int = 0) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=code,
    )


def refused_topic(
    topic: OffsetFetchRequestTopic | OffsetFetchRequestTopics,
) -> OffsetFetchResponseTopic | OffsetFetchResponseTopics:
    """Return the result for a topic that the client may not describe."""
    code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if isinstance(topic, OffsetFetchRequestTopics):
        return OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[_partitions(index, NONE, code) for index in topic.partition_indexes],
        )
    return OffsetFetchResponseTopic(
        name=topic.name, partitions=[_partition(index, NONE, code) for index in topic.partition_indexes]
    )


async def _fetch_old(broker: Broker, request: OffsetFetchRequest) -> OffsetFetchResponse:
    known = broker.image.topics
    topics = request.topics or []
    wanted = [(topic.name, index) for topic in topics if topic.name in known for index in topic.partition_indexes]
    stored = dict(zip(wanted, await old_offsets.fetch(broker.controller, request.group_id, wanted), strict=True))
    answers = []
    for topic in topics:
        partitions = []
        for index in topic.partition_indexes:
            offset = stored.get((topic.name, index))
            if offset is None:
                partitions.append(_partition(index, NONE, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
            else:
                partitions.append(_partition(index, CommittedOffset(offset)))
        answers.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
    return OffsetFetchResponse(topics=answers)


def error_response(request: OffsetFetchRequest, error: KafkaError, version: int) -> OffsetFetchResponse:
    """Return the error at the group; before v2 at every partition."""
    code = int(error.code)
    if version >= MANY_GROUPS_FROM:
        groups = [OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) for group in request.groups]
        return OffsetFetchResponse(groups=groups)
    if version >= GROUP_ERROR_FROM:
        return OffsetFetchResponse(error_code=code)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name, partitions=[_partition(index, NONE, code) for index in topic.partition_indexes]
            )
            for topic in request.topics or ()
        ]
    )
