"""The reconciliation of a consumer group: its epoch, its target assignment, and the steps of its members.

The epoch grows when subscriptions, or the subscribed topics, have changed. The target is computed for an epoch: at once
for a small group, `elsewhere` for a large one. With each heartbeat a member makes a step towards the target.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from klamm.broker.coordinator.group.consumer import consumer_records as stored
from klamm.broker.coordinator.group.consumer import regexes
from klamm.broker.coordinator.group.consumer.assignors import Assignment as Target
from klamm.broker.coordinator.group.consumer.change import Change
from klamm.broker.coordinator.group.consumer.consumer_group import ConsumerGroup, ResolvedRegex, hash_of
from klamm.broker.coordinator.group.consumer.consumer_member import ConsumerMember, Owned, reconcile
from klamm.broker.coordinator.group.consumer.limits import ConsumerLimits, GroupSettings
from klamm.broker.coordinator.group.consumer.sessions import Sessions
from klamm.broker.coordinator.group.consumer.target_assignment_builder import (
    TargetAssignmentBuilder,
    TargetAssignmentResult,
)
from klamm.broker.coordinator.runtime.types import Now
from klamm.protocol.errors import KafkaError

if TYPE_CHECKING:
    from klamm.broker.metadata.image import TopicImage

log = logging.getLogger(__name__)

MATCHES = 5_000
"""Topic names that one heartbeat matches with expressions; at least one expression is matched."""

Elsewhere = Callable[[Callable[[], TargetAssignmentResult], Callable[[TargetAssignmentResult | None, Now], None]], None]
"""Runs the first off the loop, then calls the second on the loop with the result, or None for a failure."""
Commit = Callable[[Change, Callable[[int], None], Now], None]


class Reconciler:
    """See the module's head. `commit` applies a change that no request waits for. With `asks_rights` expressions are
    matched only for a member, within `matching_only`.
    """

    def __init__(
        self,
        groups: Mapping[str, ConsumerGroup],
        sessions: Sessions,
        *,
        topics: Callable[[], Mapping[str, TopicImage]],
        limits: Callable[[], ConsumerLimits],
        settings: Callable[[str], GroupSettings],
        elsewhere: Elsewhere,
        commit: Commit,
    ) -> None:
        self.rebalance_count = 0
        self.asks_rights = False
        self._may_match: Callable[[str], bool] | None = None
        self._groups = groups
        self._sessions = sessions
        self._topics = topics
        self._limits = limits
        self._settings = settings
        self._elsewhere = elsewhere
        self._commit = commit

    def advance(
        self, change: Change, member: ConsumerMember, updated: ConsumerMember, owned: Owned | None, now: Now
    ) -> ConsumerMember:
        """Do the work of a heartbeat; ``updated`` is the member with the values of the request."""
        group = change.group
        known = member.member_id in group.members
        elects = updated.server_assignor != member.server_assignor
        assignor = group.assignor if elects else ""
        if not known or updated != member:
            group.put(updated)
            change.records.append(stored.member_record(group.group_id, updated))
        elected = elects and group.assignor != assignor
        if elected or group.stale or group.unresolved or _wishes(updated) != _wishes(member):
            resolved = self.resolve(change, now)
            force = elected or resolved or _wants_more(group, member, updated)
            self.bump_if_changed(change, force=force)
        self.assign(change, now)
        return self._step(change, updated, owned, now, known=known)

    def rights_changed(self) -> None:
        """Make each group match its expressions again at its next heartbeat: members may see other topics now."""
        for group in self._groups.values():
            if group.regexes:
                group.stale = True

    @contextmanager
    def matching_only(self, may_match: Callable[[str], bool]) -> Iterator[None]:
        """Match expressions, inside this context, only with topics that the sender of the heartbeat may describe."""
        self._may_match = may_match
        try:
            yield
        finally:
            self._may_match = None

    def resolve(self, change: Change, now: Now) -> bool:
        """Match new expressions, or all if topics have changed. Return whether any result changed. After `MATCHES`
        names the rest is left to the next heartbeats.
        """
        group, records = change.group, change.records
        if self.asks_rights and self._may_match is None:
            if group.stale:
                group.unresolved = dict.fromkeys(group.used_regexes())
            return False  # the next heartbeat has a member with its rights
        used, changed = group.used_regexes(), False
        for regex in [regex for regex in group.regexes if regex not in used]:
            group.set_regex(regex, None)
            records.append(stored.regex_tombstone(group.group_id, regex))
        names: Collection[str] = self._topics()
        if self._may_match is not None:
            names = [name for name in names if self._may_match(name)]
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
            except KafkaError as error:  # accepted by Kafka, or by a newer version of the library
                log.error("group %s: %s", group.group_id, error.message)
                found = frozenset()
            if before is None or before.topics != found:
                resolved = ResolvedRegex(found, len(names), now.wall_ms)
                group.set_regex(regex, resolved)
                records.append(stored.regex_record(group.group_id, regex, resolved))
                changed = changed or before is not None or bool(found)
        return changed

    def bump_if_changed(self, change: Change, *, force: bool) -> None:
        group = change.group
        group.stale = False
        metadata_hash = hash_of(group.topic_names, self._topics())
        if force or metadata_hash != group.metadata_hash:
            group.metadata_hash = metadata_hash
            group.epoch += 1
            change.records.append(stored.epoch_record(group))
            change.then(lambda: self._note_epoch(group))

    def _note_epoch(self, group: ConsumerGroup) -> None:
        self.rebalance_count += 1
        log.info("group %s: epoch %d, members=%d", group.group_id, group.epoch, len(group.members))

    def assign(self, change: Change, now: Now) -> None:
        """Compute the target assignment if it lags the group epoch and the last one is old enough."""
        group = change.group
        if group.epoch == group.assignment_epoch or not self._may_assign(group, now):
            return
        assignor = group.assignor if group.assignor in self._limits().assignors else group.default_assignor
        builder = TargetAssignmentBuilder.of(group, assignor, self._topics())
        if not group.assignment_epoch or builder.is_small():
            self._take_target(change, builder, builder.compute(), now)
            return
        group.computing = builder
        change.then(lambda: self._elsewhere(builder.compute, partial(self._computed, builder)))

    def _computed(self, builder: TargetAssignmentBuilder, computed: TargetAssignmentResult | None, now: Now) -> None:
        """Apply a target that was computed elsewhere. None: it failed, and the next heartbeat starts again."""
        group = self._groups.get(builder.group_id)
        if group is None or group.computing is not builder:
            return
        group.computing = None
        if computed is not None and builder.epoch > group.assignment_epoch:
            change = Change(group.copy())
            self._take_target(change, builder, computed, now)
            self._commit(change, lambda code: None, now)

    def _take_target(
        self, change: Change, builder: TargetAssignmentBuilder, computed: TargetAssignmentResult, now: Now
    ) -> None:
        """Set the target for the builder's epoch. Members that have left since get nothing. A static member that has
        come back under a new member id gets the assignment of its old one.
        """
        group, records = change.group, change.records
        target: dict[str, Target] = {}
        for former_id, assignment in computed.target.items():
            member_id, instance_id = former_id, builder.members[former_id].instance_id
            if member_id not in group.members and instance_id is not None:
                member_id = group.static_members.get(instance_id, former_id)
            if member_id not in group.members or (member_id != former_id and member_id in computed.target):
                continue
            target[member_id] = assignment
            if group.target.get(member_id) != assignment:
                record = computed.records.get(member_id)
                records.append(record or stored.target_record(group.group_id, member_id, assignment))
        group.target = target
        group.assignment_epoch = builder.epoch
        group.assignment_ms = now.wall_ms
        records.append(stored.target_epoch_record(group))

    def _may_assign(self, group: ConsumerGroup, now: Now) -> bool:
        if group.computing is not None and group.members:
            return False
        if not group.assignment_epoch or not group.members:
            return True
        since_ms = now.wall_ms - group.assignment_ms
        return not 0 <= since_ms < self._settings(group.group_id).assignment_interval_ms

    def is_behind(self, group: ConsumerGroup, member: ConsumerMember, now: Now) -> bool:
        """Return whether the member would get another epoch now."""
        if group.stale or member.epoch < group.assignment_epoch:
            return True
        return group.epoch > group.assignment_epoch and self._may_assign(group, now)

    def _step(
        self, change: Change, member: ConsumerMember, owned: Owned | None, now: Now, *, known: bool
    ) -> ConsumerMember:
        """Make the member's next step towards the target."""
        group = change.group
        if known and group.is_settled(member):
            return member
        moved = reconcile(
            member,
            target_epoch=group.assignment_epoch,
            target=group.target.get(member.member_id, {}),
            subscribed=group.topic_ids(member, self._topics()),
            owned=owned,
            is_free=lambda topic, index: group.is_free(topic, index, member.member_id),
        )
        if moved == member and known:
            return member
        group.put(moved)
        change.records.append(stored.current_record(group.group_id, moved))
        change.then(lambda: self._sessions.expect_revocation(group, moved, now))
        return moved


def _wishes(member: ConsumerMember) -> tuple[frozenset[str], str]:
    return member.topic_names, member.topic_regex


def _wants_more(group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember) -> bool:
    """Return whether the changed subscription has other topics; a new expression that matches none does not count."""
    if before.topic_regex != after.topic_regex and not before.topic_regex:
        before = before._replace(topic_regex=after.topic_regex)
        if group.names_of(after) != after.topic_names:
            return True
    return _wishes(before) != _wishes(after)
