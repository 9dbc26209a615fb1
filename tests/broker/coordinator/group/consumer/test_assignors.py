"""The assignors: complete, within subscriptions, balanced, sticky."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm.broker.coordinator.group.consumer.assignors import ASSIGNORS, Assignment, MemberSpec, range_, uniform

TOPICS = [bytes([number]) * 16 for number in range(5)]
NAMES = [f"m{number}" for number in range(7)]

counts = st.fixed_dictionaries({topic: st.integers(0, 9) for topic in TOPICS})
subscriptions = st.frozensets(st.sampled_from(TOPICS))


def spec(topics: frozenset[bytes], current: Assignment | None = None, instance: str | None = None) -> MemberSpec:
    return MemberSpec(instance, topics, current or {})


def check_complete(members: dict[str, MemberSpec], partitions: dict[bytes, int], found: dict[str, Assignment]) -> None:
    """Check that each partition of a subscribed topic has one owner, a subscriber."""
    assert found.keys() == members.keys()
    given_out = [(topic, index) for part in found.values() for topic, indexes in part.items() for index in indexes]
    wanted = {topic for member in members.values() for topic in member.topics}
    assert sorted(given_out) == sorted((topic, index) for topic in wanted for index in range(partitions[topic]))
    assert all(topic in members[name].topics for name, part in found.items() for topic in part)


def load(assignment: Assignment) -> int:
    return sum(len(indexes) for indexes in assignment.values())


def moved(before: dict[str, Assignment], after: dict[str, Assignment]) -> int:
    """Partitions that were somebody's and are now another's."""
    return sum(
        len(indexes - after.get(name, {}).get(topic, frozenset()))
        for name, part in before.items()
        for topic, indexes in part.items()
    )


@given(counts, st.integers(1, 7), st.integers(1, 7))
def test_uniform_with_equal_subscriptions_is_even_and_moves_no_more_than_it_must(
    partitions: dict[bytes, int], size: int, next_size: int
) -> None:
    every = frozenset(TOPICS)
    first = uniform({name: spec(every) for name in NAMES[:size]}, partitions)
    check_complete({name: spec(every) for name in NAMES[:size]}, partitions, first)
    members = {name: spec(every, first.get(name)) for name in NAMES[:next_size]}
    second = uniform(members, partitions)
    check_complete(members, partitions, second)
    loads = [load(part) for part in second.values()]
    assert max(loads) - min(loads) <= 1
    total = sum(partitions.values())
    staying = {name: part for name, part in first.items() if name in members}
    if next_size >= size:  # those who came must get their share, and not one partition more moves
        assert moved(staying, second) == sum(load(second[name]) for name in NAMES[size:next_size])
    else:
        assert moved(staying, second) == 0
    assert uniform({name: spec(every, part) for name, part in second.items()}, partitions) == second
    assert sum(loads) == total


@given(counts, st.lists(subscriptions, min_size=1, max_size=7))
def test_uniform_with_other_subscriptions_cannot_be_made_more_even_by_one_move(
    partitions: dict[bytes, int], wishes: list[frozenset[bytes]]
) -> None:
    members = {NAMES[number]: spec(topics) for number, topics in enumerate(wishes)}
    found = uniform(members, partitions)
    check_complete(members, partitions, found)
    again = uniform({name: spec(members[name].topics, part) for name, part in found.items()}, partitions)
    assert moved(found, again) == 0
    for owner, part in found.items():
        for topic, indexes in part.items():
            for other, member in members.items():
                if indexes and topic in member.topics:
                    assert load(found[owner]) - load(found[other]) <= 1


def plainly(members: dict[str, MemberSpec], partitions: dict[bytes, int]) -> dict[str, set[tuple[bytes, int]]]:
    """The rule of `uniform` for unequal subscriptions, one look at everybody for each step."""
    subscribers = {
        topic: [name for name, member in members.items() if topic in member.topics]
        for topic in sorted({topic for member in members.values() for topic in member.topics})
    }
    owned: dict[str, list[tuple[bytes, int]]] = {name: [] for name in members}
    taken: set[tuple[bytes, int]] = set()
    for name, member in members.items():
        for topic in sorted(member.current):
            for index in sorted(member.current[topic]):
                if topic in member.topics and index < partitions[topic] and (topic, index) not in taken:
                    owned[name].append((topic, index))
                    taken.add((topic, index))
    order = sorted(subscribers, key=lambda topic: (len(subscribers[topic]), topic))
    for topic in order:
        for index in range(partitions[topic]):
            if (topic, index) not in taken:
                owned[min(subscribers[topic], key=lambda name: len(owned[name]))].append((topic, index))
    moved = True
    while moved:
        moved = False
        for topic in order:
            while givers := [name for name in subscribers[topic] if any(part[0] == topic for part in owned[name])]:
                most = max(givers, key=lambda name: len(owned[name]))
                least = min(subscribers[topic], key=lambda name: len(owned[name]))
                if len(owned[most]) - len(owned[least]) <= 1:
                    break
                last = max(number for number, part in enumerate(owned[most]) if part[0] == topic)
                owned[least].append(owned[most].pop(last))
                moved = True
    return {name: set(parts) for name, parts in owned.items()}


@given(counts, st.lists(st.tuples(subscriptions, subscriptions, st.integers(0, 9)), min_size=2, max_size=7))
def test_uniform_gives_what_a_look_at_everybody_for_each_step_gives(
    partitions: dict[bytes, int], wishes: list[tuple[frozenset[bytes], frozenset[bytes], int]]
) -> None:
    members = {
        NAMES[number]: spec(topics, {topic: frozenset(range(had % 3, had)) for topic in before})
        for number, (topics, before, had) in enumerate(wishes)
    }
    if len({member.topics for member in members.values()}) > 1:
        found = uniform(members, partitions)
        assert plainly(members, partitions) == {
            name: {(topic, index) for topic, indexes in part.items() for index in indexes}
            for name, part in found.items()
        }


@given(counts, st.lists(subscriptions, min_size=1, max_size=7))
def test_range_gives_runs_and_co_partitions(partitions: dict[bytes, int], wishes: list[frozenset[bytes]]) -> None:
    members = {NAMES[number]: spec(topics) for number, topics in enumerate(wishes)}
    found = range_(members, partitions)
    check_complete(members, partitions, found)
    for part in found.values():
        for indexes in part.values():
            assert sorted(indexes) == list(range(min(indexes), max(indexes) + 1))
    for one in TOPICS:
        for other in TOPICS:
            alike = all((one in member.topics) == (other in member.topics) for member in members.values())
            if alike and partitions[one] == partitions[other]:
                assert all(part.get(one) == part.get(other) for part in found.values())


def test_range_puts_static_members_first_by_their_instance() -> None:
    topic = TOPICS[0]
    members = {
        "a": spec(frozenset([topic])),
        "z": spec(frozenset([topic]), instance="i2"),
        "y": spec(frozenset([topic]), instance="i1"),
    }
    found = range_(members, {topic: 3})
    assert {name: sorted(part[topic]) for name, part in found.items()} == {"y": [0], "z": [1], "a": [2]}


def test_a_partition_that_two_had_is_kept_by_one() -> None:
    topic = TOPICS[0]
    both = spec(frozenset([topic]), {topic: frozenset([0, 1])})
    found = uniform({"a": both, "b": both}, {topic: 2})
    check_complete({"a": both, "b": both}, {topic: 2}, found)


def test_nobody_gets_nothing() -> None:
    assert all(assignor({}, {}) == {} for assignor in ASSIGNORS.values())
