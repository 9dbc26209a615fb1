"""Conversion of groups in use between the classic and the consumer protocol (KIP-848).

Members do not notice: the generation continues as the epoch, members keep their partitions, and `classic_members`
serves the classic members of a consumer group. `upgraded` and `downgraded` convert a group. `Migration` checks that
``group.consumer.migration.policy`` and the size limits permit it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from klamm.broker.coordinator.group.classic.classic import ClassicGroups
from klamm.broker.coordinator.group.classic.classic_group import ClassicGroup, Member
from klamm.broker.coordinator.group.classic.classic_records import record_of
from klamm.broker.coordinator.group.classic.states import State
from klamm.broker.coordinator.group.consumer import consumer_records as stored
from klamm.broker.coordinator.group.consumer.change import Change
from klamm.broker.coordinator.group.consumer.consumer_group import FIRST_EPOCH, ConsumerGroup, hash_of
from klamm.broker.coordinator.group.consumer.consumer_member import ClassicProtocols, ConsumerMember, Epochs
from klamm.broker.coordinator.group.consumer.limits import ConsumerLimits
from klamm.broker.coordinator.group.consumer.sessions import Sessions
from klamm.broker.coordinator.group.records import group_key
from klamm.broker.coordinator.group.subscription import (
    CONSUMER,
    parse_assignment,
    parse_subscription,
    write_assignment,
)
from klamm.broker.coordinator.runtime.types import Now
from klamm.protocol.errors import ErrorCode, GroupIdNotFound
from klamm.protocol.wire import Malformed

if TYPE_CHECKING:
    from klamm.broker.metadata.image import TopicImage

log = logging.getLogger(__name__)

UPGRADE = frozenset(("upgrade", "bidirectional"))
DOWNGRADE = frozenset(("downgrade", "bidirectional"))


class Migration:
    """Converts groups between the protocols, as far as the config permits."""

    def __init__(
        self,
        classic: ClassicGroups,
        sessions: Sessions,
        *,
        topics: Callable[[], Mapping[str, TopicImage]],
        topics_by_id: Callable[[], Mapping[bytes, TopicImage]],
        limits: Callable[[], ConsumerLimits],
        forget: Callable[[str], None],
    ) -> None:
        self._classic = classic
        self._sessions = sessions
        self._topics = topics
        self._topics_by_id = topics_by_id
        self._limits = limits
        self._forget = forget

    def upgraded(self, classic: ClassicGroup) -> ConsumerGroup:
        """Return the classic group as a consumer group, if permitted. Raises GroupIdNotFound."""
        limits = self._limits()
        if limits.migration not in UPGRADE:
            raise GroupIdNotFound(f"classic group {classic.group_id!r} stays classic: group.consumer.migration.policy")
        if len(classic.members) > limits.max_size:
            raise GroupIdNotFound(
                f"classic group {classic.group_id!r} stays classic: it is larger than group.consumer.max.size"
            )
        return upgraded(classic, limits.assignors[0], self._topics())

    def enter(self, change: Change, now: Now) -> None:
        """Add the first records of a consumer group that is new, or was a classic group until now."""
        group, group_id = change.group, change.group.group_id
        if group_id in self._classic.groups:
            change.records.append((group_key(group_id), None))
            change.then(lambda: self._classic.forget(group_id, int(ErrorCode.REBALANCE_IN_PROGRESS), now.wall_ms))
        if not group.members:
            change.records.append(stored.epoch_record(group))
            return
        members = [*group.members.values()]
        change.records += stored.all_records(group)
        change.then(lambda: log.info("group %s: is a consumer group now, members=%d", group_id, len(members)))
        for member in members:
            change.then(partial(self._sessions.expect_heartbeat, group, member, now))

    def downgrade_if_classic(self, change: Change, now: Now) -> bool:
        """Convert the group to a classic one, with a rebalance, if all members use the classic protocol."""
        group, limits = change.group, self._limits()
        if (
            limits.migration not in DOWNGRADE
            or not 0 < len(group.members) <= limits.classic_max_size
            or any(member.classic is None for member in group.members.values())
        ):
            return False
        classic = downgraded(group, self._topics_by_id(), wall_ms=now.wall_ms)
        change.records += stored.group_tombstones(group)
        change.records.append(record_of(classic))
        change.then(
            lambda: log.info("group %s: is a classic group now, members=%d", group.group_id, len(group.members))
        )
        change.then(lambda: self._forget(group.group_id))
        change.then(lambda: self._classic.adopt(classic, "the group has become a classic one", now))
        return True


def upgraded(classic: ClassicGroup, assignor: str, topics: Mapping[str, TopicImage]) -> ConsumerGroup:
    """Return the classic group as a consumer group. Raises GroupIdNotFound if a member's metadata does not decode."""
    if classic.protocol_type != CONSUMER:
        raise GroupIdNotFound(f"group {classic.group_id!r} is not a group of consumers")
    group = ConsumerGroup(classic.group_id, assignor)
    group.epoch = group.assignment_epoch = max(classic.generation_id, FIRST_EPOCH)
    try:
        for member in classic.members.values():
            group.put(_consumer_member(member, classic.protocol_name, group.epoch, topics))
    except Malformed as error:
        raise GroupIdNotFound(
            f"classic group {classic.group_id!r} stays classic: its members' metadata cannot be decoded: {error}"
        ) from None
    group.target = {
        member.member_id: {topic: frozenset(indexes) for topic, indexes in member.assigned.items()}
        for member in group.members.values()
    }
    group.metadata_hash = hash_of(group.topic_names, topics)
    return group


def _consumer_member(
    member: Member, protocol: str | None, epoch: int, topics: Mapping[str, TopicImage]
) -> ConsumerMember:
    metadata = member.metadata(protocol) if protocol is not None else member.protocols[0][1]
    subscription = parse_subscription(metadata)
    parse_subscription(member.protocols[0][1])  # `classic_assignment` will decode it
    assigned: Epochs = {
        topics[name].topic_id: dict.fromkeys(indexes, epoch)
        for name, indexes in parse_assignment(member.assignment).items()
        if name in topics
    }
    return ConsumerMember(
        member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topic_names=subscription.topics,
        classic=ClassicProtocols(member.session_timeout_ms, tuple(member.protocols)),
        epoch=epoch,
        previous_epoch=epoch,
        assigned=assigned,
    )


def downgraded(group: ConsumerGroup, topics_by_id: Mapping[bytes, TopicImage], *, wall_ms: int) -> ClassicGroup:
    """Return the consumer group as a stable classic group. All its members use the classic protocol."""
    classic = ClassicGroup(group.group_id, State.STABLE, state_timestamp_ms=wall_ms)
    classic.generation_id = group.epoch
    classic.protocol_type = CONSUMER
    for member in group.members.values():
        assert member.classic is not None
        classic.add(
            Member(
                member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.classic.session_timeout_ms,
                protocols=member.classic.protocols,
                assignment=classic_assignment(member, member.assigned, topics_by_id),
            )
        )
    classic.protocol_name = classic.select_protocol()
    classic.refresh_subscription()
    return classic


def classic_assignment(member: ConsumerMember, assigned: Epochs, topics_by_id: Mapping[bytes, TopicImage]) -> bytes:
    """Return the assignment for a classic member's SyncGroup, in the member's version."""
    assert member.classic is not None
    version = parse_subscription(member.classic.protocols[0][1]).version
    named = {topics_by_id[topic].name: list(indexes) for topic, indexes in assigned.items() if topic in topics_by_id}
    return write_assignment(version, named)
