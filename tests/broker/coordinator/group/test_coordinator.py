"""The coordinator in a whole broker: commits and fetches, what a restart keeps, expiry, and what bad input gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.coordinator.runtime.internal_topic import partition_of
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.delete_groups import DeleteGroupsRequest
from klamm.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from klamm.protocol.messages.describe_groups import DescribeGroupsRequest
from klamm.protocol.messages.find_coordinator import FindCoordinatorRequest
from klamm.protocol.messages.heartbeat import HeartbeatRequest
from klamm.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from klamm.protocol.messages.list_groups import ListGroupsRequest
from klamm.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from klamm.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from klamm.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.embedded import EmbeddedBroker

NONE = ErrorCode.NONE
MINUTE_MS = 60_000
CONFIG = {
    "offsets.topic.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.retention.minutes": 60,
}
FLUSHED = {**CONFIG, "log.flush.interval.messages": 1}
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"  # version 0, one topic "t", no user data


def opened(path: Path, config: dict[str, object] | None = None) -> EmbeddedBroker:
    return EmbeddedBroker(path, config or CONFIG)


@pytest.fixture(params=[CONFIG, FLUSHED], ids=["unflushed", "flushed"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with opened(tmp_path, request.param) as broker:
        begin(broker)
        yield broker


def begin(broker: EmbeddedBroker) -> None:
    """The coordinator's topic and the topic "t" of two partitions."""
    broker.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    broker.create_topic("t", partitions=2)


def partitions(*offsets: int, metadata: str = "", **options: Any) -> list[OffsetCommitRequestPartition]:
    return [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=metadata, **options
        )
        for index, offset in enumerate(offsets)
    ]


def commit(
    broker: EmbeddedBroker,
    *offsets: int,
    version: int = 9,
    group: str = "g",
    topic: str = "t",
    metadata: str = "",
    timestamp: int = -1,
    **options: Any,
) -> list[ErrorCode]:
    topic_id = broker.broker.image.topics[topic].topic_id if topic in broker.broker.image.topics else b"?" * 16
    entries = partitions(*offsets, metadata=metadata, commit_timestamp=timestamp)
    if version != 1:
        entries = partitions(*offsets, metadata=metadata)
    topics = [OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=entries)]
    response = broker.call(OffsetCommitRequest(group_id=group, topics=topics, **options), version)
    return [ErrorCode(row.error_code) for row in response.topics[0].partitions]


def fetch(
    broker: EmbeddedBroker, *indexes: int, version: int = 7, group: str = "g", topic: str = "t"
) -> list[tuple[int, ErrorCode]]:
    """(offset, error) of each partition."""
    if version >= 8:
        topic_id = broker.broker.image.topics[topic].topic_id if topic in broker.broker.image.topics else b"?" * 16
        wanted = [OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=list(indexes))]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)])
        answer = broker.call(request, version).groups[0]
    else:
        old = [OffsetFetchRequestTopic(name=topic, partition_indexes=list(indexes))]
        answer = broker.call(OffsetFetchRequest(group_id=group, topics=old), version)
    assert version < 2 or answer.error_code == NONE
    return [(row.committed_offset, ErrorCode(row.error_code)) for row in answer.topics[0].partitions]


def offsets(broker: EmbeddedBroker, *indexes: int, **options: Any) -> list[int]:
    return [offset for offset, _ in fetch(broker, *indexes, **options)]


def join(broker: EmbeddedBroker, member: str = "", *, group: str = "g", version: int = 9, **options: Any) -> Any:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)]
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member,
        protocol_type="consumer",
        protocols=protocols,
        **options,
    )
    return broker.call(request, version)


def enter(broker: EmbeddedBroker, group: str = "g", instance: str | None = None) -> str:
    """The only member of a stable group."""
    if instance is None:
        member: str = join(broker, group=group).member_id
        joined = join(broker, member, group=group)
    else:
        joined = join(broker, group=group, group_instance_id=instance)
        member = joined.member_id
    assert joined.error_code == NONE
    assignments = [SyncGroupRequestAssignment(member_id=member, assignment=b"all")]
    request = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=member,
        group_instance_id=instance,
        assignments=assignments,
        protocol_type="consumer",
        protocol_name="range",
    )
    synced = broker.call(request, 5)
    assert (synced.error_code, synced.assignment) == (NONE, b"all")
    return member


