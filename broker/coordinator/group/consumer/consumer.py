"""Consumer groups (KIP-848): heartbeats that carry everything, and partitions that move one owner at a time.

A pure state machine beside `classic`, made like it: every call takes the request and the time, records go to ``store``,
the answer goes to ``reply`` when they are durable. One heartbeat does, in this order::

    the member           joins, comes back, or is checked by its epoch; says what it wants, if that has changed
    the group epoch      grows if subscriptions or the topics behind them have changed
    the target           is computed again if it is behind the group epoch, at most every ...assignment.interval.ms
    the member again     makes its next step towards the target (`consumer_member.reconcile`)

The target of a large group is computed `elsewhere`, from what the group was like at one epoch (`target.Plan`), while
heartbeats are answered with the last one: as if the interval were longer. It is taken for that epoch when it is there,
unless a newer one is known or the group is another. What has changed meanwhile has raised the group's epoch, so that
the next heartbeat begins a new computation; who has left does not come back by it. A group makes progress even if it
changes all the time.

All of it is a `Change`: it counts when its records are appended, in the same turn and in one batch. What cannot be
appended has not happened. What is appended and does not become durable is in memory and may not be in the log: the
shell is told by ``failed`` and reads the partition again. Source: Kafka's GroupMetadataManager; KIP-848, 1071, 1251,
1263. Differs from it in that expressions are resolved at once; those of a group with very many, some heartbeats later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from klamm.broker.coordinator.group.classic.classic import ClassicGroups, metadata_error
from klamm.broker.coordinator.group.classic.classic_group import ClassicGroup, Client
from klamm.broker.coordinator.group.classic.states import State
from klamm.broker.coordinator.group.consumer import consumer_records as stored
from klamm.broker.coordinator.group.consumer import regexes
from klamm.broker.coordinator.group.consumer.assignors import Assignment as Target
from klamm.broker.coordinator.group.consumer.change import Change
from klamm.broker.coordinator.group.consumer.consumer_checks import check_epoch, check_request, fenced, known
from klamm.broker.coordinator.group.consumer.consumer_group import ConsumerGroup, ResolvedRegex, hash_of
from klamm.broker.coordinator.group.consumer.consumer_member import (
    JOINING,
    LEFT_FOR_A_WHILE,
    ConsumerMember,
    Epochs,
    MemberState,
    Owned,
    reconcile,
)
from klamm.broker.coordinator.group.consumer.target import Computed, Plan
from klamm.broker.coordinator.group.migration import DOWNGRADE, UPGRADE, downgraded, upgraded
from klamm.broker.coordinator.group.records import group_key, group_record
from klamm.broker.coordinator.group.store import Store
from klamm.broker.coordinator.runtime.machine import Now, TimerKey
from klamm.broker.coordinator.runtime.timers import Timers
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

SESSION, REVOKE, JOIN, SYNC = "consumer-session", "consumer-revoke", "consumer-join", "consumer-sync"
WHY_FENCED = {
    SESSION: "was not heard of in time",
    REVOKE: "did not give up its partitions in time",
    JOIN: "did not join again in time",
    SYNC: "did not sync in time",
}
KINDS = frozenset(WHY_FENCED)
FENCE_AGAIN_MS = 500
"""How long to wait before a member that could not be removed is removed again."""

MATCHES = 5_000
"""Topic names that are matched with expressions in one heartbeat, though at least with one expression."""

Elsewhere = Callable[[Callable[[], Computed], Callable[[Computed | None, Now], None]], None]
"""Runs the first off the loop, and calls the second on it with the result, or None for a failure."""
HeartbeatReply = Callable[[ConsumerGroupHeartbeatResponse], None]


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What holds for one group; Kafka's keys beginning with ``group.consumer.`` or, for the group, ``consumer.``."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    """What holds for all groups."""

    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    migration: str = "bidirectional"
    classic_max_size: int = 2**31 - 1


class ConsumerGroups:
    """All consumer groups of this broker."""

    def __init__(
        self,
        classic: ClassicGroups,
        *,
        store: Store,
        new_id: Callable[[], str],
        timers: Timers[TimerKey],
        topics: Callable[[], Mapping[str, TopicImage]],
        topics_by_id: Callable[[], Mapping[bytes, TopicImage]],
        settings: Callable[[str], GroupSettings],
        failed: Callable[[str], None],
        elsewhere: Elsewhere,
    ) -> None:
        self.limits = ConsumerLimits()
        self.groups: dict[str, ConsumerGroup] = {}
        self.timers = timers
        self.rebalance_count = 0
        self.topics = topics
        self.settings = settings
        self._classic = classic
        self._topics_by_id = topics_by_id
        self._store = store
        self._new_id = new_id
        self._failed = failed
        self._elsewhere = elsewhere

    # -- requests -----------------------------------------------------------------------------------------------

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: Client, reply: HeartbeatReply, now: Now
    ) -> None:
        """ConsumerGroupHeartbeat: join, stay or leave."""
        try:
            check_request(request, client, self.limits.assignors)
            if request.member_epoch < JOINING:
                change, response = self._leave(request, now)
            else:
                change, response = self._beat(request, client, now)
        except KafkaError as error:
            reply(ConsumerGroupHeartbeatResponse(error_code=int(error.code), error_message=error.message))
            return
        self.commit(change, lambda code: reply(response if not code else _failure(code)), now)

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
        # Nothing is refused from here on, and everything happens in one turn.
        if replaced is None and updated == member and group.is_settled(member):
            change = Change(group)
        else:
            change = self.change(group)
            self._enter(change, now)
            if replaced is not None:
                self.replace_static(change, replaced, member)
            updated = self.advance(change, member, updated, owned, now)
        change.then(lambda: self.expect_heartbeat(group, updated, now))
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
        """Begin to change a group. One that is not among `groups` yet may be changed itself."""
        return Change(group.copy() if group.group_id in self.groups else group)

    def _group(self, group_id: str, *, create: bool) -> ConsumerGroup:
        """The group; a new one is not among `groups` until its change counts. Raises GroupIdNotFound."""
        group = self.groups.get(group_id)
        if group is None:
            if not create:
                raise GroupIdNotFound(f"there is no consumer group {group_id!r}")
            classic = self._classic.groups.get(group_id)
            if classic is None or classic.state is State.EMPTY:  # who was only given a member id comes back with it
                group = ConsumerGroup(group_id, self.limits.assignors[0])
            else:
                group = self._upgraded(classic)
        return group

    def _upgraded(self, classic: ClassicGroup) -> ConsumerGroup:
        """The classic group as a consumer group, if it may be one. Raises GroupIdNotFound."""
        if self.limits.migration not in UPGRADE:
            raise GroupIdNotFound(f"classic group {classic.group_id!r} stays classic: group.consumer.migration.policy")
        if len(classic.members) > self.limits.max_size:
            raise GroupIdNotFound(
                f"classic group {classic.group_id!r} stays classic: it is larger than group.consumer.max.size"
            )
        return upgraded(classic, self.limits.assignors[0], self.topics())

    def _enter(self, change: Change, now: Now) -> None:
        """Look after a group that is new, or was a classic one until now."""
        group, group_id = change.group, change.group.group_id
        if group_id in self.groups:
            return
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
            change.then(partial(self.expect_heartbeat, group, member, now))

    def downgrade_if_classic(self, change: Change, now: Now) -> bool:
        """When all members speak the classic protocol, the group is a classic one again, and rebalances."""
        group = change.group
        if (
            self.limits.migration not in DOWNGRADE
            or not 0 < len(group.members) <= self.limits.classic_max_size
            or any(member.classic is None for member in group.members.values())
        ):
            return False
        classic = downgraded(group, self._topics_by_id(), wall_ms=now.wall_ms)
        change.records += stored.group_tombstones(group)
        change.records.append(group_record(group.group_id, classic.record()))
        change.then(
            lambda: log.info("group %s: is a classic group now, members=%d", group.group_id, len(group.members))
        )
        change.then(lambda: self.forget(group.group_id))
        change.then(lambda: self._classic.adopt(classic, "the group has become a classic one", now))
        return True

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        if len(group.members) >= self.limits.max_size and member_id not in group.members:
            raise GroupMaxSizeReached(
                f"group {group.group_id!r} has the {self.limits.max_size} members that it may have"
            )

    def _member(
        self, group: ConsumerGroup, member_id: str, request: ConsumerGroupHeartbeatRequest, owned: Owned | None
    ) -> tuple[ConsumerMember, ConsumerMember | None]:
        """Who sends the request, and the static member whose place it takes, if it does. Raises a KafkaError."""
        instance_id, joins = request.instance_id, request.member_epoch == JOINING
        if instance_id is not None:
            current = group.static_member(instance_id)
            if current is None and not joins:
                raise UnknownMemberId(f"group {group.group_id!r} has no static member {instance_id!r}")
            if current is not None and current.member_id != member_id:
                if not joins:
                    raise fenced(member_id, current)
                # One of the classic protocol does not say that it has left: who migrates takes its place.
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
        """A static member has come back under another member id: it takes over all that its former self had."""
        group = change.group
        target = group.target.get(old.member_id, {})
        change.then(lambda: self._cancel_timers(group, old.member_id))
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

    def advance(
        self, change: Change, member: ConsumerMember, updated: ConsumerMember, owned: Owned | None, now: Now
    ) -> ConsumerMember:
        """All that a heartbeat does once it is known whose it is; ``updated`` is the member with what it asks for."""
        group = change.group
        known = member.member_id in group.members
        elects = updated.server_assignor != member.server_assignor
        assignor = group.assignor if elects else ""
        if not known or updated != member:
            group.put(updated)
            change.records.append(stored.member_record(group.group_id, updated))
        elected = elects and group.assignor != assignor
        if elected or group.stale or group.unresolved or _wishes(updated) != _wishes(member):
            resolved = self._resolve(change, now)
            force = elected or resolved or _wants_more(group, member, updated)
            self._bump_if_changed(change, force=force)
        self._assign(change, now)
        return self._step(change, updated, owned, now, known=known)

    def _resolve(self, change: Change, now: Now) -> bool:
        """Match the expressions that are new, or all when topics have changed; whether that gave anything new. After
        `MATCHES` the next heartbeats go on."""
        group, records = change.group, change.records
        used, changed = group.used_regexes(), False
        for regex in [regex for regex in group.regexes if regex not in used]:
            group.set_regex(regex, None)
            records.append(stored.regex_tombstone(group.group_id, regex))
        names = self.topics()
        if group.stale:
            group.unresolved = dict.fromkeys(used)
        else:
            group.unresolved |= dict.fromkeys(regex for regex in used if regex not in group.regexes)
        left = MATCHES
        while group.unresolved and left > 0:
            regex = next(iter(group.unresolved))
            del group.unresolved[regex]
            if regex not in used:
                continue
            left -= len(names)
            before = group.regexes.get(regex)
            try:
                found = regexes.matching(regex, names)
            except KafkaError as error:  # Kafka has accepted it, or a newer version of the library
                log.error("group %s: %s", group.group_id, error.message)
                found = frozenset()
            if before is None or before.topics != found:
                resolved = ResolvedRegex(found, len(names), now.wall_ms)
                group.set_regex(regex, resolved)
                records.append(stored.regex_record(group.group_id, regex, resolved))
                changed = changed or before is not None or bool(found)
        return changed

    def _bump_if_changed(self, change: Change, *, force: bool) -> None:
        group = change.group
        group.stale = False
        metadata_hash = hash_of(group.topic_names, self.topics())
        if force or metadata_hash != group.metadata_hash:
            group.metadata_hash = metadata_hash
            group.epoch += 1
            change.records.append(stored.epoch_record(group))
            change.then(lambda: self._note_epoch(group))

    def _note_epoch(self, group: ConsumerGroup) -> None:
        self.rebalance_count += 1
        log.info("group %s: epoch %d, members=%d", group.group_id, group.epoch, len(group.members))

    def _assign(self, change: Change, now: Now) -> None:
        """Compute the target assignment, if it is behind and the last one is not too fresh."""
        group = change.group
        if group.epoch == group.assignment_epoch or not self._may_assign(group, now):
            return
        assignor = group.assignor if group.assignor in self.limits.assignors else group.default_assignor
        plan = Plan.of(group, assignor, self.topics())
        if not group.assignment_epoch or plan.is_small():
            self._take_target(change, plan, plan.compute(), now)
            return
        group.computing = plan
        change.then(lambda: self._elsewhere(plan.compute, partial(self._computed, plan)))

    def _computed(self, plan: Plan, computed: Computed | None, now: Now) -> None:
        """A target was computed elsewhere; None: that failed, and the next heartbeat begins again."""
        group = self.groups.get(plan.group_id)
        if group is None or group.computing is not plan:
            return
        group.computing = None
        if computed is not None and plan.epoch > group.assignment_epoch:
            change = self.change(group)
            self._take_target(change, plan, computed, now)
            self.commit(change, lambda code: None, now)

    def _take_target(self, change: Change, plan: Plan, computed: Computed, now: Now) -> None:
        """The target is for the epoch of the plan. Who has left since gets nothing; a static member that has come back
        under another member id gets what its former self would have."""
        group, records = change.group, change.records
        target: dict[str, Target] = {}
        for former_id, assignment in computed.target.items():
            member_id, instance_id = former_id, plan.members[former_id].instance_id
            if member_id not in group.members and instance_id is not None:
                member_id = group.static_members.get(instance_id, former_id)
            if member_id not in group.members or (member_id != former_id and member_id in computed.target):
                continue
            target[member_id] = assignment
            if group.target.get(member_id) != assignment:
                record = computed.records.get(member_id)
                records.append(record or stored.target_record(group.group_id, member_id, assignment))
        group.target = target
        group.assignment_epoch = plan.epoch
        group.assignment_ms = now.wall_ms
        records.append(stored.target_epoch_record(group))

    def _may_assign(self, group: ConsumerGroup, now: Now) -> bool:
        if group.computing is not None and group.members:
            return False
        if not group.assignment_epoch or not group.members:
            return True
        since_ms = now.wall_ms - group.assignment_ms
        return not 0 <= since_ms < self.settings(group.group_id).assignment_interval_ms

    def is_behind(self, group: ConsumerGroup, member: ConsumerMember, now: Now) -> bool:
        """Whether the member would get another epoch now."""
        if group.stale or member.epoch < group.assignment_epoch:
            return True
        return group.epoch > group.assignment_epoch and self._may_assign(group, now)

    def _step(
        self, change: Change, member: ConsumerMember, owned: Owned | None, now: Now, *, known: bool
    ) -> ConsumerMember:
        """Let the member go on towards the target."""
        group = change.group
        if known and group.is_settled(member):
            return member
        moved = reconcile(
            member,
            target_epoch=group.assignment_epoch,
            target=group.target.get(member.member_id, {}),
            subscribed=group.topic_ids(member, self.topics()),
            owned=owned,
            is_free=lambda topic, index: group.is_free(topic, index, member.member_id),
        )
        if moved == member and known:
            return member
        group.put(moved)
        change.records.append(stored.current_record(group.group_id, moved))
        change.then(lambda: self._expect_revocation(group, moved, now))
        return moved

    def _expect_revocation(self, group: ConsumerGroup, member: ConsumerMember, now: Now) -> None:
        key = (REVOKE, group.group_id, member.member_id)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self.timers.set(key, now.ms + member.rebalance_timeout_ms)
        else:
            self.timers.cancel(key)

    # -- members go ---------------------------------------------------------------------------------------------

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
            change.then(lambda: self._expect_revocation(group, away, now))
        else:
            self.remove(change, [member.member_id], "left", now)
        return change, ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)

    def remove(self, change: Change, member_ids: Iterable[str], why: str, now: Now) -> None:
        """Members are gone: what they had is free, and the others get a new epoch."""
        group = change.group
        for member_id in member_ids:
            change.then(partial(log.info, "group %s: %s %s", group.group_id, member_id, why))
            change.then(partial(self._cancel_timers, group, member_id))
            group.remove(member_id)
            change.records += stored.member_tombstones(group.group_id, member_id)
        if self.downgrade_if_classic(change, now):
            return
        self._resolve(change, now)
        self._bump_if_changed(change, force=True)
        if not group.members:
            self._assign(change, now)

    def _cancel_timers(self, group: ConsumerGroup, member_id: str) -> None:
        for kind in KINDS:
            self.timers.cancel((kind, group.group_id, member_id))

    # -- time ---------------------------------------------------------------------------------------------------

    def expect_heartbeat(self, group: ConsumerGroup, member: ConsumerMember, now: Now) -> None:
        """Begin the session of a member anew."""
        timeout_ms = member.classic.session_timeout_ms if member.classic is not None else None
        if timeout_ms is None:
            timeout_ms = self.settings(group.group_id).session_timeout_ms
        self.timers.set((SESSION, group.group_id, member.member_id), now.ms + timeout_ms)

    def due(self, key: TimerKey, now: Now) -> None:
        """A timer of this machine has come: the member is fenced."""
        group = self.groups.get(key[1])
        if group is None or key[2] not in group.members:
            return

        def told(code: int) -> None:
            if code:
                self.timers.set(key, now.ms + FENCE_AGAIN_MS)

        change = self.change(group)
        self.remove(change, [key[2]], WHY_FENCED[key[0]], now)
        self.commit(change, told, now)

    def topics_changed(self, names: frozenset[str], created: frozenset[str]) -> None:
        """These topics are new, gone, or have other partitions: the next heartbeat of a group looks at them."""
        for group in self.groups.values():
            if (created and group.regexes) or not names.isdisjoint(group.topic_names):
                group.stale = True

    # -- groups come and go -------------------------------------------------------------------------------------

    def take(self, group: ConsumerGroup, now: Now) -> None:
        """Look after a group that was read from the log; its members get a session timeout to show up."""
        self.groups[group.group_id] = group
        for member in group.members.values():
            self.expect_heartbeat(group, member, now)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                self.timers.set((REVOKE, group.group_id, member.member_id), now.ms + member.rebalance_timeout_ms)

    def forget(self, group_id: str) -> None:
        """Look after a group no longer."""
        group = self.groups.pop(group_id, None)
        if group is not None:
            for member_id in group.members:
                self._cancel_timers(group, member_id)

    def delete(self, group_id: str, done: Callable[[int], None], now: Now) -> None:
        """Remove a group that nobody is in; ``done`` as with `commit`."""
        change = Change(self.groups[group_id])
        change.records += stored.group_tombstones(change.group)
        change.then(lambda: self.forget(group_id))
        self.commit(change, done, now)

    def commit(self, change: Change, done: Callable[[int], None], now: Now) -> None:
        """Append; from then on the change counts. ``done`` gets the error code for the client, 0 for none."""
        group_id = change.group.group_id

        def appended() -> None:
            self.groups[group_id] = change.group
            change.apply()

        def told(code: ErrorCode, now: Now) -> None:
            if code is not ErrorCode.NONE and change.counts:
                self._failed(group_id)
            done(metadata_error(code) if code is not ErrorCode.NONE else 0)

        if change.records:
            self._store(group_id, lambda: change.records, told, now, appended=appended)
        else:
            appended()
            done(0)


def successor(old: ConsumerMember, member_id: str) -> ConsumerMember:
    """The member that takes the place of a static member."""
    return old._replace(
        member_id=member_id, epoch=JOINING, previous_epoch=JOINING, state=MemberState.STABLE, revoking={}
    )


def _updated(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, client: Client) -> ConsumerMember:
    """The member with what the request says; null means as before."""
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


def _wishes(member: ConsumerMember) -> tuple[frozenset[str], str]:
    return member.topic_names, member.topic_regex


def _wants_more(group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember) -> bool:
    """Whether the change of a subscription is one for the group: an expression without topics is none."""
    if before.topic_regex != after.topic_regex and not before.topic_regex:
        before = before._replace(topic_regex=after.topic_regex)
        if group.names_of(after) != after.topic_names:
            return True
    return _wishes(before) != _wishes(after)


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the client says everything, as it does when it does not know what has arrived."""
    return (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


def _partitions(assignment: Epochs) -> dict[bytes, frozenset[int]]:
    return {topic: frozenset(indexes) for topic, indexes in assignment.items() if indexes}


def _failure(code: int) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=ErrorCode(code).default_message)
