"""Classic groups: joining, rebalancing, static members, expiry, and what bad input gets."""

from __future__ import annotations

import pytest

from klamm.broker.coordinator.group.classic.limits import GroupLimits
from klamm.broker.coordinator.group.records import GroupRecord, decode
from klamm.protocol.errors import ErrorCode
from tests.broker.coordinator.group.group_room import GROUP, REBALANCE_MS, SESSION_MS, Room

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS


# -- joining --------------------------------------------------------------------------------------------------------


def test_a_newcomer_is_sent_away_once_with_its_member_id() -> None:
    room = Room()
    first = room.join(client_id="app")
    assert first.code is ErrorCode.MEMBER_ID_REQUIRED
    assert first.response.member_id == "app-id1"
    again = room.join("app-id1")
    assert again.waits
    room.pass_time(3_000)
    assert again.joined.generation_id == 1
    assert again.joined.leader == again.joined.member_id == "app-id1"


@pytest.mark.parametrize("version", [0, 1, 3])
def test_an_old_client_joins_at_once(version: int) -> None:
    room = Room()
    answer = room.join(version=version)
    room.pass_time(3_000)
    assert answer.joined.member_id == "c-id1"


def test_version_0_has_its_session_timeout_for_the_rebalance_too() -> None:
    room = Room()
    room.join(version=0, session_ms=7_000, rebalance_ms=-1)
    assert room.group.members["c-id1"].rebalance_timeout_ms == 7_000


def test_a_member_that_does_not_return_with_its_id_is_forgotten_after_the_session_timeout() -> None:
    room = Room()
    member_id: str = room.join().response.member_id
    room.pass_time(SESSION_MS)
    assert room.counts() == (0, 0, 0) and not room.group.pending_members
    assert room.join(member_id).code is UNKNOWN


def test_only_the_leader_gets_the_members() -> None:
    room = Room()
    (leader, first), (follower, second) = room.enter(), room.enter(protocols=(("range", b"other"),))
    room.pass_time(10_000)
    assert [(row.member_id, row.metadata) for row in first.joined.members] == [(leader, b"m"), (follower, b"other")]
    assert second.joined.members == [] and second.joined.leader == leader


def test_the_initial_delay_begins_again_for_each_newcomer_up_to_the_rebalance_timeout() -> None:
    room = Room()
    _, first = room.enter(rebalance_ms=8_000)
    for _ in range(2):
        room.pass_time(2_500)
        room.enter(rebalance_ms=8_000)
        assert first.waits
    room.pass_time(2_900)  # 7.9 s
    assert first.waits
    room.pass_time(100)
    assert len(first.joined.members) == 3


def test_without_an_initial_delay_the_first_member_is_alone() -> None:
    room = Room(GroupLimits(initial_rebalance_delay_ms=0))
    _, answer = room.enter()
    room.pass_time(0)
    assert len(answer.joined.members) == 1


def test_members_vote_for_the_protocol_among_those_that_all_know() -> None:
    room = Room()
    room.enter(protocols=(("mine", b""), ("range", b""), ("sticky", b"")))
    room.enter(protocols=(("sticky", b""), ("range", b"")))
    _, answer = room.enter(protocols=(("sticky", b""), ("range", b"")))
    room.pass_time(10_000)
    assert answer.joined.protocol_name == "sticky"


def test_a_follower_that_joins_again_unchanged_gets_the_same_answer() -> None:
    room = Room()
    leader, follower = room.stable()
    answer = room.join(follower)
    assert (answer.joined.generation_id, answer.joined.leader, answer.joined.members) == (1, leader, [])
    assert room.state == "Stable"


def test_a_leader_that_joins_again_begins_a_rebalance() -> None:
    room = Room()
    leader, follower = room.stable()
    answer = room.join(leader)
    assert answer.waits and room.state == "PreparingRebalance"
    assert room.heartbeat(follower) is REBALANCE
    other = room.join(follower)
    assert answer.joined.generation_id == other.joined.generation_id == 2


def test_a_member_that_asks_twice_has_its_first_request_answered() -> None:
    room = Room()
    leader, _ = room.stable()
    first = room.join(leader)
    second = room.join(leader)
    assert first.code is REBALANCE and second.waits


# -- syncing --------------------------------------------------------------------------------------------------------


def test_followers_wait_for_the_leader_and_each_gets_its_share() -> None:
    room = Room()
    members = [room.enter() for _ in range(3)]
    room.pass_time(10_000)
    leader, *followers = [member_id for member_id, _ in members]
    waiting = [room.sync(follower) for follower in followers]
    assert all(answer.waits for answer in waiting)
    room.sync(leader, assignments={followers[0]: b"x", leader: b"y"})
    assert [answer.synced.assignment for answer in waiting] == [b"x", b""]
    assert room.sync(leader).synced.assignment == b"y"
    assert waiting[0].synced.protocol_name == "range" and waiting[0].synced.protocol_type == "test"