def states(broker: EmbeddedBroker, **filters: Sequence[str]) -> dict[str, str]:
    response = broker.call(ListGroupsRequest(**{name: list(wanted) for name, wanted in filters.items()}), 5)
    assert response.error_code == NONE
    return {row.group_id: row.group_state for row in response.groups}


def reopened(broker: EmbeddedBroker) -> None:
    broker.run(broker.broker.groups.topic.loaded())


# -- commits and fetches --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 11))
def test_what_is_committed_is_fetched(broker: EmbeddedBroker, version: int) -> None:
    assert commit(broker, 5, 6, version=version, metadata="hi") == [NONE, NONE]
    for fetch_version in range(1, 11):
        assert offsets(broker, 0, 1, 2, version=fetch_version) == [5, 6, -1]
    assert broker.broker.groups.offsets.of("g")["t"][0].metadata == "hi"


def test_a_fetch_of_everything(broker: EmbeddedBroker) -> None:
    commit(broker, 5, 6)
    assert [len(t.partitions) for t in broker.call(OffsetFetchRequest(group_id="g", topics=None), 7).topics] == [2]
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("g", "nobody")]
    answer = broker.call(OffsetFetchRequest(groups=groups), 10)
    assert [(row.group_id, row.error_code, len(row.topics)) for row in answer.groups] == [("g", 0, 1), ("nobody", 0, 0)]
    assert answer.groups[0].topics[0].topic_id == broker.broker.image.topics["t"].topic_id


@pytest.mark.parametrize("version", range(11))
def test_unknown_topics(broker: EmbeddedBroker, version: int) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(broker, 1, topic="none", version=version) == [unknown]
    code = {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 10: ErrorCode.UNKNOWN_TOPIC_ID}.get(version, NONE)
    assert fetch(broker, 0, topic="none", version=version) == [(-1, code)]
    beyond = commit(broker, 1, 2, 3, version=version)
    assert beyond == [NONE, NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_metadata_has_a_limit(broker: EmbeddedBroker) -> None:
    assert commit(broker, 1, metadata="x" * 4096) == [NONE]
    assert commit(broker, 2, 3, metadata="x" * 4097) == [ErrorCode.OFFSET_METADATA_TOO_LARGE] * 2
    assert offsets(broker, 0, 1) == [1, -1]


def test_a_commit_that_is_larger_than_a_batch_may_be(broker: EmbeddedBroker) -> None:
    broker.create_topic("wide", partitions=400)
    many = partitions(*range(400), metadata="x" * 4000)
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="wide", partitions=many)])
    answer = broker.call(request, 9).topics[0].partitions
    assert {row.error_code for row in answer} == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert offsets(broker, 0, topic="wide") == [-1]


def test_commits_are_checked_against_the_group(broker: EmbeddedBroker) -> None:
    member = enter(broker)
    assert commit(broker, 1, generation_id_or_member_epoch=1, member_id=member) == [NONE]
    assert commit(broker, 2) == [ErrorCode.UNKNOWN_MEMBER_ID]  # of no member, while there are some
    assert commit(broker, 2, generation_id_or_member_epoch=1, member_id="x") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(broker, 2, generation_id_or_member_epoch=0, member_id=member) == [ErrorCode.ILLEGAL_GENERATION]
    other = ErrorCode.ILLEGAL_GENERATION
    assert commit(broker, 2, generation_id_or_member_epoch=1, member_id="x", group="no", version=8) == [other]
    other = ErrorCode.GROUP_ID_NOT_FOUND
    assert commit(broker, 2, generation_id_or_member_epoch=1, member_id="x", group="no", version=9) == [other]
    assert offsets(broker, 0) == [1]


def test_a_fenced_static_member_does_not_commit(broker: EmbeddedBroker) -> None:
    old = enter(broker, instance="i")
    new = join(broker, group_instance_id="i").member_id
    options = {"generation_id_or_member_epoch": 1, "group_instance_id": "i"}
    assert commit(broker, 2, member_id=old, **options) == [ErrorCode.FENCED_INSTANCE_ID]
    assert commit(broker, 2, member_id=new, **options) == [NONE]


