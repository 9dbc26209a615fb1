"""Consumer groups (KIP-848): one request, the heartbeat, does everything, and each partition has one owner at a time.

A pure state machine like `classic`: every call takes the request and the time, records go to ``store``, the response
goes to ``callback`` when they are durable. One heartbeat does, in this order::

    the member           joins, comes back, or has its epoch checked; its new wishes are taken over
    the group epoch      grows if subscriptions or the subscribed topics have changed
    the target           is computed if it lags the group epoch, at most every ...assignment.interval.ms
    the member again     makes its next step towards the target (`consumer_member.reconcile`)

The target of a large group is computed `elsewhere`, from the group at one epoch (`TargetAssignmentBuilder`). Meanwhile
heartbeats return the last target, as if the interval were longer. The result becomes the target for that epoch, unless
a newer target is known or the group was replaced. A change made meanwhile has raised the group's epoch, so the next
heartbeat starts a new computation; the result does not bring back members that have left. A group makes progress even
if it changes all the time.

All of this is one `Change`: it counts when its records are appended, in the same loop iteration and in one batch. A
change that cannot be appended has not happened. If an appended change does not become durable, memory may be ahead of
the log: ``failed`` is called, and the shell reads the partition again. Source: Kafka's GroupMetadataManager; KIP-848,
1071, 1251, 1263. One difference: expressions are resolved at once; in a group with very many, some are resolved by
later heartbeats.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from klamm.broker.coordinator.group.classic.classic import ClassicGroups
from klamm.broker.coordinator.group.classic.classic_group import Client
from klamm.broker.coordinator.group.classic.responses import metadata_error
from klamm.broker.coordinator.group.classic.states import State
from klamm.broker.coordinator.group.consumer import consumer_records as stored
from klamm.broker.coordinator.group.consumer import regexes
from klamm.broker.coordinator.group.consumer.change import Change
from klamm.broker.coordinator.group.consumer.consumer_checks import check_epoch, check_request, fenced, known
from klamm.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from klamm.broker.coordinator.group.consumer.consumer_member import (
    JOINING,
    LEFT_FOR_A_WHILE,
    ConsumerMember,
    Epochs,
    MemberState,
    Owned,
)
from klamm.broker.coordinator.group.consumer.limits import ConsumerLimits, GroupSettings
from klamm.broker.coordinator.group.consumer.reconciler import Elsewhere, Reconciler
from klamm.broker.coordinator.group.consumer.sessions import WHY_FENCED, Sessions
from klamm.broker.coordinator.group.migration import Migration
from klamm.broker.coordinator.group.store import Store
from klamm.broker.coordinator.runtime.timer_queue import TimerQueue
from klamm.broker.coordinator.runtime.types import Now, TimerKey
from klamm.protocol.errors import (
    ErrorCode,
    GroupIdNotFound,
    GroupMaxSizeReached,
    KafkaError,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from klamm.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from klamm.broker.metadata.image import TopicImage

log = logging.getLogger(__name__)

FENCE_AGAIN_MS = 500
"""The pause before the removal of a member is tried again."""

HeartbeatCallback = Callable[[ConsumerGroupHeartbeatResponse], None]


class ConsumerGroups:
    """All consumer groups of this broker."""

    def __init__(
        self,
        classic: ClassicGroups,
        *,
        store: Store,
        new_id: Callable[[], str],
        timers: TimerQueue[TimerKey],
        topics: Callable[[], Mapping[str, TopicImage]],
        topics_by_id: Callable[[], Mapping[bytes, TopicImage]],
        settings: Callable[[str], GroupSettings],
        failed: Callable[[str], None],
        elsewhere: Elsewhere,
    ) -> None:
        self.limits = ConsumerLimits()
        self.groups: dict[str, ConsumerGroup] = {}
        self.timers = timers
        self.topics = topics
        self.settings = settings
        self._classic = classic
        self._store = store
        self._new_id = new_id
        self._failed = failed
        self.sessions = Sessions(timers, settings)
        self.reconciler = Reconciler(
            self.groups,
            self.sessions,
            topics=topics,
            limits=lambda: self.limits,
            settings=settings,
            elsewhere=elsewhere,
            commit=self.commit,
        )
        self.migration = Migration(
            classic,
            self.sessions,
            topics=topics,
            topics_by_id=topics_by_id,
            limits=lambda: self.limits,
            forget=self.forget,
        )

    # -- requests -----------------------------------------------------------------------------------------------

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: Client, callback: HeartbeatCallback, now: Now
    ) -> None:
        """Handle ConsumerGroupHeartbeat: join, stay or leave."""
        try:
            check_request(request, client, self.limits.assignors)
            if request.member_epoch < JOINING:
                change, response = self._leave(request, now)
            else:
                change, response = self._beat(request, client, now)
        except KafkaError as error:
            callback(ConsumerGroupHeartbeatResponse(error_code=int(error.code), error_message=error.message))
            return
        self.commit(change, lambda code: callback(response if not code else _failure(code)), now)

    # -- a heartbeat --------------------------------------------------------------------------------------------

    def _beat(
        self, request: ConsumerGroupHeartbeatRequest, client: Client, now: Now
    ) -> tuple[Change, ConsumerGroupHeartbeatResponse]:
        joins = request.member_epoch == JOINING
        group = self._group(request.group_id, create=joins)
        self.check_room(group, request.member_id)
        member_id = request.member_id or self._new_id()
        owned: Owned | None = None
        if request.topic_partitions is not None:
            owned = {topic.topic_id: topic.partitions for topic in request.topic_partitions}
        member, replaced = self._member(group, member_id, request, owned)
        updated = _updated(member, request, client)
        if updated.topic_regex and updated.topic_regex not in group.regexes:
            regexes.compiled(updated.topic_regex)
        # No request is refused from here on, and all of this runs in one loop iteration.
        if replaced is None and updated == member and group.is_settled(member):
            change = Change(group)
        else:
            change = self.change(group)
            if group.group_id not in self.groups:
                self.migration.enter(change, now)
            if replaced is not None:
                self.replace_static(change, replaced, member)
            updated = self.reconciler.advance(change, member, updated, owned, now)
        change.then(lambda: self.sessions.expect_heartbeat(group, updated, now))
        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=updated.epoch,
            heartbeat_interval_ms=self.settings(group.group_id).heartbeat_interval_ms,
        )
        if joins or _is_full(request) or _partitions(member.assigned) != _partitions(updated.assigned):
            response.assignment = Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=topic, partitions=sorted(indexes))
                    for topic, indexes in sorted(updated.assigned.items())
                    if indexes
                ]
            )
        return change, response

    def change(self, group: ConsumerGroup) -> Change:
        """Begin a change of a group. A group that is not in `groups` yet is changed in place."""
        return Change(group.copy() if group.group_id in self.groups else group)

    def _group(self, group_id: str, *, create: bool) -> ConsumerGroup:
        """Return the group; a new one is not in `groups` until its change counts. Raises GroupIdNotFound."""
        group = self.groups.get(group_id)
        if group is None:
            if not create:
                raise GroupIdNotFound(f"there is no consumer group {group_id!r}")
            classic = self._classic.groups.get(group_id)
            if classic is None or classic.state is State.EMPTY:  # a pending member will join with its id
                group = ConsumerGroup(group_id, self.limits.assignors[0])
            else:
                group = self.migration.upgraded(classic)
        return group

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        if len(group.members) >= self.limits.max_size and member_id not in group.members:
            raise GroupMaxSizeReached(f"group {group.group_id!r} is full: it has {self.limits.max_size} members")

    def _member(
        self, group: ConsumerGroup, member_id: str, request: ConsumerGroupHeartbeatRequest, owned: Owned | None
    ) -> tuple[ConsumerMember, ConsumerMember | None]:
        """Return the sender of the request, and the static member it replaces, if any. Raises a KafkaError."""
        instance_id, joins = request.instance_id, request.member_epoch == JOINING
        if instance_id is not None:
            current = group.static_member(instance_id)
            if current is None and not joins:
                raise UnknownMemberId(f"group {group.group_id!r} has no static member {instance_id!r}")
            if current is not None and current.member_id != member_id:
                if not joins:
                    raise fenced(member_id, current)
                # A classic static member does not announce that it leaves; a migrating client may replace it.
                if current.epoch != LEFT_FOR_A_WHILE and current.classic is None:
                    raise UnreleasedInstanceId(f"{current.member_id!r} still holds the instance id {instance_id!r}")
                return successor(current, member_id), current
        member = group.members.get(member_id)
        if member is None:
            if not joins:
                raise UnknownMemberId(f"group {group.group_id!r} has no member {member_id!r}")
            return ConsumerMember(member_id, instance_id=instance_id), None
        if not joins:
            check_epoch(member, request.member_epoch, owned)
        return member, None

    def replace_static(self, change: Change, old: ConsumerMember, member: ConsumerMember) -> None:
        """Replace a static member that has come back under a new member id. The new one takes over target and
        partitions.
        """
        group = change.group
        target = group.target.get(old.member_id, {})
        change.then(lambda: self.sessions.cancel(group, old.member_id))
        group.remove(old.member_id)
        group.put(member)
        group.target[member.member_id] = target
        change.records += stored.member_tombstones(group.group_id, old.member_id)
        change.records += [
            stored.member_record(group.group_id, member),
            stored.target_record(group.group_id, member.member_id, target),
            stored.current_record(group.group_id, member),
        ]
        change.then(
            lambda: log.info(
                "group %s: static member %s is %s now", group.group_id, member.instance_id, member.member_id
            )
        )

    # -- removal of members -------------------------------------------------------------------------------------

    def _leave(self, request: ConsumerGroupHeartbeatRequest, now: Now) -> tuple[Change, ConsumerGroupHeartbeatResponse]:
        group = self.groups.get(request.group_id)
        if group is None:
            raise GroupIdNotFound(f"there is no consumer group {request.group_id!r}")
        if request.instance_id is None:
            member = known(group, request.member_id)
        else:
            current = group.static_member(request.instance_id)
            if current is None:
                raise UnknownMemberId(f"group {group.group_id!r} has no static member {request.instance_id!r}")
            if current.member_id != request.member_id:
                raise fenced(request.member_id, current)
            member = current
        change = self.change(group)
        if request.member_epoch == LEFT_FOR_A_WHILE:
            away = member._replace(epoch=LEFT_FOR_A_WHILE, state=MemberState.STABLE, revoking={})
            change.group.put(away)
            change.records.append(stored.current_record(group.group_id, away))
            change.then(lambda: self.sessions.expect_revocation(group, away, now))
        else:
            self.remove(change, [member.member_id], "left", now)
        return change, ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)

    def remove(self, change: Change, member_ids: Iterable[str], why: str, now: Now) -> None:
        """Remove members: their partitions become free, and the group gets a new epoch."""
        group = change.group
        for member_id in member_ids:
            change.then(partial(log.info, "group %s: %s %s", group.group_id, member_id, why))
            change.then(partial(self.sessions.cancel, group, member_id))
            group.remove(member_id)
            change.records += stored.member_tombstones(group.group_id, member_id)
        if self.migration.downgrade_if_classic(change, now):
            return
        self.reconciler.resolve(change, now)
        self.reconciler.bump_if_changed(change, force=True)
        if not group.members:
            self.reconciler.assign(change, now)

    # -- time ---------------------------------------------------------------------------------------------------

    def due(self, key: TimerKey, now: Now) -> None:
        """Handle a deadline of this machine: fence the member."""
        group = self.groups.get(key[1])
        if group is None or key[2] not in group.members:
            return

        def on_stored(code: int) -> None:
            if code:
                self.timers.set(key, now.ms + FENCE_AGAIN_MS)

        change = self.change(group)
        self.remove(change, [key[2]], WHY_FENCED[key[0]], now)
        self.commit(change, on_stored, now)

    def topics_changed(self, names: frozenset[str], created: frozenset[str]) -> None:
        """Mark the groups of created, deleted or grown topics as stale; their next heartbeat checks the topics."""
        for group in self.groups.values():
            if (created and group.regexes) or not names.isdisjoint(group.topic_names):
                group.stale = True

    # -- creation and removal of groups -------------------------------------------------------------------------

    def take(self, group: ConsumerGroup, now: Now) -> None:
        """Take over a group read from the log; its members get a session timeout to reappear."""
        self.groups[group.group_id] = group
        for member in group.members.values():
            self.sessions.expect_heartbeat(group, member, now)
            self.sessions.expect_revocation(group, member, now)

    def forget(self, group_id: str) -> None:
        """Drop a group and its deadlines."""
        group = self.groups.pop(group_id, None)
        if group is not None:
            for member_id in group.members:
                self.sessions.cancel(group, member_id)

    def delete(self, group_id: str, done: Callable[[int], None], now: Now) -> None:
        """Delete a group without members; ``done`` as with `commit`."""
        change = Change(self.groups[group_id])
        change.records += stored.group_tombstones(change.group)
        change.then(lambda: self.forget(group_id))
        self.commit(change, done, now)

    def commit(self, change: Change, done: Callable[[int], None], now: Now) -> None:
        """Append the change; from then on it counts. ``done`` gets the error code for the client, 0 for none."""
        group_id = change.group.group_id

        def appended() -> None:
            self.groups[group_id] = change.group
            change.apply()

        def on_stored(code: ErrorCode, now: Now) -> None:
            if code is not ErrorCode.NONE and change.counts:
                self._failed(group_id)
            done(metadata_error(code) if code is not ErrorCode.NONE else 0)

        if change.records:
            self._store(group_id, lambda: change.records, on_stored, now, appended=appended)
        else:
            appended()
            done(0)


def successor(old: ConsumerMember, member_id: str) -> ConsumerMember:
    """Return the member that replaces a static member."""
    return old._replace(
        member_id=member_id, epoch=JOINING, previous_epoch=JOINING, state=MemberState.STABLE, revoking={}
    )


def _updated(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, client: Client) -> ConsumerMember:
    """Return the member with the request's values; null leaves a value unchanged."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    return member._replace(
        instance_id=request.instance_id if request.instance_id is not None else member.instance_id,
        rack_id=request.rack_id if request.rack_id is not None else member.rack_id,
        client_id=client.client_id,
        client_host=client.host,
        rebalance_timeout_ms=(
            request.rebalance_timeout_ms if request.rebalance_timeout_ms != -1 else member.rebalance_timeout_ms
        ),
        topic_names=frozenset(names) if names is not None else member.topic_names,
        topic_regex=regex if regex is not None else member.topic_regex,
        server_assignor=request.server_assignor if request.server_assignor is not None else member.server_assignor,
        classic=None,
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return whether the request has all fields, as clients send it when they may have missed a response."""
    return (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


def _partitions(assignment: Epochs) -> dict[bytes, frozenset[int]]:
    return {topic: frozenset(indexes) for topic, indexes in assignment.items() if indexes}


def _failure(code: int) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=ErrorCode(code).default_message)
