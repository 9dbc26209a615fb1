"""Klamm and Apache Kafka 4.4 are asked the same questions about groups, and the answers compared field by field.

The member ids that brokers make up are replaced by the order of their making; texts of errors are left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from klamm.client.blocking import NodeClient
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.delete_groups import DeleteGroupsRequest
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
from tests.clients.comparison import differences
from tests.clients.raw import create
from tests.clients.test_reference import flat
from tests.support.apache_kafka import apache_kafka
from tests.support.broker_process import BrokerProcess

pytestmark = [pytest.mark.campaign, pytest.mark.java]

DELAY: Final = "group.initial.rebalance.delay.ms"
SUBSCRIPTION: Final = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"  # version 0, topic "t", no user data
BUSY: Final = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


def join(group: str, member: str = "", **options: Any) -> JoinGroupRequest:
    given = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 20_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        **options,
    }
    return JoinGroupRequest(group_id=group, member_id=member, **given)


def commit(group: str, *offsets: int, topic: str = "t", text: str = "", **options: Any) -> OffsetCommitRequest:
    rows = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=text)
        for index, offset in enumerate(offsets)
    ]
    topics = [OffsetCommitRequestTopic(name=topic, partitions=rows)]
    return OffsetCommitRequest(group_id=group, topics=topics, **options)


def sync(group: str, member: str, generation: int, **options: Any) -> SyncGroupRequest:
    given = [SyncGroupRequestAssignment(member_id=member, assignment=b"all")]
    return SyncGroupRequest(group_id=group, member_id=member, generation_id=generation, assignments=given, **options)


def questions(client: NodeClient) -> Iterator[tuple[str, Any]]:
    """Each with its answer."""
    ask = client.request

    def on_member(group: str, member: str, generation: int, what: str) -> Iterator[tuple[str, Any]]:
        for version in (0, 3, 4):
            beat = HeartbeatRequest(group_id=group, member_id=member, generation_id=generation)
            yield f"heartbeat v{version} {what}", ask(beat, version)
        for version in (0, 3, 5):
            yield f"sync v{version} {what}", ask(sync(group, member, generation), version)
        for version in (2, 8, 9):
            options = {"member_id": member, "generation_id_or_member_epoch": generation}
            yield f"commit v{version} {what}", ask(commit(group, 1, **options), version)

    yield from on_member("none", "x", 1, "to no group")
    yield from on_member("", "x", 1, "to the empty group")
    for version in (0, 4, 5, 9):
        for what, options in {
            "short session": {"session_timeout_ms": 1},
            "long session": {"session_timeout_ms": 2**31 - 1},
            "no protocols": {"protocols": []},
            "no protocol type": {"protocol_type": ""},
        }.items():
            yield f"join v{version} {what}", ask(join("bad", **options), version)
        yield f"join v{version} empty group", ask(join(""), version)
        yield f"join v{version} unknown member", ask(join("none", "x"), version)
    for version in (1, 2, 3, 5):
        leaving = LeaveGroupRequest(group_id="none")
        if version < 3:
            leaving.member_id = "x"
        else:
            leaving.members = [MemberIdentity(member_id="x"), MemberIdentity(group_instance_id="i")]
        yield f"leave v{version} no group", ask(leaving, version)
    ask(DeleteGroupsRequest(groups_names=["bad"]), 2)  # Apache Kafka makes a group even for members that it refuses
    # A group of one
    first = ask(join("g"), 9)
    yield "join", first
    member: str = first.member_id
    joined = ask(join("g", member), 9)
    yield "join with the id", joined
    yield "commit before the sync", ask(commit("g", 1, member_id=member, generation_id_or_member_epoch=1), 9)
    yield "describe before the sync", ask(DescribeGroupsRequest(groups=["g"]), 5)
    yield "sync with another protocol", ask(sync("g", member, 1, protocol_name="other", protocol_type="consumer"), 5)
    yield "sync", ask(sync("g", member, 1, protocol_name="range", protocol_type="consumer"), 5)
    yield from on_member("g", member, 1, "of the member")
    yield from on_member("g", member, 0, "of an old generation")
    yield from on_member("g", member, 2, "of a new generation")
    yield from on_member("g", "x", 1, "of an unknown member")
    yield from on_member("g", "", -1, "of nobody")
    yield "join inconsistent", ask(join("g", protocols=[JoinGroupRequestProtocol(name="other")]), 9)
    yield "join other type", ask(join("g", protocol_type="connect"), 9)
    yield "join unknown", ask(join("g", "x"), 9)
    yield "join unknown instance", ask(join("g", "x", group_instance_id="i"), 9)
    for version in range(7):
        yield f"describe v{version}", ask(DescribeGroupsRequest(groups=["g", "none"]), version)
    yield "describe operations", ask(DescribeGroupsRequest(groups=["g"], include_authorized_operations=True), 6)
    for version in (0, 3, 4, 5):
        yield f"list v{version}", ask(ListGroupsRequest(), version)
    yield "list stable", ask(ListGroupsRequest(states_filter=["Stable"]), 5)
    yield "list empty", ask(ListGroupsRequest(states_filter=["empty"]), 5)
    yield "list type", ask(ListGroupsRequest(types_filter=["consumer"]), 5)
    yield "delete", ask(DeleteGroupsRequest(groups_names=["g", "none"]), 2)
    rows = [OffsetDeleteRequestPartition(partition_index=0)]
    for group, topic in (("g", "t"), ("g", "none"), ("none", "t"), ("", "t")):
        wanted = [OffsetDeleteRequestTopic(name=topic, partitions=rows)]
        yield f"delete offsets {group!r} {topic}", ask(OffsetDeleteRequest(group_id=group, topics=wanted), 0)
    yield "commit text", ask(commit("s", 1, 2, text="x" * 4097), 9)
    yield "commit alone", ask(commit("s", 1, 2, text="x" * 4096), 9)
    yield "commit unknown topic", ask(commit("s", 1, topic="none"), 9)
    yield "commit unknown partition", ask(commit("s", 1, 2, 3, 4), 9)
    yield "commit to the empty group", ask(commit("", 1), 9)
    for version in (1, 2, 5, 7):
        wanted = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1, 9])]
        for group in ("s", "none", ""):
            yield f"fetch v{version} {group!r}", ask(OffsetFetchRequest(group_id=group, topics=wanted), version)
    for version in (8, 9):
        wanted8 = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 9])]
        asked = [
            OffsetFetchRequestGroup(group_id="s", topics=wanted8),
            OffsetFetchRequestGroup(group_id="x", topics=None),
        ]
        yield f"fetch v{version}", ask(OffsetFetchRequest(groups=asked), version)
    # Static members
    static = ask(join("static", group_instance_id="i"), 9)
    yield "join static", static
    old: str = static.member_id
    yield "sync static", ask(sync("static", old, 1, group_instance_id="i"), 5)
    for version in (5, 9):
        again = ask(join("static", group_instance_id="i"), version)
        yield f"join static again v{version}", again
        for identity, what in ((old, "old"), (again.member_id, "new")):
            beat = HeartbeatRequest(group_id="static", member_id=identity, generation_id=1, group_instance_id="i")
            yield f"heartbeat of the {what} one after v{version}", ask(beat, 4)
        old = again.member_id
    gone = [MemberIdentity(member_id="x", group_instance_id="i"), MemberIdentity(group_instance_id="i")]
    yield "leave static", ask(LeaveGroupRequest(group_id="static", members=gone), 5)
    yield "leave", ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member)]), 5)
    yield "describe the empty group", ask(DescribeGroupsRequest(groups=["g", "static", "s"]), 6)
    yield "delete the empty groups", ask(DeleteGroupsRequest(groups_names=["g", "static", "s", "s"]), 2)
    yield "describe the deleted groups", ask(DescribeGroupsRequest(groups=["g", "s"]), 6)


def await_coordinator(client: NodeClient) -> None:
    """Wait until every group has a coordinator, or nearly so."""
    for _ in range(200):
        client.request(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        code = client.request(commit("warm", 1), 8).topics[0].partitions[0].error_code
        if code not in BUSY:
            break
        time.sleep(0.1)


def answers(port: int) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    with NodeClient("127.0.0.1", port, timeout_s=20) as client:
        create(client, "t", 2, {})
        await_coordinator(client)
        ids: dict[str, str] = {}
        for name, answer in questions(client):
            for rows in (getattr(answer, "groups", None), getattr(answer, "results", None)):
                if rows:
                    rows.sort(key=lambda row: row.group_id)
            found[name] = {path: plain(path, value, ids) for path, value in flat(answer)}
    return found


def plain(path: str, value: object, ids: dict[str, str]) -> object:
    """Member ids that a broker has made up, by the order of their making."""
    if path.endswith(("member_id", "leader")) and isinstance(value, str) and len(value) > 36:
        return ids.setdefault(value, f"member {len(ids)}")
    return value


@pytest.mark.timeout(240)
def test_both_give_the_same_answers(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "klamm", {DELAY: 0}) as klamm:
        ours = answers(klamm.port)
        assert "Traceback" not in klamm.log()
    with apache_kafka(tmp_path / "apache", {DELAY: "0"}) as kafka:
        theirs = answers(kafka.port)
    assert len(ours) > 100
    found = differences(ours, theirs)
    assert not found, found