def test_a_commit_before_the_assignment_is_refused(broker: EmbeddedBroker) -> None:
    member = join(broker).member_id
    generation = join(broker, member).generation_id
    code = commit(broker, 1, generation_id_or_member_epoch=generation, member_id=member)
    assert code == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_a_commit_is_a_heartbeat(broker: EmbeddedBroker) -> None:
    member = enter(broker)
    for _ in range(3):
        broker.clock.advance(6_000)
        broker.run(_tick(broker))
        assert commit(broker, 1, generation_id_or_member_epoch=1, member_id=member) == [NONE]


async def _tick(broker: EmbeddedBroker) -> None:
    broker.broker.groups.runtime.timer.tick()


def test_a_commit_times_out_when_its_flush_hangs(tmp_path: Path) -> None:
    with opened(tmp_path, FLUSHED) as broker:
        begin(broker)
        flusher = broker.broker.flusher
        forever = broker.loop.create_future()
        flusher.flush = lambda partition: forever  # type: ignore[method-assign]
        topics = [OffsetCommitRequestTopic(name="t", partitions=partitions(1))]
        answer = broker.start(OffsetCommitRequest(group_id="g", topics=topics), 9)
        broker.clock.advance(5_000)
        broker.run(_tick(broker))
        code = broker.run(answer).topics[0].partitions[0].error_code
        assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert offsets(broker, 0) == [-1]
        forever.set_result(None)
        broker.run(_tick(broker))
        assert offsets(broker, 0) == [1]


# -- the offsets of version 0 ---------------------------------------------------------------------------------------


