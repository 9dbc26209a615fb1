"""Transactions through a whole broker: what their APIs do together, over restarts, and where every append waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

from klamm.broker.metrics.exposition import Exposition
from klamm.broker.partitions.partition import Partition
from klamm.protocol.errors import ErrorCode, KafkaStorageError
from klamm.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from klamm.protocol.messages.delete_groups import DeleteGroupsRequest
from klamm.protocol.messages.delete_topics import DeleteTopicsRequest
from klamm.protocol.messages.find_coordinator import FindCoordinatorRequest
from klamm.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.support.embedded import EmbeddedBroker
from tests.support.transactions import READ_COMMITTED, TOPIC, Client, codes

DAY_MS = 86_400_000
WAITING = {"flush.messages": 1}
Identity = tuple[int, int]


class Room:
    """A broker, and a client of it."""

    def __init__(self, path: Path, topic: dict[str, object] | None = None) -> None:
        self.broker = EmbeddedBroker(path, {"klamm.acks.fsync": "true"} if topic else None)
        self.topic = topic
        self.client = Client(self, self.broker.clock.wall_ms)

    def __enter__(self) -> Self:
        self.broker.__enter__()
        if TOPIC not in self.broker.broker.image.topics:
            self.broker.create_topic(TOPIC, partitions=2, config=self.topic or {})
        for kind in (0, 1):
            self.request(FindCoordinatorRequest(key_type=kind, coordinator_keys=["x"]), 4)
        self.broker.run(self.broker.broker.groups.topic.loaded())
        self.broker.run(self.broker.broker.transactions.topic.loaded())
        return self

    def __exit__(self, *what: object) -> None:
        self.broker.__exit__(*what)

    def request(self, request: Any, version: int) -> Any:
        return self.broker.call(request, version)

    def crash(self) -> None:
        self.broker.crash()

    async def scrape(self) -> str:
        """What a scrape gets."""
        return b"".join([piece async for piece in Exposition(self.broker.broker.metrics).render()]).decode()

    async def ticked(self) -> None:
        """Do the work that is due."""
        self.broker.broker.transactions.runtime.timer.tick()

    def aborted(self) -> list[int]:
        """First offsets of the aborted transactions in a response to a reader of partition 0."""
        return [found.first_offset for found in self.client.fetch(READ_COMMITTED).aborted_transactions]


@pytest.fixture(params=[None, WAITING], ids=["at once", "after a flush"])
def room(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Room]:
    with Room(tmp_path, request.param) as made:
        yield made


def go_on(client: Client, name: str, identity: Identity, *, commit: bool) -> Identity:
    """One transaction of version 2 in partition 0; return the producer's identity after it."""
    assert codes(client.produce(name, identity, 12)) == {0}
    ended = client.end(name, identity, 5, commit=commit)
    assert ended.error_code == 0
    return ended.producer_id, ended.producer_epoch


@pytest.mark.parametrize("version", [1, 2])
def test_open_transactions_are_hidden_and_aborted_ones_are_listed(room: Room, version: int) -> None:
    client = room.client
    add, produce, end = (3, 11, 4) if version == 1 else (None, 12, 5)
    identity = client.started("x", 4)
    if add is not None:
        assert codes(client.add("x", identity, add, 0)) == {0}
    assert codes(client.produce("x", identity, produce)) == {0}
    assert client.ends() == (1, 0)
    assert client.end("x", identity, end, commit=False).error_code == 0
    client.stable()
    assert client.ends() == (2, 2)
    assert room.aborted() == [0]


def test_each_transaction_of_version_2_has_an_epoch_of_its_own(room: Room) -> None:
    client = room.client
    identity = client.started("x", 5)
    for expected, commit in enumerate((True, False, True), start=1):
        before = identity
        identity = go_on(client, "x", identity, commit=commit)
        assert identity == (before[0], expected)
        client.stable()
        assert codes(client.produce("x", before, 12, sequence=1)) == {ErrorCode.INVALID_PRODUCER_EPOCH}
    assert room.aborted() == [2]


def test_offsets_count_with_the_transaction_and_not_before(room: Room) -> None:
    client = room.client
    identity = client.started("x", 5)
    assert codes(client.commit_offsets("x", identity, 5, "g", 7)) == {0}
    assert codes(client.offsets("g", stable=True)) == {0, ErrorCode.UNSTABLE_OFFSET_COMMIT}
    assert client.offsets("g", stable=False).groups[0].topics[0].partitions[0].committed_offset == -1
    ended = client.end("x", identity, 5, commit=True)
    assert client.stable_offsets("g").groups[0].topics[0].partitions[0].committed_offset == 7
    identity = ended.producer_id, ended.producer_epoch
    client.commit_offsets("x", identity, 5, "g", 9)
    client.end("x", identity, 5, commit=False)
    assert client.stable_offsets("g").groups[0].topics[0].partitions[0].committed_offset == 7


