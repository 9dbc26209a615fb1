"""The computation of a consumer group's target assignment.

A `TargetAssignmentBuilder` is a snapshot of the group at one epoch. It is made on the loop and shares only immutable
values with the group, so `compute` may run in any thread while the group goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from klamm.broker.coordinator.group.consumer import consumer_records as stored
from klamm.broker.coordinator.group.consumer.assignors import ASSIGNORS, Assignment, MemberSpec
from klamm.broker.coordinator.group.consumer.consumer_group import ConsumerGroup, ResolvedRegex, names_of
from klamm.broker.coordinator.group.consumer.consumer_member import ConsumerMember
from klamm.broker.coordinator.runtime.types import KeyValue

if TYPE_CHECKING:
    from klamm.broker.metadata.image import TopicImage

SMALL = 2000
"""The largest sum of members, subscriptions and partitions in a small group."""


class TargetAssignmentResult(NamedTuple):
    """The assignment of every member, and records for the members with a changed assignment."""

    target: dict[str, Assignment]
    records: dict[str, KeyValue]


class TargetAssignmentBuilder(NamedTuple):
    """The input of the target assignment for one epoch."""

    group_id: str
    epoch: int
    assignor: str
    members: dict[str, ConsumerMember]
    regexes: dict[str, ResolvedRegex]
    before: dict[str, Assignment]
    topics: Mapping[str, TopicImage]

    @classmethod
    def of(cls, group: ConsumerGroup, assignor: str, topics: Mapping[str, TopicImage]) -> TargetAssignmentBuilder:
        return cls(
            group.group_id, group.epoch, assignor, dict(group.members), dict(group.regexes), dict(group.target), topics
        )

    def is_small(self) -> bool:
        """Return whether the target can be computed within some milliseconds."""
        left = SMALL
        known: set[str] = set()
        for member in self.members.values():
            names = names_of(member, self.regexes)
            left -= 1 + len(names)
            if left < 0:
                return False
            known |= names
        return sum(len(self.topics[name].partitions) for name in known if name in self.topics) <= left

    def compute(self) -> TargetAssignmentResult:
        """Run the assignor. Takes long for a large group."""
        ids: dict[frozenset[str], frozenset[bytes]] = {}
        specs = {}
        for member_id, member in self.members.items():
            names = names_of(member, self.regexes)
            if names not in ids:
                ids[names] = frozenset(self.topics[name].topic_id for name in names if name in self.topics)
            specs[member_id] = MemberSpec(member.instance_id, ids[names], self.before.get(member_id, {}))
        wanted = frozenset().union(*ids.values())
        counts = {topic.topic_id: len(topic.partitions) for topic in self.topics.values() if topic.topic_id in wanted}
        target = ASSIGNORS[self.assignor](specs, counts)
        records = {
            member_id: stored.target_record(self.group_id, member_id, assignment)
            for member_id, assignment in target.items()
            if self.before.get(member_id) != assignment
        }
        return TargetAssignmentResult(target, records)
