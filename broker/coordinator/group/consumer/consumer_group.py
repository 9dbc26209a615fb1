"""One consumer group (KIP-848): its members, its epochs, target and current assignments.

    group epoch        grows with every change of members, subscriptions or topics
    assignment epoch   the group epoch that the target assignment was computed for; follows the group epoch
    member epoch       the assignment epoch that a member has reached; follows the assignment epoch

This module has no timing (see `consumer`) and no record formats (see `consumer_records`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from klamm.broker.coordinator.group.consumer.assignors import Assignment
from klamm.broker.coordinator.group.consumer.consumer_member import ConsumerMember
from klamm.broker.coordinator.group.consumer.consumer_states import MEMBERS, GroupState
from klamm.broker.coordinator.group.subscription import CONSUMER

if TYPE_CHECKING:
    from klamm.broker.coordinator.group.consumer.target_assignment_builder import TargetAssignmentBuilder
    from klamm.broker.metadata.image import TopicImage

FIRST_EPOCH = 1
NO_HASH = 0


class ResolvedRegex(NamedTuple):
    """The topics that an expression matched, and the time of the match."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup:
    """State and members of one group."""

    __slots__ = (
        "_names",
        "_owners",
        "_regex_members",
        "_topic_members",
        "assignment_epoch",
        "assignment_ms",
        "computing",
        "default_assignor",
        "epoch",
        "group_id",
        "members",
        "metadata_hash",
        "regexes",
        "stale",
        "static_members",
        "target",
        "unresolved",
    )
    kind = "consumer"
    protocol_type = CONSUMER
    is_consumer_group = True

    def __init__(self, group_id: str, assignor: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = NO_HASH
        self.assignment_epoch = 0
        self.assignment_ms = 0  # wall time
        self.default_assignor = assignor
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.target: dict[str, Assignment] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.unresolved: dict[str, None] = {}  # expressions to be matched with the topics
        self.stale = False  # topics have changed since the hash was computed
        self.computing: TargetAssignmentBuilder | None = None  # the computation of a target that runs elsewhere
        self._owners: dict[tuple[bytes, int], str] = {}
        self._topic_members: Counter[str] = Counter()  # how many are subscribed to a topic by name
        self._regex_members: Counter[str] = Counter()  # and by an expression
        self._names: frozenset[str] | None = None

    def copy(self) -> ConsumerGroup:
        """Return a copy that may be changed; the values it shares with this one are immutable."""
        other = ConsumerGroup(self.group_id, self.default_assignor)
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(other, name, value.copy() if isinstance(value, dict) else value)
        return other

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled(self.assignment_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    # -- members ------------------------------------------------------------------------------------------------

    def put(self, member: ConsumerMember) -> None:
        """Add a member, or replace an earlier state of it."""
        old = self.members.get(member.member_id)
        assert old is None or old.state is member.state or MEMBERS.permits(old.state, member.state), (
            f"{self.group_id}: {old.state} -> {member.state}"
        )
        if old is not None and old.held() is not member.held():
            self._release(old)
        self.members[member.member_id] = member
        for topic, indexes in member.held().items():
            for index in indexes:
                self._owners[topic, index] = member.member_id
        if old is not None and old.instance_id is not None and old.instance_id != member.instance_id:
            self._forget_instance(old)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if old is None or (old.topic_names, old.topic_regex) != (member.topic_names, member.topic_regex):
            self._subscribe(member, 1)
            if old is not None:
                self._subscribe(old, -1)

    def remove(self, member_id: str) -> ConsumerMember:
        member = self.members.pop(member_id)
        self._release(member)
        self._forget_instance(member)
        self.target.pop(member_id, None)
        self._subscribe(member, -1)
        return member

    def _subscribe(self, member: ConsumerMember, change: int) -> None:
        """Count a member as a subscriber of its topics: `change` is 1 or -1."""
        counted = [(self._topic_members, name) for name in member.topic_names]
        if member.topic_regex:
            counted.append((self._regex_members, member.topic_regex))
        for members, wanted in counted:
            members[wanted] += change
            if not members[wanted]:
                del members[wanted]
                self._names = None
            elif members[wanted] == change:
                self._names = None

    def _forget_instance(self, member: ConsumerMember) -> None:
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]

    def _release(self, member: ConsumerMember) -> None:
        for topic, indexes in member.held().items():
            for index in indexes:
                if self._owners.get((topic, index)) == member.member_id:
                    del self._owners[topic, index]

    def is_settled(self, member: ConsumerMember) -> bool:
        """Return whether the member and its group have nothing left to do."""
        return (
            member.member_id in self.members
            and member.is_reconciled(self.assignment_epoch)
            and self.epoch == self.assignment_epoch
            and not self.stale
            and not self.unresolved
        )

    def is_free(self, topic: bytes, index: int, member_id: str) -> bool:
        """Return whether the member may have the partition now."""
        return self._owners.get((topic, index), member_id) == member_id

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        member_id = self.static_members.get(instance_id)
        return self.members[member_id] if member_id is not None else None

    @property
    def classic_members(self) -> Iterator[ConsumerMember]:
        """The members that use the classic protocol."""
        return (member for member in self.members.values() if member.classic is not None)

    # -- subscriptions ------------------------------------------------------------------------------------------

    @property
    def topic_names(self) -> frozenset[str]:
        """All topics that some member is subscribed to, whether they exist or not."""
        if self._names is None:
            resolved = [self.regexes[regex].topics for regex in self.used_regexes() if regex in self.regexes]
            self._names = frozenset(self._topic_members).union(*resolved)
        return self._names

    def used_regexes(self) -> Collection[str]:
        return self._regex_members.keys()

    def set_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        if resolved is None:
            self.regexes.pop(regex, None)
        else:
            self.regexes[regex] = resolved
        self._names = None

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.topic_names

    def names_of(self, member: ConsumerMember) -> frozenset[str]:
        return names_of(member, self.regexes)

    def topic_ids(self, member: ConsumerMember, topics: Mapping[str, TopicImage]) -> frozenset[bytes]:
        return frozenset(topics[name].topic_id for name in self.names_of(member) if name in topics)

    @property
    def assignor(self) -> str:
        """The assignor that most members ask for."""
        votes = Counter(member.server_assignor for member in self.members.values() if member.server_assignor)
        return votes.most_common(1)[0][0] if votes else self.default_assignor


def names_of(member: ConsumerMember, regexes: Mapping[str, ResolvedRegex]) -> frozenset[str]:
    """Return the topics of one member, by name and by expression."""
    resolved = regexes.get(member.topic_regex) if member.topic_regex else None
    return member.topic_names | resolved.topics if resolved is not None else member.topic_names


def hash_of(names: Iterable[str], topics: Mapping[str, TopicImage]) -> int:
    """Return a hash of the subscribed topics; 0 for none. Kafka's hash differs: a group that moves between Kafka and
    Klamm gets one more epoch and keeps its partitions.
    """
    found = sorted(name for name in names if name in topics)
    if not found:
        return NO_HASH
    digest = hashlib.blake2b(digest_size=8)
    for name in found:
        topic = topics[name]
        digest.update(b"%b\0%b%d\0" % (name.encode(), topic.topic_id, len(topic.partitions)))
    return int.from_bytes(digest.digest(), "big", signed=True)