def test_a_member_of_a_consumer_group_with_another_epoch_commits_nothing(room: Room) -> None:
    joining = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    epoch = room.request(joining, 1).member_epoch
    client = room.client
    identity = client.started("x", 5)

    def commit(version: int, epoch: int) -> set[int]:
        member = {"member_id": "m", "generation_id_or_member_epoch": epoch}
        return codes(client.commit_offsets("x", identity, version, "g", 7, **member))

    assert commit(5, epoch) == {0}
    for version in (3, 5):  # what producers have always understood
        assert commit(version, epoch - 1) == commit(version, epoch + 1) == {ErrorCode.ILLEGAL_GENERATION}


def test_an_offset_that_is_deleted_does_not_come_back_with_its_transaction(room: Room) -> None:
    client = room.client
    identity = client.started("x", 5)
    assert codes(client.commit_offsets("x", identity, 5, "g", 7)) == {0}
    rows = [OffsetDeleteRequestPartition(partition_index=0)]
    request = OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name=TOPIC, partitions=rows)])
    assert codes(room.request(request, 0)) == {0}
    client.end("x", identity, 5, commit=True)
    assert client.stable_offsets("g").groups[0].topics[0].partitions[0].committed_offset == -1


@pytest.mark.parametrize("version", [3, 5])
def test_offsets_of_nobody_s_transaction_are_refused(room: Room, version: int) -> None:
    client = room.client
    producer_id, epoch = client.started("x", 5)
    for identity in ((producer_id, -1), (producer_id, epoch + 1), (producer_id + 1, -1)):
        assert 0 not in codes(client.commit_offsets("x", identity, version, "g", 7)), identity
    assert codes(client.offsets("g", stable=True)) == {0}


def test_a_group_that_is_deleted_does_not_come_back_with_a_transaction(room: Room) -> None:
    client = room.client
    identity = client.started("x", 5)
    assert codes(client.commit_offsets("x", identity, 5, "g", 7)) == {0}
    assert codes(room.request(DeleteGroupsRequest(groups_names=["g"]), 2)) == {0}
    assert codes(client.offsets("g", stable=True)) == {0}  # nobody waits for the outcome
    client.end("x", identity, 5, commit=True)
    assert client.stable_offsets("g").groups[0].topics[0].partitions[0].committed_offset == -1
    assert room.broker.broker.groups.groups.get("g") is None


@pytest.mark.parametrize("crash", [False, True], ids=["restart", "crash"])
def test_everything_is_as_before_after_a_restart(tmp_path: Path, crash: bool) -> None:
    room = Room(tmp_path).__enter__()
    client = room.client
    done, opened = client.started("done", 5), client.started("open", 5)
    done = go_on(client, "done", done, commit=False)
    assert codes(client.produce("open", opened, 12)) == {0}
    assert codes(client.commit_offsets("open", opened, 5, "g", 3)) == {0}
    assert codes(client.commit_offsets("done", done, 5, "h", 4)) == {0}
    ended = client.end("done", done, 5, commit=True)
    done = ended.producer_id, ended.producer_epoch
    if crash:
        room.crash()
    else:
        room.__exit__()
    with Room(tmp_path) as room:
        client = room.client
        assert client.ends() == (3, 2)
        assert room.aborted() == [0]
        assert codes(client.offsets("g", stable=True)) == {0, ErrorCode.UNSTABLE_OFFSET_COMMIT}
        assert client.stable_offsets("h").groups[0].topics[0].partitions[0].committed_offset == 4
        assert codes(client.produce("open", opened, 12, sequence=1)) == {0}
        assert client.end("open", opened, 5, commit=True).error_code == 0
        client.stable()
        assert client.ends() == (5, 5)
        assert client.stable_offsets("g").groups[0].topics[0].partitions[0].committed_offset == 3
        go_on(client, "done", done, commit=True)