def test_version_0_has_a_store_of_its_own(tmp_path: Path) -> None:
    with opened(tmp_path) as broker:
        begin(broker)
        assert commit(broker, 5, version=0) == [NONE]
        assert commit(broker, 7, version=0) == [NONE]
        assert fetch(broker, 0, 1, version=0) == [(7, NONE), (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        assert fetch(broker, 0, version=1) == [(-1, NONE)]
        commit(broker, 9, version=1)
        assert fetch(broker, 0, version=0) == [(7, NONE)]
    with opened(tmp_path) as broker:
        assert fetch(broker, 0, version=0) == [(7, NONE)]


@pytest.mark.parametrize("group", ["", "a/b", ".."])
def test_version_0_needs_a_group_that_can_be_a_node(broker: EmbeddedBroker, group: str) -> None:
    assert commit(broker, 5, version=0, group=group) == [ErrorCode.INVALID_GROUP_ID]
    assert fetch(broker, 0, version=0, group=group) == [(-1, ErrorCode.INVALID_GROUP_ID)]


# -- restarts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_offsets_and_groups_survive_a_restart(tmp_path: Path, clean: bool) -> None:
    broker = opened(tmp_path)
    broker.__enter__()
    begin(broker)
    member = enter(broker)
    commit(broker, 5, 6, generation_id_or_member_epoch=1, member_id=member, metadata="hi")
    commit(broker, 1, group="simple")
    for number in range(20):
        commit(broker, number, group="simple")
    broker.__exit__(None, None, None) if clean else broker.crash()
    with opened(tmp_path) as broker:
        reopened(broker)
        assert offsets(broker, 0, 1, group="g") == [5, 6]
        assert offsets(broker, 0, group="simple") == [19]
        assert states(broker) == {"g": "Stable", "simple": "Empty"}
        heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
        assert broker.call(heartbeat, 4).error_code == NONE
        described = broker.call(DescribeGroupsRequest(groups=["g"]), 6).groups[0]
        assert (described.protocol_data, described.members[0].member_assignment) == ("range", b"all")
        broker.clock.advance(10_000)  # nobody comes back
        broker.run(_tick(broker))
        assert states(broker)["g"] == "Empty"


def test_until_its_partition_is_read_a_group_is_loading(tmp_path: Path) -> None:
    with opened(tmp_path) as broker:
        begin(broker)
        commit(broker, 5)
    with opened(tmp_path) as broker:
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        answer = broker.call(OffsetFetchRequest(group_id="g", topics=[]), 7)
        assert answer.error_code == loading
        assert commit(broker, 6) in ([loading], [NONE])
        reopened(broker)
        assert offsets(broker, 0)[0] in (5, 6)


def test_without_the_topic_nobody_is_the_coordinator(tmp_path: Path) -> None:
    with opened(tmp_path) as broker:
        broker.create_topic("t")
        other = ErrorCode.NOT_COORDINATOR
        assert commit(broker, 1) == [other]
        assert join(broker).error_code == other
        assert broker.call(OffsetFetchRequest(group_id="g", topics=[]), 7).error_code == other
        assert broker.call(HeartbeatRequest(group_id="g"), 4).error_code == other
        assert broker.call(DescribeGroupsRequest(groups=["g"]), 6).groups[0].error_code == other
        assert broker.call(DeleteGroupsRequest(groups_names=["g"]), 2).results[0].error_code == other
        assert states(broker) == {}


def test_groups_of_a_partition_that_cannot_be_read_have_no_coordinator(tmp_path: Path) -> None:
    with opened(tmp_path) as broker:
        begin(broker)
        commit(broker, 5)
    with opened(tmp_path) as broker:
        kept = broker.broker.partitions.topics["__consumer_offsets"].partitions
        logs = [partition.log for partition in kept]
        for partition in kept:
            partition.go_offline("the disk is gone")
        assert commit(broker, 6) == [ErrorCode.NOT_COORDINATOR]
        assert states(broker) == {}
        for partition, log in zip(kept, logs, strict=True):
            partition.log = log


def test_offsets_of_a_topic_go_with_it(tmp_path: Path) -> None:
    with opened(tmp_path) as broker:
        begin(broker)
        broker.create_topic("u")
        commit(broker, 5)
        commit(broker, 6, topic="u")
        broker.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
        broker.create_topic("t", partitions=2)
        assert (offsets(broker, 0), offsets(broker, 0, topic="u")) == ([-1], [6])
    with opened(tmp_path) as broker:
        reopened(broker)
        assert (offsets(broker, 0), offsets(broker, 0, topic="u")) == ([-1], [6])


def test_offsets_of_a_topic_recreated_while_nobody_looked_are_dropped(tmp_path: Path) -> None:
    with opened(tmp_path) as broker:
        begin(broker)
        commit(broker, 5)

        async def nothing(topics: object) -> None: ...

        broker.broker.groups.removals._remove_all_of = nothing  # type: ignore[method-assign]
        broker.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
        broker.create_topic("t", partitions=2)
    with opened(tmp_path) as broker:
        reopened(broker)
        assert offsets(broker, 0) == [-1]


def test_deleting_the_offsets_topic_forgets_all_and_it_is_made_again(tmp_path: Path) -> None:
    with opened(tmp_path) as broker:
        begin(broker)
        enter(broker)
        commit(broker, 5, group="simple")
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="__consumer_offsets")], timeout_ms=1000)
        broker.call(request, 6)
        assert states(broker) == {}
        assert commit(broker, 1) == [ErrorCode.NOT_COORDINATOR]
        broker.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        assert offsets(broker, 0, group="simple") == [-1]
        assert commit(broker, 1) == [NONE]


# -- expiry ---------------------------------------------------------------------------------------------------------


def expire(broker: EmbeddedBroker, after_ms: int) -> None:
    broker.clock.advance(after_ms)
    broker.run(broker.broker.groups.expiry.expire())
    broker.run(broker.broker.flusher.drain())
    broker.run(_tick(broker))


def test_offsets_of_a_standalone_consumer_expire_after_their_commit(broker: EmbeddedBroker) -> None:
    commit(broker, 5)
    expire(broker, 30 * MINUTE_MS)
    commit(broker, 6, 7)
    expire(broker, 59 * MINUTE_MS)
    assert offsets(broker, 0, 1) == [6, 7]
    expire(broker, MINUTE_MS)
    assert offsets(broker, 0, 1) == [-1, -1]
    assert states(broker) == {}  # the group goes with its last offset


