"""What a coordinator cannot store has not happened: names that no record can carry, batches that are too large,
encoders that fail. The request alone is refused; everybody else is served as if it had never come.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.coordinator.group.classic import rebalances
from klamm.broker.coordinator.group.classic.limits import GroupLimits
from klamm.broker.coordinator.group.classic.states import State
from klamm.broker.coordinator.group.consumer import consumer_records
from klamm.broker.coordinator.transaction import coordinator as transaction_coordinator
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from klamm.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from klamm.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm.protocol.messages.find_coordinator import FindCoordinatorRequest
from klamm.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm.protocol.messages.init_producer_id import InitProducerIdRequest
from klamm.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from klamm.protocol.messages.list_config_resources import ListConfigResourcesRequest
from klamm.protocol.messages.list_groups import ListGroupsRequest
from klamm.protocol.messages.list_transactions import ListTransactionsRequest
from klamm.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.protocol.messages.sync_group import SyncGroupRequest
from klamm.protocol.wire import NotEncodable
from tests.broker.coordinator.group.consumer.consumer_room import ConsumerClient, Room, settle
from tests.support.embedded import EmbeddedBroker, decode_reply, encode_frame

E = ErrorCode
BAD = b"\xff" * 20_000  # is read as 20,000 times U+FFFD, which are 60,000 bytes
MARK = b"MARK" * 5_000
LONG = "x" * 32_760  # fits into a string, but not with a UUID after it
CONFIG = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path, CONFIG) as broker:
        for key_type in (0, 1):
            broker.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"]), 4)
        broker.create_topic("t", partitions=4)
        yield broker


def call_with_bad_text(broker: EmbeddedBroker, request: Any, version: int, client_id: str = "test") -> Any:
    """The request with bytes that are no UTF-8 for each `MARK`."""
    frame = bytes(encode_frame(request, version, client_id))
    assert MARK in frame
    return decode_reply(broker.dispatch(frame.replace(MARK, BAD)), request.api_key, version)


MARKED = MARK.decode()


def beat(member: str = "a", names: Sequence[str] | None = ("t",), epoch: int = 0, **options: Any) -> Any:
    request = {
        "group_id": "g",
        "member_id": member,
        "member_epoch": epoch,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": None if names is None else [*names],
        "topic_partitions": [],
    }
    return ConsumerGroupHeartbeatRequest(**request | options)


def join(**options: Any) -> JoinGroupRequest:
    request: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "test",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"")],
    }
    return JoinGroupRequest(**request | options)


def listed(broker: EmbeddedBroker) -> list[str]:
    return [group.group_id for group in broker.call(ListGroupsRequest(), 5).groups]


def members(broker: EmbeddedBroker) -> list[str]:
    (group,) = broker.call(ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups
    return [member.member_id for member in group.members]


# -- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"group_id": MARKED},
        {"member_id": MARKED},
        {"instance_id": MARKED},
        {"rack_id": MARKED},
        {"subscribed_topic_regex": MARKED},
        {"subscribed_topic_names": ["t", MARKED]},
        {"server_assignor": MARKED},
    ],
    ids=lambda options: next(iter(options)),
)
def test_a_heartbeat_with_a_name_that_cannot_be_stored(broker: EmbeddedBroker, options: dict[str, Any]) -> None:
    code = call_with_bad_text(broker, beat(**options), 1).error_code
    assert code in (E.INVALID_REQUEST, E.INVALID_GROUP_ID, E.UNSUPPORTED_ASSIGNOR)
    assert listed(broker) == [] and not len(broker.broker.groups.runtime.timers) > 1
    assert broker.call(beat("a"), 1).error_code == 0
    assert members(broker) == ["a"]


def test_a_client_id_that_cannot_be_stored(broker: EmbeddedBroker) -> None:
    assert call_with_bad_text(broker, beat(), 1, client_id=MARKED).error_code == E.INVALID_REQUEST
    assert call_with_bad_text(broker, join(), 9, client_id=MARKED).error_code == E.INVALID_REQUEST
    assert broker.call(join(), 9, client_id=LONG).error_code == E.INVALID_REQUEST
    assert listed(broker) == []


@pytest.mark.parametrize(
    "options",
    [
        {"group_id": MARKED},
        {"member_id": MARKED},
        {"group_instance_id": MARKED},
        {"protocol_type": MARKED},
        {"protocols": [JoinGroupRequestProtocol(name=MARKED, metadata=b"")]},
    ],
    ids=lambda options: next(iter(options)),
)
@pytest.mark.parametrize("version", [5, 9])
def test_a_join_with_a_name_that_cannot_be_stored(
    broker: EmbeddedBroker, options: dict[str, Any], version: int
) -> None:
    answer = call_with_bad_text(broker, join(**options), version)
    assert answer.error_code in (E.INVALID_REQUEST, E.INVALID_GROUP_ID)
    assert listed(broker) == []
    assert broker.call(join(group_instance_id="i"), 9).error_code == 0


def test_a_leave_with_a_name_that_cannot_be_answered(broker: EmbeddedBroker) -> None:
    member = broker.call(join(group_instance_id="i"), 9).member_id
    identities = [MemberIdentity(member_id=member), MemberIdentity(member_id=MARKED)]
    answer = call_with_bad_text(broker, LeaveGroupRequest(group_id="g", members=identities), 5)
    assert answer.error_code == E.INVALID_REQUEST
    assert list(broker.broker.groups.classic.groups["g"].members) == [member]


def test_a_commit_with_names_that_cannot_be_stored(broker: EmbeddedBroker) -> None:
    broker.broker.groups.metadata_max_bytes = 2**31 - 1

    def commit(group: str, metadata: str) -> int:
        rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata=metadata)]
        request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name="t", partitions=rows)])
        return int(call_with_bad_text(broker, request, 9).topics[0].partitions[0].error_code)

    assert commit(MARKED, "") == E.INVALID_GROUP_ID
    assert commit("g", MARKED) == E.OFFSET_METADATA_TOO_LARGE
    assert listed(broker) == []


def test_an_error_message_that_names_long_names_can_be_sent(broker: EmbeddedBroker) -> None:
    assert broker.call(beat("a"), 1).error_code == 0
    answer = broker.call(beat(LONG, epoch=5), 1)
    assert answer.error_code == E.UNKNOWN_MEMBER_ID and len(answer.error_message) == 8_000


def test_a_transactional_id_that_cannot_be_stored(broker: EmbeddedBroker) -> None:
    for _ in range(2):
        request = InitProducerIdRequest(transactional_id=MARKED, transaction_timeout_ms=1000)
        assert call_with_bad_text(broker, request, 4).error_code == E.INVALID_REQUEST
    assert broker.call(ListTransactionsRequest(), 1).transaction_states == []


def test_a_config_that_cannot_be_described_is_refused(broker: EmbeddedBroker) -> None:
    def alter(resource_type: int, resource: str, name: str, value: str) -> int:
        config = AlterableConfig(name=name, config_operation=0, value=value)
        alteration = AlterConfigsResource(resource_type=resource_type, resource_name=resource, configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[alteration])
        return int(call_with_bad_text(broker, request, 1).responses[0].error_code)

    assert alter(4, "1", "of.a.plugin", MARKED) == E.INVALID_CONFIG
    assert alter(4, "1", MARKED, "x") == E.INVALID_CONFIG
    resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    assert broker.call(DescribeConfigsRequest(resources=[resource]), 4).results[0].error_code == 0
    assert broker.call(ListConfigResourcesRequest(resource_types=[32]), 1).config_resources == []


# -- failures at the append -----------------------------------------------------------------------------------------


def fail(*_: Any, **__: Any) -> Any:
    raise NotEncodable("a string of 60000 bytes is too long")


def test_a_member_is_not_added_when_its_record_cannot_be_encoded(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.call(beat("a"), 1)
    before = len(broker.broker.groups.runtime.timers)
    with monkeypatch.context() as patch:
        patch.setattr(consumer_records, "member_record", fail)
        assert broker.call(beat("b"), 1).error_code == E.UNKNOWN_SERVER_ERROR
    assert members(broker) == ["a"] and len(broker.broker.groups.runtime.timers) == before
    assert broker.call(beat("b"), 1).error_code == 0
    assert members(broker) == ["a", "b"]


def test_a_transactional_id_is_not_pending_when_its_record_cannot_be_encoded(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)
    with monkeypatch.context() as patch:
        patch.setattr(transaction_coordinator, "transaction_value", fail)
        assert broker.call(request, 4).error_code == E.UNKNOWN_SERVER_ERROR
    assert broker.call(ListTransactionsRequest(), 1).transaction_states == []
    assert broker.call(request, 4).error_code == 0
    with monkeypatch.context() as patch:
        patch.setattr(transaction_coordinator, "transaction_value", fail)
        assert broker.call(request, 4).error_code == E.UNKNOWN_SERVER_ERROR
    assert broker.call(request, 4).producer_epoch == 1


def test_an_assignment_that_cannot_be_encoded_is_answered(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All members that wait for it get an answer; then the group begins again."""
    broker.broker.groups.classic.limits = GroupLimits(initial_rebalance_delay_ms=3_000)
    waiting = [broker.start(join(group_instance_id=instance), 9) for instance in "ab"]
    for _ in range(4):  # the delay begins again with the second member
        broker.clock.advance(3_000)
        tick(broker)
    leader, follower = (broker.run(answer).member_id for answer in waiting)
    with monkeypatch.context() as patch:
        patch.setattr(rebalances, "record_of", fail)
        parked = broker.start(sync(follower, "b"), 5)
        assert broker.call(sync(leader, "a"), 5).error_code == E.UNKNOWN_SERVER_ERROR
        assert broker.run(parked).error_code == E.UNKNOWN_SERVER_ERROR
    assert broker.broker.groups.classic.groups["g"].state is State.PREPARING_REBALANCE