def test_the_assignment_counts_when_it_is_durable() -> None:
    room = Room()
    leader, _ = room.enter()
    room.pass_time(3_000)
    room.hold = True
    answer = room.sync(leader, assignments={leader: b"a"})
    assert answer.waits and room.state == "CompletingRebalance"
    room.release()
    assert answer.synced.assignment == b"a" and room.state == "Stable"


def test_an_assignment_that_cannot_be_stored_begins_a_rebalance() -> None:
    room = Room()
    leader, _ = room.enter()
    room.pass_time(3_000)
    room.failure = ErrorCode.MESSAGE_TOO_LARGE
    assert room.sync(leader, assignments={leader: b"a"}).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert room.state == "PreparingRebalance"


def test_an_assignment_of_a_generation_that_is_over_when_it_is_durable_is_dropped() -> None:
    room = Room()
    leader, _ = room.enter()
    room.pass_time(3_000)
    room.hold = True
    answer = room.sync(leader, assignments={leader: b"a"})
    room.enter()
    assert answer.code is REBALANCE
    room.release()
    assert room.state == "PreparingRebalance"


def test_a_member_that_does_not_sync_in_time_is_removed() -> None:
    room = Room()
    (leader, _), (_, late) = room.enter(), room.enter()
    room.pass_time(6_000)
    assert late.joined
    room.sync(leader, assignments={})
    for _ in range(REBALANCE_MS // 5_000):
        room.heartbeat(leader)
        room.heartbeat(late.joined.member_id)
        room.pass_time(5_000)
    assert list(room.group.members) == [leader] and room.state == "PreparingRebalance"


def test_the_record_of_a_generation_is_what_is_needed_to_go_on() -> None:
    room = Room()
    leader, follower = room.stable()
    key, value = room.stored[-1][1][0]
    record = decode(key, value)
    assert isinstance(record, GroupRecord) and record.value is not None
    assert (record.group, record.value.generation, record.value.leader) == (GROUP, 1, leader)
    assert [(m.member_id, m.assignment, m.subscription) for m in record.value.members] == [
        (leader, leader.encode(), b"m"),
        (follower, follower.encode(), b"m"),
    ]


# -- heartbeats and leaving -----------------------------------------------------------------------------------------


def test_a_silent_member_is_removed_after_its_session_timeout() -> None:
    room = Room()
    leader, follower = room.stable()
    for _ in range(3):
        room.pass_time(SESSION_MS // 4)
        assert room.heartbeat(leader) is NONE
    room.pass_time(SESSION_MS // 4)
    assert room.heartbeat(leader) is REBALANCE
    assert room.heartbeat(follower) is UNKNOWN
    assert room.join(leader).joined.generation_id == 2


def test_the_last_member_leaves_an_empty_group() -> None:
    room = Room()
    members = room.stable()
    response = room.leave(*((member, None) for member in members))
    assert [row.error_code for row in response.members] == [0, 0]
    assert room.state == "Empty" and room.group.generation_id == 2
    assert room.counts() == (0, 0, 0)
    record = decode(*room.stored[-1][1][0])
    assert isinstance(record, GroupRecord) and record.value is not None and record.value.members == []


def test_leaving_names_each_member_its_error() -> None:
    room = Room()
    leader, _ = room.stable()
    response = room.leave(("nobody", None), (leader, None), ("", "no such instance"))
    assert [row.error_code for row in response.members] == [UNKNOWN, NONE, UNKNOWN]
    assert response.error_code == NONE
    gone = room.leave(("m", None), group="no such group")
    assert (gone.error_code, [row.error_code for row in gone.members]) == (NONE, [UNKNOWN])


def test_a_pending_member_that_leaves_disturbs_nobody() -> None:
    room = Room()
    room.stable()
    pending: str = room.join().response.member_id
    assert room.leave((pending, None)).members[0].error_code == NONE
    assert room.state == "Stable" and not room.group.pending_members


def test_a_leaving_member_that_waits_is_answered() -> None:
    room = Room()
    leader, _ = room.stable()
    answer = room.join(leader)
    room.leave((leader, None))
    assert answer.code is UNKNOWN


# -- static members -------------------------------------------------------------------------------------------------


def static_pair(room: Room) -> list[str]:
    answers = [room.join(instance=name) for name in ("a", "b")]
    room.pass_time(10_000)
    members = [answer.joined.member_id for answer in answers]
    room.all_sync(members)
    return members


def test_a_restarted_static_member_gets_its_old_assignment_without_a_rebalance() -> None:
    room = Room()
    leader, follower = static_pair(room)
    answer = room.join(instance="b")
    new_id = answer.joined.member_id
    assert new_id not in (leader, follower) and answer.joined.generation_id == 1
    assert room.state == "Stable"
    assert room.sync(new_id, instance="b").synced.assignment == follower.encode()
    assert room.heartbeat(follower, instance="b") is ErrorCode.FENCED_INSTANCE_ID
    assert room.heartbeat(follower) is UNKNOWN
    assert room.heartbeat(leader) is NONE


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_restarted_static_leader_does_not_assign_again(version: int) -> None:
    room = Room()
    leader, _ = static_pair(room)
    joined = room.join(instance="a", version=version).joined
    assert room.state == "Stable"
    if version < 9:
        assert joined.leader == leader != joined.member_id and joined.members == [] and not joined.skip_assignment
    else:
        assert joined.leader == joined.member_id and len(joined.members) == 2 and joined.skip_assignment


def test_a_static_member_with_other_protocols_begins_a_rebalance() -> None:
    room = Room()
    both = (("range", b""), ("sticky", b""))
    answers = [room.join(instance=name, protocols=both) for name in ("a", "b")]
    room.pass_time(10_000)
    room.all_sync([answer.joined.member_id for answer in answers])
    assert room.join(instance="b", protocols=(("sticky", b""),)).waits
    assert room.state == "PreparingRebalance"


def test_a_static_member_fences_its_former_self_that_still_waits() -> None:
    room = Room()
    static_pair(room)
    waiting = room.join(room.group.static_members["a"], instance="a")
    assert waiting.waits
    second = room.join(instance="a")
    assert waiting.code is ErrorCode.FENCED_INSTANCE_ID and second.waits


def test_a_static_member_keeps_its_place_in_a_rebalance_until_its_session_is_over() -> None:
    room = Room()
    leader, follower = (room.join(instance=name, session_ms=300_000, rebalance_ms=20_000) for name in "ab")
    room.pass_time(20_000)
    members = [leader.joined.member_id, follower.joined.member_id]
    room.all_sync(members)
    again = room.join(members[0], instance="a", session_ms=300_000, rebalance_ms=20_000)
    room.pass_time(20_000)
    assert again.joined.generation_id == 2
    assert len(again.joined.members) == 2


@pytest.mark.parametrize("rebalance_ms", [0, -1, -(2**31)])
def test_static_members_without_a_rebalance_timeout_are_waited_for_until_their_sessions_are_over(
    rebalance_ms: int,
) -> None:
    """Kafka looks again at once, for ever; here the loop must go on, and somebody who joins is soon served."""
    room = Room()
    for instance in ("a", "b"):
        room.join(instance=instance, rebalance_ms=rebalance_ms)
    dynamic, _ = room.enter()
    room.pass_time(10_000)
    room.all_sync(list(room.group.members))
    room.leave((dynamic, None))
    assert ticks_until(room, SESSION_MS // 2) <= 60
    assert room.state == "PreparingRebalance"
    answer = room.join(room.group.static_members["a"], instance="a", rebalance_ms=rebalance_ms)
    room.pass_time(100)
    assert answer.joined.generation_id == 2
    room.pass_time(2 * SESSION_MS)
    assert room.state == "Empty"


def ticks_until(room: Room, ms: int) -> int:
    """Let time pass as the loop would; how often it was woken up."""
    end, looks = room.now_ms + ms, 0
    while (next_ms := room.groups.timers.next_ms()) is not None and next_ms <= end:
        room.now_ms = max(room.now_ms, next_ms)
        room.groups.tick(room.now)
        looks += 1
    room.now_ms = end
    return looks


def test_a_static_member_is_removed_by_its_instance_id() -> None:
    room = Room()
    static_pair(room)
    assert room.leave(("", "b")).members[0].error_code == NONE
    assert list(room.group.static_members) == ["a"]


def test_a_replacement_that_cannot_be_stored_is_undone() -> None:
    room = Room()
    leader, follower = static_pair(room)
    room.failure = ErrorCode.KAFKA_STORAGE_ERROR
    assert room.join(instance="b").code is ErrorCode.NOT_COORDINATOR
    assert room.heartbeat(follower, instance="b") is NONE
    assert list(room.group.members) == [leader, follower]


# -- bad input (docs/faults.md, network row 50) ------------------------------------------------------------------------


def test_unknown_members_and_groups() -> None:
    room = Room()
    room.stable()
    assert room.join("nobody").code is UNKNOWN
    assert room.join("nobody", group="no such group").code is UNKNOWN
    assert room.sync("nobody").code is UNKNOWN
    assert room.heartbeat("nobody") is UNKNOWN
    assert room.heartbeat("nobody", 1, group="no such group") is UNKNOWN
    assert room.sync("nobody", 1, group="no such group").code is UNKNOWN
    assert "no such group" not in room.groups.groups


def test_another_generation() -> None:
    room = Room()
    leader, _ = room.stable()
    assert room.heartbeat(leader, 0) is ErrorCode.ILLEGAL_GENERATION
    assert room.heartbeat(leader, 2) is ErrorCode.ILLEGAL_GENERATION
    assert room.sync(leader, 0).code is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize(("session_ms", "fits"), [(1, False), (5_999, False), (6_000, True), (1_800_001, False)])
def test_session_timeouts_have_limits(session_ms: int, fits: bool) -> None:
    code = Room().join(session_ms=session_ms).code
    assert code is (ErrorCode.MEMBER_ID_REQUIRED if fits else ErrorCode.INVALID_SESSION_TIMEOUT)


def test_an_empty_group_id() -> None:
    room = Room()
    assert room.join(group="").code is ErrorCode.INVALID_GROUP_ID
    assert room.sync("m", 1, group="").code is ErrorCode.INVALID_GROUP_ID
    assert room.heartbeat("m", 1, group="") is ErrorCode.INVALID_GROUP_ID
    assert room.leave(("m", None), group="").error_code == ErrorCode.INVALID_GROUP_ID


def test_no_protocols_or_none_in_common() -> None:
    room = Room()
    assert room.join(protocols=()).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert room.join(protocol_type="").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not room.groups.groups
    room.stable()
    assert room.join(protocols=(("other", b""),)).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert room.join(protocol_type="connect").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_sync_with_another_protocol() -> None:
    room = Room()
    leader, _ = room.stable()
    assert room.sync(leader, protocol_type="test", protocol_name="range").code is NONE
    assert room.sync(leader, protocol_type="connect").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert room.sync(leader, protocol_name="sticky").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_full_group() -> None:
    room = Room(GroupLimits(max_size=2))
    for version in (9, 3):
        room.enter() if version == 9 else room.join(version=3)
    assert room.join(version=3).code is ErrorCode.GROUP_MAX_SIZE_REACHED
    room.pass_time(10_000)
    room.all_sync(list(room.group.members))
    full = room.join()
    assert full.code is ErrorCode.GROUP_MAX_SIZE_REACHED and full.response.member_id == ""


def test_a_heartbeat_while_the_assignment_is_made_is_fine() -> None:
    room = Room()
    leader, _ = room.enter()
    room.pass_time(3_000)
    assert room.state == "CompletingRebalance"
    assert room.heartbeat(leader) is NONE


# -- many -----------------------------------------------------------------------------------------------------------


def test_of_a_hundred_members_half_die_silently() -> None:
    room = Room()
    before = room.counts()
    members = room.stable(100)
    assert room.counts() == (100, 100, 0)
    alive = set(members[1::2])  # the leader dies, too
    start_ms, generation = room.now_ms, room.group.generation_id
    joins = {}
    while room.now_ms - start_ms < 2 * REBALANCE_MS and len(joins) < len(alive):
        room.pass_time(1_000)
        for member in alive - joins.keys():
            if room.heartbeat(member) is REBALANCE:
                joins[member] = room.join(member)
    while any(answer.waits for answer in joins.values()):
        room.pass_time(1_000)
    assert room.now_ms - start_ms <= 2 * REBALANCE_MS
    assert {answer.joined.generation_id for answer in joins.values()} == {generation + 1}
    assert set(room.group.members) == alive and room.group.leader in alive
    room.all_sync(sorted(alive))
    assert room.counts() == (50, 50, 0)
    room.leave(*((member, None) for member in alive))
    assert room.counts() == before


def test_members_that_never_knew_their_id_go_after_five_minutes() -> None:
    room = Room(GroupLimits(initial_rebalance_delay_ms=600_000))
    answers = [room.join(version=3, rebalance_ms=1_000_000) for _ in range(3)]
    room.pass_time(300_000)
    assert [answer.code for answer in answers] == [UNKNOWN] * 3
    assert room.counts()[0] == 0
    room.pass_time(800_000)
    assert room.counts() == (0, 0, 0) and room.state == "Empty"


def test_forgetting_a_group_answers_everybody_and_leaves_no_timer() -> None:
    room = Room()
    leader, _ = room.stable()
    waiting = room.join(leader)
    room.join()
    room.groups.forget(GROUP, int(ErrorCode.NOT_COORDINATOR), 0)
    assert waiting.code is ErrorCode.NOT_COORDINATOR
    assert room.counts() == (0, 0, 0) and GROUP not in room.groups.groups