def test_what_was_decided_is_completed_by_the_next_start(tmp_path: Path) -> None:
    room = Room(tmp_path).__enter__()
    client = room.client
    identity = client.started("x", 5)
    client.produce("x", identity, 12)
    client.commit_offsets("x", identity, 5, "g", 3)
    writer = room.broker.broker.transactions.markers
    writer.write = lambda *_: None  # type: ignore[method-assign,assignment]  # the crash comes before the markers
    assert client.end("x", identity, 5, commit=True).error_code == 0
    assert client.describe("x").transaction_states[0].transaction_state == "PrepareCommit"
    room.crash()
    with Room(tmp_path) as room:
        client = room.client
        client.stable()
        assert client.ends() == (2, 2)
        assert room.aborted() == []
        assert client.stable_offsets("g").groups[0].topics[0].partitions[0].committed_offset == 3
        assert client.complete("x") == "CompleteCommit"


def test_nothing_gets_in_before_a_marker_that_is_late(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut may take the marker, but not the decision that the client has got."""
    client = room.client
    with monkeypatch.context() as patched:

        def refused(*_: object, **__: object) -> None:
            raise KafkaStorageError("not now")

        patched.setattr(Partition, "append_marker", refused)
        identity = go_on(client, "x", client.started("x", 5), commit=True)
        assert codes(client.produce("x", identity, 12)) == {ErrorCode.CONCURRENT_TRANSACTIONS}
    assert client.ends() == (1, 0)
    room.broker.clock.advance(1000)
    room.broker.run(room.ticked())
    client.stable()
    assert client.ends() == (2, 2)
    go_on(client, "x", identity, commit=True)
    client.stable()
    assert client.ends() == (4, 4)


def test_a_transaction_that_takes_too_long_is_aborted(room: Room) -> None:
    client = room.client
    answer = client.init("x", 5, timeout_ms=1000)
    identity = answer.producer_id, answer.producer_epoch
    client.produce("x", identity, 12)
    room.broker.clock.advance(1001)
    room.broker.run(room.ticked())
    client.stable()
    assert room.aborted() == [0]
    assert client.end("x", identity, 5, commit=True).error_code == ErrorCode.INVALID_TXN_STATE
    text = room.broker.run(room.scrape())
    assert "klamm_transactions_aborted_total 1" in text and "klamm_transactions_timed_out_total 1" in text
    assert 'klamm_transactional_ids{state="CompleteAbort"} 1' in text and "klamm_late_transactions 0" in text


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("epoch", [32765, 32766, 32767])
@pytest.mark.parametrize("how", ["end", "time", "init"])
def test_a_transaction_in_one_of_the_last_epochs_is_over_in_the_end(
    room: Room, how: str, epoch: int, version: int
) -> None:
    client, transactions = room.client, room.broker.broker.transactions
    first, _ = client.started("x", version)
    current = transactions.state_machine.get("x")
    assert current is not None
    transactions.state_machine.take(replace(current, producer_epoch=epoch), transactions.now())
    identity = (first, epoch)
    if version == 4:
        client.add("x", identity, 3, 0)
    assert codes(client.produce("x", identity, 11 if version == 4 else 12)) == {0}
    if how == "end":
        assert client.end("x", identity, version, commit=True).error_code == 0
    elif how == "time":
        room.broker.clock.advance(60_001)
        room.broker.run(room.ticked())
    following = client.started("x", version)
    client.stable()
    assert room.aborted() == ([] if how == "end" else [0])
    assert (following[0] == first) == (following[1] > 2)
    go_on(client, "x", following, commit=True)


def test_a_clock_that_jumps_ahead_expires_no_transactional_id_for_an_hour(tmp_path: Path) -> None:
    with Room(tmp_path) as room:
        first = room.client.init("x", 5).producer_id
        room.broker.clock.jump_wall(8 * DAY_MS)
        transactions = room.broker.broker.transactions

        async def look() -> None:
            transactions.expire(transactions.now())

        room.broker.run(look())
        assert room.client.init("x", 5).producer_id == first
        room.broker.clock.jump_wall(8 * DAY_MS)
        for _ in range(2):
            room.broker.run(look())
            room.broker.clock.advance(3_600_000)
        room.broker.run(room.broker.broker.flusher.drain())
        assert room.client.init("x", 5).producer_id != first


def test_a_deleted_topic_does_not_keep_a_transaction_from_its_end(room: Room) -> None:
    client = room.client
    identity = client.started("x", 5)
    client.produce("x", identity, 12)
    assert codes(room.request(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=1000), 5)) == {0}
    assert client.end("x", identity, 5, commit=True).error_code == 0
    assert client.complete("x") == "CompleteCommit"
