"""Consumer groups (KIP-848) as a state machine, with the clock moved by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from klamm.broker.coordinator.group.consumer import reconciler, regexes, target_assignment_builder
from klamm.broker.coordinator.group.consumer.consumer_checks import check_commit, check_fetch
from klamm.broker.coordinator.group.consumer.consumer_member import MemberState
from klamm.protocol.errors import ErrorCode, KafkaError
from tests.broker.coordinator.group.consumer.consumer_room import (
    GROUP,
    REVOKE_MS,
    SESSION_MS,
    ConsumerClient,
    Room,
    settle,
)

E = ErrorCode


def test_the_first_member_gets_everything() -> None:
    room = Room({"t": 3, "u": 2})
    response = room.ask("a", 0, ["t", "u", "none"])
    assert (response.error_code, response.member_epoch, response.heartbeat_interval_ms) == (0, 2, 5_000)
    assert room.named(response) == {"t": [0, 1, 2], "u": [0, 1]}
    assert (room.state, room.group.epoch, room.group.assignment_epoch) == ("Stable", 2, 2)
    assert room.named(room.ask("a", 2)) is None


def test_a_partition_moves_when_its_owner_has_given_it_up() -> None:
    room = Room({"t": 4})
    room.ask("a", 0, ["t"])
    joined = room.ask("b", 0, ["t"])
    assert (joined.member_epoch, room.named(joined), room.state) == (3, {}, "Reconciling")
    assert room.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    answered = room.ask("a", 2, owned={"t": [0, 1, 2, 3]})
    assert (answered.member_epoch, room.named(answered)) == (2, {"t": [0, 1]})
    assert room.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert room.named(room.ask("a", 2)) is None  # says nothing of what it owns: it may own all
    assert room.named(room.ask("b", 3)) is None
    assert room.ask("a", 2, owned={"t": [0, 1]}).member_epoch == 3
    assert room.named(room.ask("b", 3)) == {"t": [2, 3]}
    assert room.state == "Stable"


def test_a_member_that_missed_its_new_epoch_may_come_with_the_old_one() -> None:
    room = Room({"t": 4})
    first = room.ask("a", 0, ["t"])
    room.ask("b", 0, ["t"])
    room.ask("a", first.member_epoch, owned={"t": [0, 1, 2, 3]})
    assert room.ask("a", 2, owned={"t": [0, 1]}).member_epoch == 3
    assert room.code("a", 2, owned={"t": [0, 1]}) is E.NONE
    assert room.code("a", 2, owned={"t": [0, 3]}) is E.FENCED_MEMBER_EPOCH
    assert room.code("a", 2) is E.FENCED_MEMBER_EPOCH
    assert room.code("a", 1, owned={}) is E.FENCED_MEMBER_EPOCH
    assert room.code("a", 4, owned={}) is E.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize(
    ("asked", "options", "code"),
    [
        (("a", 0, ["t"]), {"group": ""}, E.INVALID_REQUEST),
        (("", 0, ["t"]), {}, E.INVALID_REQUEST),
        (("", 0, ["t"]), {"version": 0}, E.NONE),
        (("", 3), {"version": 0}, E.INVALID_REQUEST),
        (("a", 0), {}, E.INVALID_REQUEST),
        (("a", 0, ["t"]), {"rebalance_timeout_ms": -1}, E.INVALID_REQUEST),
        (("a", 0, ["t"]), {"owned": {"t": [0]}}, E.INVALID_REQUEST),
        (("a", 0, ["t"]), {"instance_id": ""}, E.INVALID_REQUEST),
        (("a", 0, ["t"]), {"rack_id": ""}, E.INVALID_REQUEST),
        (("a", 0, ["t"]), {"server_assignor": "sticky"}, E.UNSUPPORTED_ASSIGNOR),
        (("a", 0, ["t"]), {"server_assignor": "range"}, E.NONE),
        (("a", 0), {"subscribed_topic_regex": "("}, E.INVALID_REGULAR_EXPRESSION),
        (("a", 0), {"subscribed_topic_regex": "(?=a)"}, E.INVALID_REGULAR_EXPRESSION),
        (("a", -3), {}, E.INVALID_REQUEST),
        (("a", -2), {}, E.INVALID_REQUEST),
        (("a", -1), {}, E.GROUP_ID_NOT_FOUND),
        (("a", 1), {}, E.GROUP_ID_NOT_FOUND),
    ],
)
def test_what_is_refused_leaves_no_trace(asked: tuple[Any, ...], options: dict[str, Any], code: ErrorCode) -> None:
    room = Room({"t": 1})
    assert room.code(*asked, **options) is code
    if code:
        assert not room.consumers.groups and not room.log and not len(room.timers)


def test_unknown_members_get_an_error() -> None:
    room = Room({"t": 1})
    room.ask("a", 0, ["t"])
    assert room.code("x", 2) is E.UNKNOWN_MEMBER_ID
    assert room.code("x", -1) is E.UNKNOWN_MEMBER_ID
    assert room.code("a", 2, instance_id="i") is E.UNKNOWN_MEMBER_ID
    assert room.code("a", -2, instance_id="i") is E.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_nobody_but_lets_its_members_stay() -> None:
    room = Room({"t": 1})
    room.limit(max_size=1)
    room.ask("a", 0, ["t"])
    assert room.code("b", 0, ["t"]) is E.GROUP_MAX_SIZE_REACHED
    assert room.code("a", 0, ["t"]) is E.NONE


def test_a_silent_member_is_fenced_and_its_partitions_go_to_the_others() -> None:
    room = Room({"t": 4})
    a, b = ConsumerClient(room, "a", ["t"]), ConsumerClient(room, "b", ["t"])
    settle(a, b)
    room.pass_time(SESSION_MS - 1)
    b.beat()
    room.pass_time(1)
    assert list(room.group.members) == ["b"]
    assert a.beat() is E.UNKNOWN_MEMBER_ID
    settle(b)
    assert b.owned == {"t": [0, 1, 2, 3]}


def test_a_member_that_does_not_give_up_its_partitions_is_fenced() -> None:
    room = Room({"t": 4})
    room.ask("a", 0, ["t"])
    b = ConsumerClient(room, "b", ["t"])
    b.beat()
    for _ in range(3):
        room.pass_time(REVOKE_MS // 3)
        room.ask("a", 2, owned={"t": [0, 1, 2, 3]})
    assert "a" in room.group.members
    room.pass_time(REVOKE_MS)
    assert list(room.group.members) == ["b"]
    settle(b)
    assert b.owned == {"t": [0, 1, 2, 3]}


def test_the_last_member_leaves_an_empty_group() -> None:
    room = Room({"t": 2})
    room.ask("a", 0, ["t"])
    assert room.ask("a", -1).member_epoch == -1
    assert (room.state, room.group.epoch, room.group.assignment_epoch) == ("Empty", 3, 3)
    assert not len(room.timers)
    assert room.ask("b", 0, ["t"]).member_epoch == 4


# -- static members ---------------------------------------------------------------------------------------------


def test_a_static_member_that_comes_back_has_what_it_had_and_moves_nothing() -> None:
    room = Room({"t": 4})
    a = ConsumerClient(room, "a", ["t"], instance_id="i")
    b = ConsumerClient(room, "b", ["t"])
    settle(a, b)
    epoch = room.group.epoch
    assert room.code("a2", 0, ["t"], instance_id="i") is E.UNRELEASED_INSTANCE_ID
    assert room.ask("a", -2, instance_id="i").member_epoch == -2
    back = room.ask("a2", 0, ["t"], instance_id="i")
    assert (room.named(back), back.member_epoch, room.group.epoch) == (a.owned, epoch, epoch)
    assert room.code("a", epoch, instance_id="i") is E.FENCED_INSTANCE_ID
    assert room.code("a", -2, instance_id="i") is E.FENCED_INSTANCE_ID
    assert set(room.group.members) == {"a2", "b"}


def test_a_member_that_takes_another_instance_id_gives_the_first_one_up() -> None:
    room = Room({"t": 2})
    room.ask("a", 0, ["t"], instance_id="i")
    room.ask("a", 0, ["t"], instance_id="j")
    assert room.group.static_members == {"j": "a"}
    room.ask("a", -1, instance_id="j")
    assert room.ask("b", 0, ["t"], instance_id="i").error_code == 0


def test_a_static_member_that_does_not_come_back_expires() -> None:
    room = Room({"t": 4})
    room.ask("a", 0, ["t"], instance_id="i")
    room.ask("a", -2, instance_id="i")
    room.pass_time(SESSION_MS)
    assert room.state == "Empty" and not room.group.static_members


# -- topics and expressions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("votes", "vote", "assignor", "bumps"),
    [
        ([None], "uniform", "uniform", False),
        ([None], "range", "range", True),
        (["uniform"], "range", "range", True),
        ([None, None, None], "range", "range", True),
        (["uniform", "uniform", "uniform"], "range", "uniform", False),
    ],
)
def test_a_vote_for_an_assignor_is_an_epoch_when_another_one_wins(
    votes: list[str | None], vote: str, assignor: str, bumps: bool
) -> None:
    room = Room({"t": 2})
    joined = [
        room.ask(f"m{number}", 0, ["t"], server_assignor=first).member_epoch for number, first in enumerate(votes)
    ]
    epoch = room.group.epoch
    assert room.ask(f"m{len(votes) - 1}", joined[-1], server_assignor=vote).error_code == 0
    assert (room.group.assignor, room.group.epoch - epoch) == (assignor, int(bumps))
    back = room.read_back()
    assert back is not None and back.members[f"m{len(votes) - 1}"].server_assignor == vote


def test_a_topic_that_grows_goes_or_comes_again_makes_a_new_epoch() -> None:
    room = Room({"t": 1, "other": 1})
    a = ConsumerClient(room, "a", ["t", "late"])
    settle(a)
    for change, expected in (
        (("t", 3), {"t": [0, 1, 2]}),
        (("other", None), {"t": [0, 1, 2]}),
        (("late", 1), {"late": [0], "t": [0, 1, 2]}),
        (("t", None), {"late": [0]}),
        (("t", 2, 1), {"late": [0], "t": [0, 1]}),
    ):
        epoch = room.group.epoch
        room.change(*change)
        if change[0] == "t" and change[1] is None:
            a.owned.pop("t")
        settle(a)
        assert a.owned == expected
        assert (room.group.epoch > epoch) == (change[0] != "other")


def test_an_expression_follows_the_topics() -> None:
    room = Room({"a1": 1, "b1": 1})
    a = ConsumerClient(room, "a", None, subscribed_topic_regex="a.*")
    settle(a)
    assert a.owned == {"a1": [0]}
    room.change("a2", 2)
    settle(a)
    assert a.owned == {"a1": [0], "a2": [0, 1]}
    room.change("b2", 2)
    epoch = room.group.epoch
    settle(a)
    assert room.group.epoch == epoch
    a.say([], subscribed_topic_regex="")
    settle(a)
    assert a.owned == {} and not room.group.regexes
    back = room.read_back()
    assert back is not None and not back.regexes


def test_an_expression_matches_whole_names() -> None:
    room = Room({"ab": 1, "abc": 1})
    assert room.named(room.ask("a", 0, subscribed_topic_regex="ab")) == {"ab": [0]}


def test_assignments_are_not_made_more_often_than_the_interval_says() -> None:
    room = Room({"t": 4}, interval_ms=1_000)
    room.ask("a", 0, ["t"])
    assert room.ask("b", 0, ["t"]).member_epoch == 2
    assert (room.state, room.group.epoch, room.group.assignment_epoch) == ("Assigning", 3, 2)
    room.pass_time(1_000)
    assert room.named(room.ask("a", 2, owned={"t": [0, 1, 2, 3]})) == {"t": [0, 1]}


# -- commits ----------------------------------------------------------------------------------------------------


def test_which_requests_may_commit_and_fetch() -> None:
    room = Room({"t": 4})
    a, b = ConsumerClient(room, "a", ["t"]), ConsumerClient(room, "b", ["t"])
    settle(a, b)
    group, topic_id = room.group, room.topics["t"].topic_id

    def commit(member: str, epoch: int, version: int = 9, index: int = a.owned["t"][0]) -> int:
        try:
            check_commit(room.group, member, epoch, version, [(topic_id, index)])
            return 0
        except KafkaError as error:
            return error.code

    assert commit("a", a.epoch) == 0
    assert commit("a", a.epoch, 8) is E.UNSUPPORTED_VERSION
    assert commit("a", a.epoch + 1) is E.STALE_MEMBER_EPOCH
    assert commit("a", 2) == 0  # it had the partition then
    assert commit("a", 1) is E.STALE_MEMBER_EPOCH
    assert commit("a", 2, index=b.owned["t"][0]) is E.STALE_MEMBER_EPOCH
    assert commit("x", 2) is E.UNKNOWN_MEMBER_ID
    assert commit("", -1) is E.UNKNOWN_MEMBER_ID
    check_fetch(group, None, -1)
    check_fetch(group, "a", a.epoch)
    for member, epoch, code in (("a", 1, E.STALE_MEMBER_EPOCH), ("x", 1, E.UNKNOWN_MEMBER_ID)):
        with pytest.raises(KafkaError) as caught:
            check_fetch(group, member, epoch)
        assert caught.value.code is code
    a.room.ask("a", -1)
    a.room.ask("b", -1)
    assert commit("", -1) == 0


# -- the log ----------------------------------------------------------------------------------------------------


def test_a_heartbeat_without_news_writes_nothing() -> None:
    room = Room({"t": 4})
    a = ConsumerClient(room, "a", ["t"])
    settle(a)
    before = room.appended
    settle(a, rounds=50)
    assert room.appended == before


def test_what_cannot_be_appended_has_not_happened() -> None:
    room = Room({"t": 4})
    room.failure = E.KAFKA_STORAGE_ERROR
    assert room.code("a", 0, ["t"]) is E.NOT_COORDINATOR
    assert not room.consumers.groups and not len(room.timers) and not room.failed


def alike(room: Room) -> None:
    """The log says what memory says."""
    read = room.read_back()
    if GROUP not in room.consumers.groups:
        assert read is None
        return
    group = room.group
    assert read is not None
    assert read.members == group.members and read.static_members == group.static_members
    assert (read.epoch, read.metadata_hash, read.assignment_epoch) == (
        group.epoch,
        group.metadata_hash,
        group.assignment_epoch,
    )
    assert {name: part for name, part in read.target.items() if part} == {
        name: part for name, part in group.target.items() if part
    }
    assert read.regexes == group.regexes


class Life(RuleBasedStateMachine):
    """Members of both kinds come, go, die and get responses; at no time do two own a partition."""

    def __init__(self) -> None:
        super().__init__()
        self.room = Room({"t1": 5, "t2": 3, "u": 2})
        self.clients: dict[str, ConsumerClient] = {}
        self.number = 0

    @rule(names=st.sets(st.sampled_from(["t1", "t2", "u", "new"])), regex=st.sampled_from(["", "t.*", "u|new"]))
    def join(self, names: set[str], regex: str) -> None:
        if len(self.clients) < 6:
            self.number += 1
            name = f"m{self.number}"
            self.clients[name] = ConsumerClient(self.room, name, sorted(names), subscribed_topic_regex=regex)
            assert self.clients[name].beat() is E.NONE

    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        if self.clients:
            self.clients[data.draw(st.sampled_from(sorted(self.clients)))].beat()

    @rule(data=st.data(), politely=st.booleans())
    def go(self, data: st.DataObject, politely: bool) -> None:
        if self.clients:
            client = self.clients.pop(data.draw(st.sampled_from(sorted(self.clients))))
            if politely and client.epoch:
                self.room.ask(client.member_id, -1)

    @rule(data=st.data(), names=st.sets(st.sampled_from(["t1", "t2", "u"])))
    def subscribe(self, data: st.DataObject, names: set[str]) -> None:
        if self.clients:
            client = self.clients[data.draw(st.sampled_from(sorted(self.clients)))]
            client.say(sorted(names))

    @rule(count=st.integers(1, 4), name=st.sampled_from(["u", "new"]))
    def grow(self, count: int, name: str) -> None:
        known = self.room.topics.get(name)
        if known is None or len(known.partitions) < count:
            self.room.change(name, count)

    @rule(ms=st.integers(1, 20_000))
    def wait(self, ms: int) -> None:
        self.room.pass_time(ms)

    @invariant()
    def the_log_has_it_all(self) -> None:
        alike(self.room)

    @invariant()
    def nobody_owns_what_another_owns(self) -> None:
        if GROUP not in self.room.consumers.groups:
            return
        held = [
            (topic, index)
            for member in self.room.group.members.values()
            for topic, indexes in member.held().items()
            for index in indexes
        ]
        assert len(held) == len(set(held))

    def teardown(self) -> None:
        """Check that heartbeats alone bring all members to a stable group that has all partitions."""
        self.room.pass_time(2 * SESSION_MS)
        settle(*self.clients.values(), rounds=10)
        if GROUP in self.room.consumers.groups and self.clients:
            assert self.room.state == "Stable"
            for client in self.clients.values():
                held = self.room.group.members[client.member_id].held()
                names = {one.topic_id: one.name for one in self.room.topics.values()}
                assert client.owned == {names[topic]: sorted(indexes) for topic, indexes in held.items() if indexes}
        assert len(self.room.timers) == len(self.clients)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


class LargeLife(Life):
    """The same where each target is computed elsewhere, and each heartbeat matches one expression."""

    def __init__(self) -> None:
        super().__init__()
        self.before = target_assignment_builder.SMALL, reconciler.MATCHES
        target_assignment_builder.SMALL, reconciler.MATCHES = 0, 1

    @rule()
    def compute(self) -> None:
        self.room.compute()

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            target_assignment_builder.SMALL, reconciler.MATCHES = self.before


TestLargeLife = LargeLife.TestCase
TestLargeLife.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


# -- targets that are computed elsewhere


def large(monkeypatch: pytest.MonkeyPatch, members: Mapping[str, dict[str, str]]) -> tuple[Room, list[ConsumerClient]]:
    """A stable group, which is a large one from now on."""
    room = Room({"t": 12})
    clients = [ConsumerClient(room, name, ["t"], **options) for name, options in members.items()]
    settle(*clients)
    monkeypatch.setattr(target_assignment_builder, "SMALL", 0)
    return room, clients


def test_heartbeats_are_answered_with_the_last_target_while_one_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    room, (a, b) = large(monkeypatch, {"a": {}, "b": {}})
    before, epoch = dict(room.group.target), room.group.assignment_epoch
    c = ConsumerClient(room, "c", ["t"])
    for client in (c, a, b, c):
        assert client.beat() is E.NONE
    assert len(room.elsewhere) == 1
    assert (c.epoch, c.owned) == (epoch, {})
    assert (room.group.target, room.state) == (before, "Assigning")
    room.compute()
    alike(room)
    settle(a, b, c)
    assert room.state == "Stable"
    assert [len(client.owned["t"]) for client in (a, b, c)] == [4, 4, 4]


def test_a_member_that_leaves_while_a_target_is_computed_does_not_come_back_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room, (a, _b) = large(monkeypatch, {"a": {}, "b": {}})
    c = ConsumerClient(room, "c", ["t"])
    c.beat()
    assert room.code("b", -1) is E.NONE
    room.compute()
    alike(room)
    assert set(room.group.target) == {"a", "c"}
    assert room.group.assignment_epoch == room.group.epoch - 1
    a.beat()
    assert len(room.elsewhere) == 1, "what has changed meanwhile asks for another computation"
    settle(a, c)
    assert room.state == "Stable"
    assert sorted(a.owned["t"] + c.owned["t"]) == list(range(12))


def test_a_member_that_joins_while_a_target_is_computed_gets_its_share_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room, (a, b) = large(monkeypatch, {"a": {}, "b": {}})
    c, d = (ConsumerClient(room, name, ["t"]) for name in "cd")
    c.beat()
    d.beat()
    room.compute()
    alike(room)
    assert set(room.group.target) == {"a", "b", "c"}
    settle(a, b, c, d)
    assert [len(client.owned["t"]) for client in (a, b, c, d)] == [3, 3, 3, 3]


def test_a_static_member_that_comes_back_while_a_target_is_computed_has_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room, (_a, _b) = large(monkeypatch, {"a": {}, "b": {"instance_id": "i"}})
    ConsumerClient(room, "c", ["t"]).beat()
    assert room.code("b", -2, instance_id="i") is E.NONE
    again = ConsumerClient(room, "b2", ["t"], instance_id="i")
    assert again.beat() is E.NONE
    computed = room.elsewhere[0][0]().target
    room.compute()
    alike(room)
    assert room.group.target == {"a": computed["a"], "b2": computed["b"], "c": computed["c"]}


def test_a_target_for_a_group_that_is_another_by_now_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    room, (a, b) = large(monkeypatch, {"a": {}, "b": {}})
    ConsumerClient(room, "c", ["t"]).beat()
    for name in "abc":
        assert room.code(name, -1) is E.NONE
    epoch, appended = room.group.assignment_epoch, room.appended
    room.compute()
    assert (room.group.assignment_epoch, room.group.target, room.appended) == (epoch, {}, appended)
    for client in (a, b):
        client.epoch = 0
    settle(a, b)
    ConsumerClient(room, "d", ["t"]).beat()
    room.consumers.forget(GROUP)
    appended = room.appended
    room.compute()
    assert (GROUP in room.consumers.groups, room.appended) == (False, appended)


def test_a_computation_that_failed_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    room, (a, _b) = large(monkeypatch, {"a": {}, "b": {}})
    ConsumerClient(room, "c", ["t"]).beat()
    ((_, done),) = room.elsewhere
    room.elsewhere.clear()
    done(None, room.now)
    a.beat()
    assert len(room.elsewhere) == 1


def test_a_group_with_many_expressions_matches_some_in_each_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room({f"t{number}": 1 for number in range(4)})
    clients = [ConsumerClient(room, f"m{number}", [], subscribed_topic_regex=f"t[{number}x]") for number in range(4)]
    settle(*clients)
    matched: list[str] = []
    real = regexes.matching
    monkeypatch.setattr(regexes, "matching", lambda regex, names: matched.append(regex) or real(regex, names))
    monkeypatch.setattr(reconciler, "MATCHES", 10)
    room.change("tx", 1)
    counts = []
    for client in clients:
        client.beat()
        counts.append(len(matched))
    assert counts == [2, 4, 4, 4]
    settle(*clients)
    assert sorted(name for client in clients for name in client.owned) == ["t0", "t1", "t2", "t3", "tx"]


def test_a_hundred_join_at_once_and_half_die_silently() -> None:
    room = Room({"t": 200})
    everybody = [ConsumerClient(room, f"m{number:03}", ["t"]) for number in range(100)]
    for client in everybody:
        assert client.beat() is E.NONE
    alive = everybody[::2]
    for _ in range(11):
        room.pass_time(SESSION_MS // 9)
        settle(*alive, rounds=1)
    settle(*alive, rounds=3)
    assert room.state == "Stable" and len(room.group.members) == 50
    assert sorted(index for client in alive for index in client.owned["t"]) == list(range(200))
    assert {len(client.owned["t"]) for client in alive} == {4}
    assert len(room.timers) == 50
    for client in alive:
        room.ask(client.member_id, -1)
    assert not len(room.timers) and room.state == "Empty"