def test_a_clock_that_jumps_ahead_expires_no_offsets_for_an_hour(broker: EmbeddedBroker) -> None:
    commit(broker, 5)
    broker.clock.jump_wall(8 * 24 * 60 * MINUTE_MS)
    expire(broker, MINUTE_MS)
    assert offsets(broker, 0) == [5]
    expire(broker, 61 * MINUTE_MS)
    assert offsets(broker, 0) == [-1]


def test_offsets_of_an_empty_group_expire_after_it_became_empty(broker: EmbeddedBroker) -> None:
    member = enter(broker)
    commit(broker, 5, generation_id_or_member_epoch=1, member_id=member)
    expire(broker, 5_000)
    broker.clock.advance(50 * MINUTE_MS)
    broker.call(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member)]), 5)
    expire(broker, 59 * MINUTE_MS)
    assert offsets(broker, 0) == [5]
    expire(broker, MINUTE_MS)
    assert offsets(broker, 0) == [-1] and states(broker) == {}


def test_of_a_stable_consumer_group_only_topics_that_it_left_expire(broker: EmbeddedBroker) -> None:
    broker.create_topic("u")
    commit(broker, 6, topic="u")
    commit(broker, 5)
    enter(broker)
    expire(broker, 60 * MINUTE_MS)
    assert offsets(broker, 0) == [5] and offsets(broker, 0, topic="u") == [-1]


@pytest.mark.parametrize("version", [2, 4])
def test_a_retention_time_of_its_own(broker: EmbeddedBroker, version: int) -> None:
    commit(broker, 5, version=version, retention_time_ms=5 * MINUTE_MS)
    commit(broker, 5, version=version, group="usual", retention_time_ms=-1)
    expire(broker, 5 * MINUTE_MS)
    assert offsets(broker, 0) == [-1] and offsets(broker, 0, group="usual") == [5]


@pytest.mark.parametrize("retention_time_ms", [2**63 - 1, 2**63 - MINUTE_MS])
def test_a_retention_time_beyond_the_end_of_time_is_for_ever(broker: EmbeddedBroker, retention_time_ms: int) -> None:
    assert commit(broker, 5, version=2, retention_time_ms=retention_time_ms) == [NONE]
    expire(broker, 1000 * MINUTE_MS)
    assert offsets(broker, 0) == [5]


def test_a_timestamp_of_version_1_counts_for_expiry(broker: EmbeddedBroker) -> None:
    commit(broker, 5, version=1, timestamp=broker.clock.wall_ms() - 59 * MINUTE_MS)
    expire(broker, MINUTE_MS)
    assert offsets(broker, 0) == [-1]


def test_what_has_expired_does_not_come_back(tmp_path: Path) -> None:
    with opened(tmp_path) as broker:
        begin(broker)
        commit(broker, 5)
        expire(broker, 60 * MINUTE_MS)
    with opened(tmp_path) as broker:
        reopened(broker)
        assert offsets(broker, 0) == [-1] and states(broker) == {}


# -- the other APIs -------------------------------------------------------------------------------------------------


def test_list_groups_filters(broker: EmbeddedBroker) -> None:
    enter(broker)
    commit(broker, 5, group="simple")
    assert states(broker) == {"g": "Stable", "simple": "Empty"}
    assert states(broker, states_filter=["stable"]) == {"g": "Stable"}
    assert states(broker, types_filter=["Classic"]) == {"g": "Stable", "simple": "Empty"}
    assert states(broker, types_filter=["consumer"]) == {}


@pytest.mark.parametrize("version", range(7))
def test_describe_groups(broker: EmbeddedBroker, version: int) -> None:
    member = enter(broker)
    found, missing = broker.call(DescribeGroupsRequest(groups=["g", "none"]), version).groups
    assert (found.error_code, found.group_state, found.protocol_type) == (NONE, "Stable", "consumer")
    row = found.members[0]
    assert (row.member_id, row.client_id, row.client_host) == (member, "test", "/127.0.0.1")
    assert (row.member_metadata, row.member_assignment) == (SUBSCRIPTION, b"all")
    assert missing.group_state == "Dead"
    assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else NONE)


