"""The server-side assignors of consumer groups.

Both are functions of the topics and of the members with their subscriptions and current targets.

- `uniform` gives every member the same number of partitions, as far as subscriptions allow. Members keep their
  partitions as far as that balance allows: with equal subscriptions only the necessary moves are made.
- `range` divides each topic into one run of partitions per member, with members in the same order for each topic, so
  that topics with equal partition counts and subscribers are co-partitioned. It is not sticky.

Source: KIP-848; Kafka's UniformAssignor and RangeAssignor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from itertools import groupby
from typing import Final, NamedTuple

Assignment = dict[bytes, frozenset[int]]  # topic id -> partitions


class MemberSpec(NamedTuple):
    """A member as an assignor sees it; ``topics`` are ids of topics that exist."""

    instance_id: str | None
    topics: frozenset[bytes]
    current: Mapping[bytes, Collection[int]]


Members = Mapping[str, MemberSpec]
PartitionCounts = Mapping[bytes, int]
Assignor = Callable[[Members, PartitionCounts], dict[str, Assignment]]
_Partition = tuple[bytes, int]


def uniform(members: Members, partition_counts: PartitionCounts) -> dict[str, Assignment]:
    """Assign partitions, balanced and sticky."""
    if not members:
        return {}
    kept = _kept(members, partition_counts)
    if len({spec.topics for spec in members.values()}) == 1:
        _balance_equal(members, partition_counts, kept)
    else:
        _balance_unequal(members, partition_counts, kept)
    return {member: _grouped(partitions) for member, partitions in kept.items()}


def range_(members: Members, partition_counts: PartitionCounts) -> dict[str, Assignment]:
    """Assign partitions, co-partitioned."""
    ordered = sorted(members, key=lambda member: _range_order(member, members[member]))
    result: dict[str, Assignment] = {member: {} for member in members}
    for topic, subscribers in sorted(_subscribers(members, ordered).items()):
        size, extra = divmod(partition_counts[topic], len(subscribers))
        start = 0
        for number, member in enumerate(subscribers):
            end = start + size + (number < extra)
            if end > start:
                result[member][topic] = frozenset(range(start, end))
            start = end
    return result


ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": uniform, "range": range_}


def _range_order(member: str, spec: MemberSpec) -> tuple[bool, str]:
    """Sort static members first: their place does not change when they come back."""
    return (spec.instance_id is None, spec.instance_id if spec.instance_id is not None else member)


def _kept(members: Members, partition_counts: PartitionCounts) -> dict[str, list[_Partition]]:
    """Return the partitions that each member keeps; a partition that two members have stays with the first."""
    taken: set[_Partition] = set()
    kept: dict[str, list[_Partition]] = {}
    for member, spec in members.items():
        mine = kept[member] = []
        for topic in sorted(spec.current):
            if topic in spec.topics:
                count = partition_counts[topic]
                mine += [(topic, index) for index in sorted(spec.current[topic]) if index < count]
        mine[:] = [partition for partition in mine if partition not in taken]
        taken.update(mine)
    return kept


def _free(
    topics: Collection[bytes], partition_counts: PartitionCounts, kept: Mapping[str, list[_Partition]]
) -> list[_Partition]:
    taken = {partition for partitions in kept.values() for partition in partitions}
    every = [(topic, index) for topic in sorted(topics) for index in range(partition_counts[topic])]
    return [partition for partition in every if partition not in taken]


def _balance_equal(members: Members, partition_counts: PartitionCounts, kept: dict[str, list[_Partition]]) -> None:
    """Balance members with equal topics: the same quota for each, one more for some. Members that already have one more
    come first.
    """
    topics = next(iter(members.values())).topics
    quota, extra = divmod(sum(partition_counts[topic] for topic in topics), len(members))
    room: dict[str, int] = {}
    for member, partitions in kept.items():
        limit = quota
        if extra and len(partitions) > quota:
            extra -= 1
            limit += 1
        del partitions[limit:]
        room[member] = limit - len(partitions)
    for member, partitions in kept.items():
        if extra and len(partitions) + room[member] == quota:
            extra -= 1
            room[member] += 1
    free = iter(_free(topics, partition_counts, kept))
    for member, count in room.items():
        kept[member] += [next(free) for _ in range(count)]


def _balance_unequal(members: Members, partition_counts: PartitionCounts, kept: dict[str, list[_Partition]]) -> None:
    """Give free partitions to the least loaded subscriber, then move partitions while that evens out the loads."""
    subscribers = _subscribers(members, members)
    load = {member: len(partitions) for member, partitions in kept.items()}
    # Topics with few subscribers come first: the other topics can still even out the loads.
    order = sorted(subscribers, key=lambda topic: (len(subscribers[topic]), topic))
    rank = {topic: number for number, topic in enumerate(order)}
    free = sorted(_free(subscribers, partition_counts, kept), key=lambda free: (rank[free[0]], free[1]))
    for topic, partitions in groupby(free, key=lambda free: free[0]):
        lightest = [(load[member], number, member) for number, member in enumerate(subscribers[topic])]
        heapify(lightest)
        for partition in partitions:
            _, number, member = lightest[0]
            kept[member].append(partition)
            load[member] += 1
            heapreplace(lightest, (load[member], number, member))
    by_topic = {member: _by_topic(partitions) for member, partitions in kept.items()}
    moved = 1
    while moved:
        moved = sum(_even_out(topic, subscribers[topic], by_topic, load) for topic in order)
    for member, topics in by_topic.items():
        kept[member] = [(topic, index) for topic, indexes in topics.items() for index in indexes]


def _subscribers(members: Members, ordered: Iterable[str]) -> dict[bytes, list[str]]:
    """Return the subscribers of each topic, in this order."""
    subscribers: dict[bytes, list[str]] = {}
    for member in ordered:
        for topic in members[member].topics:
            subscribers.setdefault(topic, []).append(member)
    return subscribers


def _even_out(
    topic: bytes, subscribers: list[str], by_topic: dict[str, dict[bytes, list[int]]], load: dict[str, int]
) -> bool:
    """Move partitions of one topic from the most to the least loaded members. Return whether any moved."""
    most = max((load[member] for member in subscribers if by_topic[member].get(topic)), default=0)
    if most - min(map(load.__getitem__, subscribers)) <= 1:
        return False
    # Heap entries with a stale load are skipped: a member that gives or takes is pushed again.
    heaviest = [(-load[member], number) for number, member in enumerate(subscribers) if by_topic[member].get(topic)]
    lightest = [(load[member], number) for number, member in enumerate(subscribers)]
    heapify(heaviest)
    heapify(lightest)
    moved = False
    while heaviest:
        size, giver = heaviest[0]
        if -size != load[subscribers[giver]] or not by_topic[subscribers[giver]].get(topic):
            heappop(heaviest)
            continue
        size, taker = lightest[0]
        if size != load[subscribers[taker]]:
            heappop(lightest)
            continue
        if load[subscribers[giver]] - size <= 1:
            break
        by_topic[subscribers[taker]].setdefault(topic, []).append(by_topic[subscribers[giver]][topic].pop())
        for number, change in ((giver, -1), (taker, 1)):
            load[subscribers[number]] += change
            heappush(heaviest, (-load[subscribers[number]], number))
            heappush(lightest, (load[subscribers[number]], number))
        moved = True
    return moved


def _by_topic(partitions: list[_Partition]) -> dict[bytes, list[int]]:
    topics: dict[bytes, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return topics


def _grouped(partitions: list[_Partition]) -> Assignment:
    return {topic: frozenset(indexes) for topic, indexes in _by_topic(partitions).items()}