def sync(member_id: str, instance: str) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="test",
        protocol_name="range",
    )


def tick(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        broker.broker.groups.runtime.timer.tick()

    broker.run(work())


MANY = [f"a-topic-with-a-name-of-some-length-{number:06}" for number in range(45_000)]


def test_a_heartbeat_that_is_too_large_fails_alone(broker: EmbeddedBroker) -> None:
    """Another group's parked JoinGroup waits on, and the member goes on from where it was."""
    first = broker.call(beat("a"), 1)
    member = broker.call(join(group_id="other"), 9).member_id
    broker.broker.groups.classic.limits = GroupLimits(initial_rebalance_delay_ms=3_000)
    parked = broker.start(join(group_id="other", member_id=member), 9)
    loaded = set(broker.broker.groups.topic._loaded)
    for request in (beat("a", MANY, first.member_epoch), beat("b", MANY), beat("c", MANY, group_id="new")) * 2:
        assert broker.call(request, 1).error_code == E.UNKNOWN_SERVER_ERROR
    broker.run(asyncio.sleep(0))
    assert not parked.done() and broker.broker.groups.topic._loaded == loaded
    assert members(broker) == ["a"] and sorted(listed(broker)) == ["g", "other"]
    assert broker.call(beat("a", None, first.member_epoch), 1).member_epoch == first.member_epoch
    assert broker.call(beat("b"), 1).member_epoch == first.member_epoch + 1


# -- the machine of the consumer protocol ---------------------------------------------------------------------------


def join_of_a_newcomer(room: Room) -> None:
    room.ask("new", 0, ["t"])


def other_topics(room: Room) -> None:
    room.ask("a", room.group.members["a"].epoch, ["u"])


def leave(room: Room) -> None:
    room.ask("a", -1)


def leave_for_a_while(room: Room) -> None:
    room.ask("s", -2, instance_id="i")


def static_successor(room: Room) -> None:
    room.ask("s2", 0, ["t"], instance_id="i")


@pytest.mark.parametrize("request_of", [join_of_a_newcomer, other_topics, leave, leave_for_a_while, static_successor])
@pytest.mark.parametrize("code", [E.MESSAGE_TOO_LARGE, E.KAFKA_STORAGE_ERROR])
def test_a_change_that_is_not_appended_leaves_the_group_and_its_timers(
    request_of: Callable[[Room], None], code: ErrorCode
) -> None:
    room = Room({"t": 4, "u": 2})
    a, s = ConsumerClient(room, "a", ["t"]), ConsumerClient(room, "s", ["t"], instance_id="i")
    settle(a, s)
    room.now_ms += 1_000
    before, deadlines = copy.deepcopy(room.group), dict(room.timers._deadlines)
    room.failure = code
    request_of(room)
    for name in before.__slots__:
        assert getattr(room.group, name) == getattr(before, name), name
    assert room.timers._deadlines == deadlines and not room.failed
    room.failure = E.NONE
    settle(a, s)
    assert room.state == "Stable"


def test_a_silent_member_is_removed_later_when_its_removal_cannot_be_stored() -> None:
    room = Room({"t": 4})
    settle(ConsumerClient(room, "a", ["t"]))
    room.failure = E.NOT_ENOUGH_REPLICAS
    room.pass_time(46_000)
    assert list(room.group.members) == ["a"]
    room.failure = E.NONE
    room.pass_time(1_000)
    assert not room.group.members
