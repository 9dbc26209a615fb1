"""What coordinators do about many groups, offsets and partitions leaves the loop to others; counted in turns."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.broker import turns
from klamm.broker.controller.topics import TopicKey
from klamm.broker.coordinator.group.consumer import target_assignment_builder
from klamm.broker.coordinator.group.consumer.assignors import uniform
from klamm.broker.coordinator.group.coordinator import GroupCoordinator
from klamm.broker.coordinator.group.loader import Replay
from klamm.broker.coordinator.group.offsets import CommittedOffset
from klamm.broker.coordinator.group.pending_transactional_offsets import PendingTransactionalOffsets
from klamm.broker.coordinator.group.removals import PIECE, Removals
from klamm.broker.coordinator.transaction.transaction import Markers
from klamm.broker.partitions.partition import Partition
from klamm.broker.turns import MOST
from klamm.protocol.errors import CoordinatorLoadInProgress
from klamm.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.support.embedded import NOW_MS, EmbeddedBroker

DAYS_8_MS = 8 * 24 * 3600 * 1000


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedBroker]:
    monkeypatch.setattr(turns, "TURN_S", float("inf"))
    config = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    with EmbeddedBroker(tmp_path, config) as made:
        for topic in (made.broker.groups.topic, made.broker.transactions.topic):
            made.run(topic.find())
            made.run(topic.loaded())
        yield made


def turns_beside(broker: EmbeddedBroker, work: Coroutine[Any, Any, object]) -> int:
    """How often others had a turn until the work was done."""

    async def main() -> int:
        task = asyncio.ensure_future(work)
        count = 0
        while not task.done():
            await asyncio.sleep(0)
            count += 1
        await task
        return count

    count: int = broker.run(main())
    return count


def most_in_a_turn(broker: EmbeddedBroker, owner: type, name: str, work: Coroutine[Any, Any, object]) -> int:
    """How often a method was called between two turns of others, at most."""
    counts = [0]
    method = getattr(owner, name)

    def counted(*arguments: Any, **options: Any) -> Any:
        counts[-1] += 1
        return method(*arguments, **options)

    async def main() -> None:
        task = asyncio.ensure_future(work)
        while not task.done():
            counts.append(0)
            await asyncio.sleep(0)
        await task

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, counted)
        broker.run(main())
    return max(counts)


def fill(groups: GroupCoordinator, group_count: int, offset_count: int, topic: str = "t") -> None:
    for number in range(group_count):
        for index in range(offset_count):
            groups.offsets.put(f"g{number}", topic, index, CommittedOffset(5, commit_timestamp_ms=NOW_MS))
        groups.classic.simple(f"g{number}", NOW_MS)


def test_expiry_of_many_groups_leaves_turns(broker: EmbeddedBroker) -> None:
    groups = broker.broker.groups
    fill(groups, 5 * MOST, 1)
    broker.clock.advance(DAYS_8_MS)
    assert turns_beside(broker, groups.expiry.expire()) >= 5
    assert len(groups.offsets) == 0
    assert groups.expiry.expired_count == 5 * MOST
    assert list(groups.groups) == []


def test_expiry_of_one_group_with_many_offsets_leaves_turns(broker: EmbeddedBroker) -> None:
    groups = broker.broker.groups
    fill(groups, 1, 4 * PIECE + 1)
    broker.clock.advance(DAYS_8_MS)
    assert turns_beside(broker, groups.expiry.expire()) >= 4
    assert len(groups.offsets) == 0
    assert list(groups.groups) == []


def test_an_offset_that_is_committed_while_others_expire_stays(broker: EmbeddedBroker) -> None:
    broker.create_topic("t", partitions=1)
    groups = broker.broker.groups
    fill(groups, 1, 3 * PIECE)
    broker.clock.advance(DAYS_8_MS)
    late = 3 * PIECE - 1

    async def commit() -> None:
        fresh = CommittedOffset(9, commit_timestamp_ms=broker.clock.wall_ms())
        groups.offsets.put("g0", "t", late, fresh)

    async def main() -> None:
        await asyncio.gather(groups.expiry.expire(), commit())

    broker.run(main())
    assert list(groups.offsets.of("g0").get("t", {})) == [late]
    assert [group.group_id for group in groups.groups] == ["g0"]


def test_the_offsets_of_deleted_topics_go_in_turns_a_batch_for_each_group(broker: EmbeddedBroker) -> None:
    groups = broker.broker.groups
    for name in ("t", "u"):
        broker.create_topic(name)
        fill(groups, 3 * MOST, 1, name)
    groups.pending.add(0, 7, ("g0", "t", 3), CommittedOffset(1))
    partition = broker.broker.partitions.get_partition("__consumer_offsets", 0)
    assert partition is not None and partition.log is not None
    before = partition.log.log_end_offset
    work = broker.broker.controller.delete_topics([TopicKey("t"), TopicKey("u")])
    assert most_in_a_turn(broker, Removals, "remove", work) <= MOST
    assert len(groups.offsets) == 0
    assert not groups.pending.is_pending(("g0", "t", 3))
    assert partition.log.log_end_offset - before == 2 * 3 * MOST + 1


def test_no_group_is_answered_for_before_all_of_its_partition_is_taken(broker: EmbeddedBroker) -> None:
    groups = broker.broker.groups
    broker.create_topic("t")
    replay = Replay("__consumer_offsets-0", 0, 1 << 20)
    for number in range(4 * PIECE):
        replay.offsets["g", "t", number] = CommittedOffset(5, commit_timestamp_ms=NOW_MS)
    partition = broker.broker.partitions.get_partition("__consumer_offsets", 0)
    assert partition is not None
    groups.commits.commit("other", [("t", 0, CommittedOffset(1))])  # so that there is something to read

    async def read(_: object) -> Replay:
        return replay

    groups.topic._read = read  # type: ignore[method-assign]
    half: list[int] = []

    async def look() -> None:
        while not groups.topic.is_loaded(0):
            with pytest.raises(CoordinatorLoadInProgress):
                groups.check("g")
            half.append(len(groups.offsets))
            groups.commits.transaction_ended(0, 7, 0, commit=True)
            await asyncio.sleep(0)

    async def main() -> None:
        groups.runtime.read_again("g")
        await asyncio.gather(groups.topic.loaded(), look())

    broker.run(main())
    assert {PIECE, 2 * PIECE, 3 * PIECE} <= set(half)
    assert len(groups.offsets) == 4 * PIECE
    groups.check("g")


def test_markers_to_many_partitions_leave_turns(broker: EmbeddedBroker) -> None:
    broker.create_topic("t", partitions=2 * MOST + 1)
    transactions = broker.broker.transactions
    partitions = frozenset(("t", index) for index in range(2 * MOST + 1))
    outcomes: list[frozenset[tuple[str, int]]] = []

    async def write() -> None:
        written = asyncio.Event()

        def done(unmarked: frozenset[tuple[str, int]], now: object) -> None:
            outcomes.append(unmarked)
            written.set()

        markers = Markers("x", 5, 0, commit=True, version=2, partitions=partitions)
        transactions.write_markers(markers, done, transactions.now())
        await written.wait()

    assert most_in_a_turn(broker, Partition, "append_marker", write()) == MOST
    assert outcomes == [frozenset()]
    logs = [partition.log for partition in broker.broker.partitions if partition.topic == "t"]
    assert all(log is not None and log.log_end_offset == 1 for log in logs)


def test_a_transaction_with_many_offsets_is_decided_in_turns(broker: EmbeddedBroker) -> None:
    broker.create_topic("t")
    groups = broker.broker.groups
    last = ("g", "t", 3 * PIECE)
    for index in range(3 * PIECE + 1):
        groups.pending.add(0, 7, ("g", "t", index), CommittedOffset(1))

    async def end() -> list[tuple[int, bool]]:
        seen = []
        groups.commits.transaction_ended(0, 7, 0, commit=True)
        groups.pending.add(0, 7, ("g", "t", 0), CommittedOffset(2))  # the next transaction of this producer
        while groups.pending.is_pending(last):
            seen.append((len(groups.offsets), groups.pending.is_pending(("g", "t", 1))))
            await asyncio.sleep(0)
        return seen

    seen = broker.run(end())
    assert {(PIECE, False), (2 * PIECE, False), (3 * PIECE, False)} <= set(seen)
    assert len(groups.offsets) == 3 * PIECE + 1
    assert groups.offsets.get("g", "t", 0) == CommittedOffset(1)
    groups.commits.transaction_ended(0, 7, 0, commit=True)
    assert groups.offsets.get("g", "t", 0) == CommittedOffset(2)
    assert len(groups.pending) == 0


def test_what_is_read_again_is_decided_by_the_log(broker: EmbeddedBroker) -> None:
    groups = broker.broker.groups
    for index in range(3 * PIECE):
        groups.pending.add(0, 7, ("g", "t", index), CommittedOffset(1))

    async def end() -> None:
        groups.commits.transaction_ended(0, 7, 0, commit=True)
        groups.runtime.read_again("g")
        for _ in range(10):
            await asyncio.sleep(0)

    broker.run(end())
    assert len(groups.offsets) == 0
    assert not groups.pending.is_pending(("g", "t", 0))


def test_the_target_of_a_large_group_is_computed_in_a_thread(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("t", partitions=4)

    def beat(member_id: str, epoch: int = 0) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=member_id, member_epoch=epoch, rebalance_timeout_ms=1000,
            subscribed_topic_names=["t"], topic_partitions=[],
        )  # fmt: skip
        return broker.call(request, 1)

    first = beat("a")
    assert len(first.assignment.topic_partitions[0].partitions) == 4
    broker.clock.advance(10_000)
    may_go, threads = threading.Event(), []

    def assign(*arguments: Any) -> Any:
        threads.append(threading.current_thread())
        assert may_go.wait(30)
        return uniform(*arguments)

    monkeypatch.setattr(target_assignment_builder, "SMALL", 0)
    monkeypatch.setitem(target_assignment_builder.ASSIGNORS, "uniform", assign)
    assert beat("b").assignment.topic_partitions == []
    assert beat("a", first.member_epoch).error_code == 0  # the assignor is at work, and the loop is free
    assert len(threads) == 1 and threads[0] is not threading.current_thread()
    may_go.set()
    groups = broker.broker.groups.consumers.groups
    while groups["g"].computing is not None:
        broker.run(asyncio.sleep(0.001))
    group = groups["g"]
    assert {name: sum(map(len, part.values())) for name, part in group.target.items()} == {"a": 2, "b": 2}
    assert group.assignment_epoch == group.epoch


def test_pending_offsets_of_a_group_are_those_that_a_look_at_all_finds() -> None:
    seed = random.randrange(1 << 30)
    print(f"seed={seed}")
    dice = random.Random(seed)
    pending = PendingTransactionalOffsets()
    model: dict[tuple[int, int], set[tuple[str, str, int]]] = {}
    for _ in range(2000):
        key = (f"g{dice.randrange(3)}", f"t{dice.randrange(2)}", dice.randrange(3))
        transaction = (dice.randrange(2), dice.randrange(3))
        step = dice.randrange(5)
        if step < 3:
            pending.add(*transaction, key, CommittedOffset(1))
            model.setdefault(transaction, set()).add(key)
        elif step == 3:
            pending.end(*transaction, commit=bool(dice.randrange(2)))
            model.pop(transaction, None)
        else:
            pending.drop(key)
            for keys in model.values():
                keys.discard(key)
        held = {key for keys in model.values() for key in keys}
        for group in ("g0", "g1", "g2"):
            assert set(pending.of(group)) == {key[1:] for key in held if key[0] == group}
        assert set(pending.groups()) == {key[0] for key in held}
