"""OffsetDelete (47): v0. Deletes offsets of topics that the group no longer consumes (KIP-496).

The response waits until the tombstones are as durable as acks=all makes them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from klamm.broker.coordinator.group.classic.states import State
from klamm.protocol.errors import ErrorCode, GroupIdNotFound, InvalidGroupId, NonEmptyGroup
from klamm.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.coordinator.group.coordinator import GroupCoordinator
    from klamm.broker.coordinator.group.pending_transactional_offsets import Key


async def handle(broker: Broker, context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    coordinator = broker.groups
    group_id = request.group_id
    if not group_id:
        raise InvalidGroupId("the group id is empty")
    coordinator.check(group_id)
    group = coordinator.groups.get(group_id)
    if group is None or group.state is State.DEAD:
        raise GroupIdNotFound(f"there is no group {group_id!r}")
    if group.members and not group.is_consumer_group:
        raise NonEmptyGroup(f"group {group_id!r} has members, and the broker does not know what they consume")
    gone: list[tuple[str, int]] = []
    topics = []
    for topic in request.topics:
        image = broker.image.topics.get(topic.name)
        partition_count = len(image.partitions) if image is not None else 0
        subscribed = group.is_subscribed(topic.name)
        answers = []
        for partition in topic.partitions:
            index = partition.partition_index
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
            if not 0 <= index < partition_count:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answers.append(OffsetDeleteResponsePartition(partition_index=index, error_code=int(code)))
            if code is ErrorCode.NONE and _is_there(coordinator, (group_id, topic.name, index)):
                gone.append((topic.name, index))
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
    outcome = coordinator.removals.delete_offsets(group_id, gone)
    code = await outcome if isinstance(outcome, asyncio.Future) else outcome
    return OffsetDeleteResponse(error_code=int(code), topics=topics if code is ErrorCode.NONE else [])


def _is_there(coordinator: GroupCoordinator, key: Key) -> bool:
    """Return whether the offset is committed, or in an open transaction."""
    return coordinator.offsets.get(*key) is not None or coordinator.pending.is_pending(key)