def test_members_show_their_last_assignment_in_a_rebalance(broker: EmbeddedBroker) -> None:
    member = enter(broker)
    join(broker, member)
    (found,) = broker.call(DescribeGroupsRequest(groups=["g"]), 6).groups
    assert found.group_state == "CompletingRebalance"
    assert (found.members[0].member_metadata, found.members[0].member_assignment) == (b"", b"all")


def test_delete_groups(broker: EmbeddedBroker) -> None:
    enter(broker, "busy")
    commit(broker, 5)
    response = broker.call(DeleteGroupsRequest(groups_names=["g", "busy", "none"]), 3)
    codes = {row.group_id: ErrorCode(row.error_code) for row in response.results}
    assert codes == {"g": NONE, "busy": ErrorCode.NON_EMPTY_GROUP, "none": ErrorCode.GROUP_ID_NOT_FOUND}
    broker.run(broker.broker.flusher.drain())
    broker.run(_tick(broker))
    assert states(broker) == {"busy": "Stable"} and offsets(broker, 0) == [-1]


def test_delete_offsets(broker: EmbeddedBroker) -> None:
    broker.create_topic("u")
    commit(broker, 5, 6)
    commit(broker, 7, topic="u")
    enter(broker)

    def delete(topic: str, group: str = "g", partition: int = 0) -> tuple[ErrorCode, ErrorCode | None]:
        rows = [OffsetDeleteRequestPartition(partition_index=partition)]
        topics = [OffsetDeleteRequestTopic(name=topic, partitions=rows)]
        response = broker.call(OffsetDeleteRequest(group_id=group, topics=topics), 0)
        broker.run(broker.broker.flusher.drain())
        broker.run(_tick(broker))
        found = ErrorCode(response.topics[0].partitions[0].error_code) if response.topics else None
        return ErrorCode(response.error_code), found

    assert delete("t", partition=2) == delete("u", partition=-1) == (NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert delete("t") == (NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    assert delete("u") == (NONE, NONE)
    assert delete("none") == (NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert delete("t", "none") == (ErrorCode.GROUP_ID_NOT_FOUND, None)
    assert delete("t", "") == (ErrorCode.INVALID_GROUP_ID, None)
    assert offsets(broker, 0, 1) == [5, 6] and offsets(broker, 0, topic="u") == [-1]


@pytest.mark.parametrize("version", range(6))
def test_leave_group(broker: EmbeddedBroker, version: int) -> None:
    member = enter(broker)
    for identity, code in ((member, NONE), (member, ErrorCode.UNKNOWN_MEMBER_ID)):
        request = LeaveGroupRequest(group_id="g", member_id=identity, members=[MemberIdentity(member_id=identity)])
        if version < 3:
            request.members = []
        else:
            request.member_id = ""
        response = broker.call(request, version)
        assert (response.members[0].error_code if version >= 3 else response.error_code) == code


@pytest.mark.parametrize("version", range(10))
def test_join_group_answers_in_every_version(broker: EmbeddedBroker, version: int) -> None:
    first = join(broker, version=version)
    if version >= 4:
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        first = join(broker, first.member_id, version=version)
    assert first.error_code == NONE and first.leader == first.member_id
    assert join(broker, "nobody", version=version).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_shutdown_answers_waiting_requests(tmp_path: Path) -> None:
    with opened(tmp_path, {**CONFIG, "group.initial.rebalance.delay.ms": 3000}) as broker:
        begin(broker)
        member = join(broker).member_id
        protocols = [JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)]
        request = JoinGroupRequest(
            group_id="g", session_timeout_ms=10_000, member_id=member, protocol_type="consumer", protocols=protocols
        )
        waiting = broker.start(request, 9)
        broker.broker.complete_delayed_fetches()
        assert broker.run(waiting).error_code == ErrorCode.NOT_COORDINATOR
        assert commit(broker, 1) == [ErrorCode.NOT_COORDINATOR]


@pytest.mark.parametrize(
    ("group", "partition"),
    [("", 0), ("g", 3), ("console-consumer-1", 24), ("polygenelubricants", 0), ("gruppe-ü", 22), ("😀", 49)],
)
def test_the_partition_of_a_group_is_kafkas(group: str, partition: int) -> None:
    assert partition_of(group, 50) == partition
