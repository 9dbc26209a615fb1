"""A group that changes its protocol while it is used, and classic members in a consumer group."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.broker.coordinator.group.classic.classic_group import Client
from klamm.broker.coordinator.group.classic.classic_records import from_record
from klamm.broker.coordinator.group.consumer.sessions import JOIN, SYNC
from klamm.broker.coordinator.group.records import GroupRecord, decode, group_key
from klamm.broker.coordinator.group.subscription import (
    parse_assignment,
    parse_subscription,
    subscribed_topics,
    write_assignment,
)
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.heartbeat import HeartbeatRequest
from klamm.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from klamm.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from klamm.protocol.wire import Malformed
from tests.broker.coordinator.group.consumer.consumer_room import GROUP, ConsumerClient, Room, settle
from tests.broker.coordinator.group.group_room import Answer

E = ErrorCode
SESSION_MS, REBALANCE_MS = 10_000, 20_000


def subscription(names: Sequence[str], owned: Mapping[str, Sequence[int]], version: int = 1) -> bytes:
    out = struct.pack(">hi", version, len(names))
    out += b"".join(struct.pack(">h", len(name)) + name.encode() for name in names) + struct.pack(">i", -1)
    if version >= 1:
        out += write_assignment(0, owned)[2:-4]
    if version >= 2:
        out += struct.pack(">i", 7)
    return out + (struct.pack(">h", 2) + b"r1" if version >= 3 else b"")


class ClassicClient:
    """A cooperative classic consumer that does as the responses say."""

    def __init__(
        self, room: Room, names: Sequence[str], *, instance: str | None = None, protocol: str = "cooperative-sticky"
    ) -> None:
        self.room, self.names, self.instance, self.protocol = room, names, instance, protocol
        self.member_id = ""
        self.generation = -1
        self.owned: dict[str, list[int]] = {}
        self.joined: Answer | None = None
        self.leads = False

    def join(self) -> Answer:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=self.protocol, metadata=subscription(self.names, self.owned))],
        )
        self.joined = Answer()
        self.room.machine().join(request, Client("k", "/h", 9), self.joined, self.room.now)
        if not self.joined.waits and self.joined.code is E.MEMBER_ID_REQUIRED:
            self.member_id = self.joined.response.member_id
            return self.join()
        return self.joined

    def sync(self, everybody: Sequence[ClassicClient] = ()) -> ErrorCode:
        """Sync with the answer to JoinGroup; the leader of a classic group gives each member its former partitions."""
        assert self.joined is not None
        joined = self.joined.joined
        self.member_id, self.generation = joined.member_id, joined.generation_id
        given = [
            SyncGroupRequestAssignment(member_id=other.member_id, assignment=write_assignment(1, other.owned))
            for other in everybody
        ]
        answer = Answer()
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name=joined.protocol_name,
            assignments=given if joined.leader == self.member_id else [],
        )
        self.room.machine().sync(request, answer, self.room.now)
        if answer.code is E.NONE:
            self.owned = parse_assignment(answer.synced.assignment)
        return answer.code

    def heartbeat(self, generation: int | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        return ErrorCode(self.room.machine().heartbeat(request, self.room.now).error_code)

    def beat(self) -> ErrorCode:
        """One heartbeat, and what follows from it; what it must not have it gives up first."""
        code = self.heartbeat()
        if code is E.REBALANCE_IN_PROGRESS:
            held = self.room.group.members[self.member_id].assigned
            names = {one.topic_id: one.name for one in self.room.topics.values()}
            kept = {names[topic]: set(indexes) for topic, indexes in held.items()}
            self.owned = {
                name: [index for index in indexes if index in kept.get(name, ())]
                for name, indexes in self.owned.items()
            }
            if self.join().code is E.NONE:
                self.sync()
        return code

    def leave(self) -> ErrorCode:
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
        request = LeaveGroupRequest(group_id=GROUP, members=[identity])
        return ErrorCode(self.room.machine().leave(request, self.room.now).members[0].error_code)


def classic_group(room: Room, *owned: dict[str, list[int]], **options: Any) -> list[ClassicClient]:
    """A stable classic group, its members with these partitions."""
    clients = [ClassicClient(room, ["t"], **options) for _ in owned]
    for client in clients:
        client.join()
    room.pass_time(1)
    for client, part in zip(clients, owned, strict=True):
        assert client.joined is not None
        client.member_id, client.owned = client.joined.joined.member_id, part
    leader = next(client for client in clients if client.member_id == room.classic.groups[GROUP].leader)
    assert leader.sync(clients) is E.NONE
    for client in clients:
        if client is not leader:
            assert client.sync() is E.NONE
    assert room.classic.groups[GROUP].state.value == "Stable"
    return clients


def settle_all(*clients: ClassicClient | ConsumerClient, rounds: int = 8) -> None:
    for _ in range(rounds):
        for client in clients:
            client.beat()


def stored_classic(room: Room) -> GroupRecord:
    record = decode(group_key(GROUP), room.log[group_key(GROUP)])
    assert isinstance(record, GroupRecord)
    return record


def test_the_first_member_of_the_consumer_protocol_takes_its_group_along() -> None:
    room = Room({"t": 6})
    one, two = classic_group(room, {"t": [0, 1, 2]}, {"t": [3, 4, 5]})
    generation = room.classic.groups[GROUP].generation_id
    c = ConsumerClient(room, "c", ["t"])
    assert c.beat() is E.NONE
    assert GROUP not in room.classic.groups and stored_classic(room).value is None
    assert room.group.epoch == generation + 1
    assert one.heartbeat() is E.REBALANCE_IN_PROGRESS
    settle_all(one, two, c)
    assert [len(client.owned["t"]) for client in (one, two, c)] == [2, 2, 2]
    assert sorted(index for client in (one, two, c) for index in client.owned["t"]) == list(range(6))
    assert set(one.owned["t"]) < {0, 1, 2} and set(two.owned["t"]) < {3, 4, 5}
    assert room.state == "Stable" and one.heartbeat() is E.NONE
    back = room.read_back()
    assert back is not None and back.members == room.group.members


def test_a_classic_member_that_was_only_given_its_id_is_not_in_the_way() -> None:
    room = Room({"t": 6})
    one = ClassicClient(room, ["t"])
    given = Answer()
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=one.protocol, metadata=subscription(["t"], {}))],
    )
    room.machine().join(request, Client("k", "/h", 9), given, room.now)
    assert given.code is E.MEMBER_ID_REQUIRED
    c = ConsumerClient(room, "c", ["t"])
    assert c.beat() is E.NONE  # not GROUP_ID_NOT_FOUND, which ends the client
    one.member_id = given.response.member_id
    assert one.join().code is E.NONE and one.sync() is E.NONE
    settle_all(one, c)
    assert sorted(one.owned["t"] + c.owned["t"]) == list(range(6)) and len(one.owned["t"]) == 3


def test_when_the_last_one_has_left_it_is_a_classic_group_again() -> None:
    room = Room({"t": 6})
    one, two = classic_group(room, {"t": [0, 1, 2]}, {"t": [3, 4, 5]})
    c = ConsumerClient(room, "c", ["t"])
    settle_all(c, one, two)
    epoch = room.group.epoch
    room.ask("c", -1)
    assert GROUP not in room.consumers.groups and room.read_back() is None
    group = room.classic.groups[GROUP]
    assert (group.state.value, group.generation_id, set(group.members)) == (
        "PreparingRebalance",
        epoch,
        {one.member_id, two.member_id},
    )
    assert one.heartbeat() is E.REBALANCE_IN_PROGRESS
    one.join()
    two.join()
    value = stored_classic(room).value
    assert value is not None
    loaded = from_record(GROUP, value)
    assert [parse_assignment(member.assignment) for member in loaded.members.values()] == [one.owned, two.owned]
    assert group.state.value == "CompletingRebalance" and group.generation_id == epoch + 1


def test_a_fenced_member_can_be_the_last_one() -> None:
    room = Room({"t": 6})
    (one,) = classic_group(room, {"t": [0, 1, 2, 3, 4, 5]})
    c = ConsumerClient(room, "c", ["t"])
    settle_all(c, one)
    for _ in range(10):
        room.pass_time(SESSION_MS // 2)
        if GROUP in room.consumers.groups:
            one.beat()
    assert GROUP in room.classic.groups and set(room.classic.groups[GROUP].members) <= {one.member_id}


@pytest.mark.parametrize(("policy", "up", "down"), [("disabled", 0, 0), ("upgrade", 1, 0), ("downgrade", 0, 1)])
def test_the_policy_is_kept(policy: str, up: bool, down: bool) -> None:
    room = Room({"t": 6})
    room.limit(migration=policy)
    (one,) = classic_group(room, {"t": [0, 1, 2, 3, 4, 5]})
    assert room.code("c", 0, ["t"]) is (E.NONE if up else E.GROUP_ID_NOT_FOUND)
    assert (GROUP in room.consumers.groups) == up
    room.limit(migration="bidirectional")
    c = ConsumerClient(room, "c", ["t"])
    settle_all(c, one)
    room.limit(migration=policy)
    room.ask("c", -1)
    assert (GROUP in room.classic.groups) == down


@pytest.mark.parametrize("options", [{"protocol_type": "connect"}, {"metadata": b"junk"}])
def test_a_group_that_is_not_understood_stays_classic(options: dict[str, Any]) -> None:
    room = Room({"t": 6})
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        group_instance_id="i",
        protocol_type=options.get("protocol_type", "consumer"),
        protocols=[JoinGroupRequestProtocol(name="range", metadata=options.get("metadata", subscription(["t"], {})))],
    )
    room.classic.join(request, Client("k", "/h", 9), Answer(), room.now)
    room.pass_time(1)
    assert room.code("c", 0, ["t"]) is E.GROUP_ID_NOT_FOUND
    assert GROUP in room.classic.groups and GROUP not in room.consumers.groups


def test_an_empty_classic_group_gives_way() -> None:
    room = Room({"t": 6})
    (one,) = classic_group(room, {"t": [0]})
    one.leave()
    room.pass_time(1)
    assert room.named(room.ask("c", 0, ["t"])) == {"t": [0, 1, 2, 3, 4, 5]}
    assert stored_classic(room).value is None


def test_what_classic_members_of_a_consumer_group_are_refused() -> None:
    room = Room({"t": 6})
    c = ConsumerClient(room, "c", ["t"])
    c.beat()
    one = ClassicClient(room, ["t"])
    assert one.join().code is E.NONE
    one.sync()
    settle_all(c, one)
    assert one.heartbeat(one.generation + 1) is E.ILLEGAL_GENERATION
    assert ClassicClient(room, ["t"], protocol="range").join().code is E.INCONSISTENT_GROUP_PROTOCOL
    stranger = ClassicClient(room, ["t"])
    stranger.member_id = "c"  # speaks the other protocol
    assert stranger.heartbeat(c.epoch) is E.UNKNOWN_MEMBER_ID
    room.limit(max_size=2)
    assert ClassicClient(room, ["t"]).join().code is E.GROUP_MAX_SIZE_REACHED
    assert one.leave() is E.NONE
    assert one.heartbeat() is E.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_does_not_sync_or_join_in_time_is_fenced() -> None:
    room = Room({"t": 6})
    c = ConsumerClient(room, "c", ["t"])
    c.beat()
    one = ClassicClient(room, ["t"])
    one.join()
    assert (SYNC, GROUP, one.member_id) in room.timers
    for _ in range(4):
        room.pass_time(REBALANCE_MS // 4)
        c.beat()
        if one.member_id in room.group.members:
            one.heartbeat(room.group.members[one.member_id].epoch)
    assert list(room.group.members) == ["c"]
    two = ClassicClient(room, ["t"])
    two.join()
    two.sync()
    settle_all(c, two)
    room.change("t", 8)
    assert two.heartbeat() is E.REBALANCE_IN_PROGRESS
    assert (JOIN, GROUP, two.member_id) in room.timers
    for _ in range(5):
        room.pass_time(REBALANCE_MS // 4)
        c.beat()
        two.heartbeat()
    assert list(room.group.members) == ["c"]


def test_a_static_member_that_restarts_with_the_consumer_protocol_has_what_it_had() -> None:
    """The member does not say that it leaves, and must not wait until its former self expires."""
    room = Room({"t": 6})
    (one,) = classic_group(room, {"t": list(range(6))}, instance="i")
    c = ConsumerClient(room, "c", ["t"], instance_id="i")
    assert c.beat() is E.NONE and c.owned == {"t": list(range(6))}
    assert set(room.group.members) == {"c"} and room.group.static_members == {"i": "c"}
    assert one.heartbeat() is E.FENCED_INSTANCE_ID
    assert {key[2] for key in room.timers._deadlines} == {"c"}
    back = room.read_back()
    assert back is not None and back.members == room.group.members and back.target == room.group.target


def test_a_static_member_changes_its_protocol_and_moves_nothing() -> None:
    room = Room({"t": 6})
    one, two = classic_group(room, {"t": [0, 1, 2]}, {"t": [3, 4, 5]})
    room.ask("x", 0, ["t"], instance_id="i")
    settle_all(one, two, ConsumerClient(room, "x", ["t"], instance_id="i"))
    before = {name: member.held() for name, member in room.group.members.items()}
    static = ClassicClient(room, ["t"], instance="i")
    assert static.join().code is E.NONE
    group = room.classic.groups.get(GROUP)  # no member of the consumer protocol is left
    assert group is not None and static.joined is not None
    assert set(group.members) == {one.member_id, two.member_id, static.joined.response.member_id}
    assert before["x"]


@given(
    st.lists(st.text(min_size=1, max_size=5).filter(str.isprintable), max_size=3, unique=True),
    st.dictionaries(st.sampled_from(["t", "u"]), st.lists(st.integers(0, 9), unique=True), max_size=2),
    st.integers(0, 3),
)
def test_subscriptions_are_read_back(names: list[str], owned: dict[str, list[int]], version: int) -> None:
    try:
        data = struct.pack(">hi", version, len(names))
        data += b"".join(struct.pack(">h", len(name.encode())) + name.encode() for name in names)
    except UnicodeEncodeError:
        return
    data += subscription([], owned, version)[6:]
    found = parse_subscription(data)
    assert found.topics == set(names) == subscribed_topics(data)
    assert found.owned == ({name: sorted(part) for name, part in owned.items()} if version else {})
    assert found.rack_id == ("r1" if version == 3 else None)
    for size in range(len(data)):
        try:
            parse_subscription(data[:size])
        except Malformed:
            continue
        assert version >= 1 and size >= 10  # KIP-429: added partitions may be missing


@given(st.binary(max_size=60))
def test_junk_is_malformed_or_read(data: bytes) -> None:
    for parse in (parse_subscription, parse_assignment):
        with contextlib.suppress(Malformed):
            parse(data)


def test_assignments_are_kafkas() -> None:
    data = write_assignment(1, {"t": [1, 0]})
    assert data == bytes.fromhex("0001 00000001 0001 74 00000002 00000000 00000001 ffffffff".replace(" ", ""))
    assert parse_assignment(data) == {"t": [0, 1]}


def test_settled_groups_are_quiet() -> None:
    room = Room({"t": 6})
    c = ConsumerClient(room, "c", ["t"])
    one = ClassicClient(room, ["t"])
    c.beat()
    one.join()
    one.sync()
    settle_all(c, one)
    before = room.appended
    settle(c)
    assert one.beat() is E.NONE and room.appended == before
