"""Klamm and Apache Kafka 4.4 are asked the same questions about groups of the consumer protocol (KIP-848).

Topic ids and the member ids that brokers make up are replaced by names; members are sorted; texts of errors are left
out. Apache Kafka resolves expressions after the answer: both are given the time for it.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from klamm.client.blocking import NodeClient
from klamm.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from klamm.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from klamm.protocol.messages.delete_groups import DeleteGroupsRequest
from klamm.protocol.messages.describe_groups import DescribeGroupsRequest
from klamm.protocol.messages.heartbeat import HeartbeatRequest
from klamm.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from klamm.protocol.messages.list_groups import ListGroupsRequest
from klamm.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
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
from klamm.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from klamm.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.clients.comparison import differences
from tests.clients.raw import create
from tests.clients.test_group_reference import await_coordinator
from tests.clients.test_reference import flat
from tests.support.apache_kafka import apache_kafka
from tests.support.broker_process import BrokerProcess

pytestmark = [pytest.mark.campaign, pytest.mark.java]

CONFIG: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.assignor.offload.enable": "false",
}
TOPICS: Final = {"t": 4, "u": 6, "v": 6}
RESOLVED_S: Final = 0.7  # Apache Kafka resolves expressions in the background, at most once in ten seconds for a group


class Asker:
    """Asks one broker, and gives names to its topic ids."""

    def __init__(self, client: NodeClient, *, make: bool = True) -> None:
        self.client = client
        self.ids: dict[str, bytes] = {}
        for name, count in TOPICS.items():
            if make:
                create(client, name, count, {})
            topics = client.request(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12).topics
            self.ids[name] = topics[0].topic_id
        self.names = {topic_id: name for name, topic_id in self.ids.items()}

    def beat(
        self,
        group: str,
        member: str,
        epoch: int,
        names: Sequence[str] | None = None,
        *,
        owned: Mapping[str, Sequence[int]] | None = None,
        version: int = 1,
        **options: Any,
    ) -> Any:
        if epoch == 0:
            options.setdefault("rebalance_timeout_ms", 60_000)
            owned = {} if owned is None else owned
        parts = None
        if owned is not None:
            parts = [TopicPartitions(topic_id=self.ids[name], partitions=[*part]) for name, part in owned.items()]
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            subscribed_topic_names=None if names is None else [*names],
            topic_partitions=parts,
            **options,
        )
        answer = self.client.request(request, version)
        if answer.assignment is not None:  # by name, as ids differ
            answer.assignment = {
                self.names[part.topic_id]: sorted(part.partitions) for part in answer.assignment.topic_partitions
            }
        return answer

    def describe(self, *groups: str, version: int = 1) -> Any:
        answer = self.client.request(ConsumerGroupDescribeRequest(group_ids=[*groups]), version)
        answer.groups.sort(key=lambda group: group.group_id)
        for group in answer.groups:
            group.members.sort(key=lambda member: member.member_id)
            for member in group.members:
                for assignment in (member.assignment, member.target_assignment):
                    assignment.topic_partitions.sort(key=lambda part: part.topic_name)
                    for part in assignment.topic_partitions:
                        part.partitions.sort()
        return answer

    def commit(self, group: str, member: str, epoch: int, version: int, topic: str = "u", index: int = 0) -> Any:
        rows = [OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")]
        named = OffsetCommitRequestTopic(name=topic, topic_id=self.ids[topic], partitions=rows)
        request = OffsetCommitRequest(
            group_id=group, member_id=member, generation_id_or_member_epoch=epoch, topics=[named]
        )
        return self.client.request(request, version)

    def delete(self, *groups: str) -> Any:
        return self.client.request(DeleteGroupsRequest(groups_names=[*groups]), 2)

    def fetch(self, group: str, member: str | None, epoch: int) -> Any:
        topics = [OffsetFetchRequestTopics(name="u", partition_indexes=[0, 5])]
        asked = OffsetFetchRequestGroup(group_id=group, member_id=member, member_epoch=epoch, topics=topics)
        return self.client.request(OffsetFetchRequest(groups=[asked]), 9)


def questions(ask: Asker) -> Iterator[tuple[str, Any]]:
    """Each with its answer."""
    yield from bad_questions(ask)
    yield from lives(ask)
    yield from commits(ask)
    yield from static_members(ask)
    yield from expressions(ask)
    yield from migrations(ask)


def bad_questions(ask: Asker) -> Iterator[tuple[str, Any]]:
    beat = ask.beat
    for version in (0, 1):
        cases: dict[str, tuple[Sequence[Any], dict[str, Any]]] = {
            "no group id": (("", "m", 0, ["t"]), {}),
            "no member id": (("bad", "", 5), {}),
            "no member id to leave": (("bad", "", -1), {}),
            "nothing subscribed": (("bad", "m", 0), {}),
            "no timeout": (("bad", "m", 0, ["t"]), {"rebalance_timeout_ms": -1}),
            "owns": (("bad", "m", 0, ["t"]), {"owned": {"t": [0]}}),
            "no instance": (("bad", "m", 0, ["t"]), {"instance_id": ""}),
            "no rack": (("bad", "m", 0, ["t"]), {"rack_id": ""}),
            "assignor": (("bad", "m", 0, ["t"]), {"server_assignor": "sticky"}),
            "epoch -3": (("bad", "m", -3), {}),
            "epoch -2 of nobody": (("bad", "m", -2), {}),
            "epoch -2": (("bad", "m", -2), {"instance_id": "i"}),
            "no group": (("bad", "m", 1), {}),
            "leave no group": (("bad", "m", -1), {}),
        }
        for what, (asked, options) in cases.items():
            yield f"v{version} {what}", beat(*asked, version=version, **options)
    yield "v1 join without id", beat("bad", "", 0, ["t"])
    yield "describe", ask.describe("bad", "none", "")


def lives(ask: Asker) -> Iterator[tuple[str, Any]]:
    beat = ask.beat
    yield "join", beat("g", "a", 0, ["u"])
    yield "join again", beat("g", "a", 0, ["u"])
    yield "beat", beat("g", "a", 2)
    yield "second joins", beat("g", "b", 0, ["u"])
    yield "describe two", ask.describe("g")
    for version in (5, 6):
        yield f"as a classic group v{version}", ask.client.request(DescribeGroupsRequest(groups=["g"]), version)
    yield "list", ask.client.request(ListGroupsRequest(types_filter=["Consumer"]), 5)
    yield "list reconciling", ask.client.request(ListGroupsRequest(states_filter=["reconciling"]), 5)
    yield "delete", ask.delete("g")
    yield "made to revoke", beat("g", "a", 2, owned={"u": range(6)})
    yield "keeps quiet", beat("g", "a", 2)
    yield "does not revoke", beat("g", "a", 2, owned={"u": range(6)})
    yield "waits", beat("g", "b", 3, owned={})
    yield "describe unrevoked", ask.describe("g", version=0)
    yield "has revoked", beat("g", "a", 2, owned={"u": [0, 1, 2]})
    yield "with the old epoch", beat("g", "a", 2, owned={"u": [0, 1, 2]})
    yield "with the old epoch and more", beat("g", "a", 2, owned={"u": [0, 4]})
    yield "with the old epoch, silent", beat("g", "a", 2)
    yield "gets them", beat("g", "b", 3, owned={})
    yield "describe stable", ask.describe("g")
    yield "newer epoch", beat("g", "a", 9)
    yield "stranger", beat("g", "x", 3)
    yield "all said", beat("g", "a", 3, ["u"], owned={"u": [0, 1, 2]}, rebalance_timeout_ms=60_000)
    yield "subscribes more", beat("g", "a", 3, ["u", "v", "none"], owned={"u": [0, 1, 2]})
    yield "describe more", ask.describe("g")
    yield "leaves a topic", beat("g", "a", 4, ["v"], owned={"u": [0, 1, 2], "v": range(6)})
    yield "describe less", ask.describe("g")
    yield "has left it", beat("g", "a", 4, owned={"v": range(6)})
    yield "other assignor", beat("g", "b", 3, server_assignor="range")
    yield "describe range", ask.describe("g")
    yield "a leaves", beat("g", "a", -1)
    yield "a leaves again", beat("g", "a", -1)
    yield "describe one", ask.describe("g")
    rows = [OffsetDeleteRequestPartition(partition_index=0)]
    for topic in ("u", "v", "none"):
        wanted = OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name=topic, partitions=rows)])
        yield f"delete offsets of {topic}", ask.client.request(wanted, 0)
    yield "b leaves", beat("g", "b", -1)
    yield "describe empty", ask.describe("g")
    yield "join the empty group", beat("g", "c", 0, ["t"])
    yield "c leaves", beat("g", "c", -1)
    yield "delete empty", ask.delete("g")
    yield "describe deleted", ask.describe("g")
    yield "nothing subscribed", beat("n", "a", 0, [])
    yield "unknown topic", beat("o", "a", 0, ["none"])
    for name in "abcd":
        yield f"{name} joins with range", beat("p", name, 0, ["u", "v"], server_assignor="range")
    yield "describe four with range", ask.describe("p")


def commits(ask: Asker) -> Iterator[tuple[str, Any]]:
    ask.beat("c", "a", 0, ["u"])
    ask.beat("c", "b", 0, ["u"])
    ask.beat("c", "a", 2, owned={"u": range(6)})
    ask.beat("c", "a", 2, owned={"u": [0, 1, 2]})
    ask.beat("c", "b", 3, owned={})
    for member, epoch in (("a", 3), ("a", 2), ("a", 1), ("a", 4), ("b", 3), ("b", 2), ("x", 3), ("", -1), ("a", -1)):
        for version in (8, 9, 10):
            yield f"commit v{version} of {member} at {epoch}", ask.commit("c", member, epoch, version)
        yield f"commit of {member} at {epoch} elsewhere", ask.commit("c", member, epoch, 9, index=5)
        yield f"fetch of {member} at {epoch}", ask.fetch("c", member, epoch)
    yield "fetch of nobody", ask.fetch("c", None, -1)
    ask.beat("c", "a", -1)
    ask.beat("c", "b", -1)
    yield "commit to the empty group", ask.commit("c", "", -1, 9)
    yield "commit of a former member", ask.commit("c", "a", 3, 9)


def static_members(ask: Asker) -> Iterator[tuple[str, Any]]:
    beat = ask.beat
    yield "static", beat("s", "a", 0, ["u"], instance_id="i")
    yield "static taken", beat("s", "b", 0, ["u"], instance_id="i")
    yield "static fenced", beat("s", "b", 2, instance_id="i")
    yield "static unknown", beat("s", "a", 2, instance_id="j")
    yield "static leave fenced", beat("s", "b", -2, instance_id="i")
    yield "static away", beat("s", "a", -2, instance_id="i")
    yield "describe away", ask.describe("s")
    yield "static back", beat("s", "b", 0, ["u"], instance_id="i")
    yield "the former one", beat("s", "a", 2, instance_id="i")
    yield "describe back", ask.describe("s")
    yield "static away again", beat("s", "b", -2, instance_id="i")
    yield "static back with more", beat("s", "b", 0, ["u", "v"], instance_id="i")
    yield "static gone", beat("s", "b", -1, instance_id="i")
    yield "describe gone", ask.describe("s")


def expressions(ask: Asker) -> Iterator[tuple[str, Any]]:
    for number, regex in enumerate(("(", "(?=a)", "[", "*", "\\C(")):
        yield f"expression {regex!r}", ask.beat(f"x{number}", "a", 0, subscribed_topic_regex=regex)
    for regex in ("t|u", "^[uv]$", "U", "(?i)U", ""):
        group = f"r{regex}"
        ask.beat(group, "a", 0, subscribed_topic_regex=regex)
        time.sleep(RESOLVED_S)
        epoch = ask.describe(group).groups[0].members[0].member_epoch
        ask.beat(group, "a", epoch)
        yield f"resolved {regex!r}", ask.describe(group)


def migrations(ask: Asker) -> Iterator[tuple[str, Any]]:
    yield "a classic group", classic_member(ask, "m", "i1", "u", {0, 1, 2, 3, 4, 5})
    member: str = ask.client.request(DescribeGroupsRequest(groups=["m"]), 5).groups[0].members[0].member_id
    yield "describe the classic group", ask.describe("m")
    yield "beat in it", ask.beat("m", "c", 3)
    yield "leave it", ask.beat("m", "c", -1)
    yield "upgrade", ask.beat("m", "c", 0, ["u"])
    yield "describe upgraded", ask.describe("m")
    heart = HeartbeatRequest(group_id="m", member_id=member, generation_id=1, group_instance_id="i1")
    yield "classic heartbeat", ask.client.request(heart, 4)
    for what, options in (
        ("old generation", {"generation_id": 0}),
        ("unknown member", {"member_id": "x"}),
        ("of the other protocol", {"member_id": "c", "group_instance_id": None, "generation_id": 2}),
    ):
        given = {"group_id": "m", "member_id": member, "generation_id": 1, "group_instance_id": "i1", **options}
        yield f"classic heartbeat {what}", ask.client.request(HeartbeatRequest(**given), 4)
        yield f"classic sync {what}", ask.client.request(SyncGroupRequest(**given), 3)
    yield "classic join", rejoin(ask, "m", member, "i1", "u", range(6))
    yield "describe made to revoke", ask.describe("m")
    yield (
        "classic sync",
        ask.client.request(
            SyncGroupRequest(group_id="m", member_id=member, generation_id=1, group_instance_id="i1"), 3
        ),
    )
    yield "classic heartbeat unrevoked", ask.client.request(heart, 4)
    yield "classic join with less", rejoin(ask, "m", member, "i1", "u", range(3))
    heart = HeartbeatRequest(group_id="m", member_id=member, generation_id=2, group_instance_id="i1")
    yield "classic heartbeat revoked", ask.client.request(heart, 4)
    yield (
        "classic sync revoked",
        ask.client.request(
            SyncGroupRequest(group_id="m", member_id=member, generation_id=2, group_instance_id="i1"), 3
        ),
    )
    yield "the other gets the rest", ask.beat("m", "c", 2, owned={})
    yield "describe mixed", ask.describe("m")
    yield "wrong protocol", ask.client.request(join("m", "u", [], name="other", group_instance_id="i9"), 9)
    yield "not a consumer", ask.client.request(join("m", "u", [], protocol_type="connect", group_instance_id="i9"), 9)
    yield "commit of the classic one", ask.commit("m", member, 2, 8)
    yield "commit of the classic one, stale", ask.commit("m", member, 1, 8)
    yield "downgrade", ask.beat("m", "c", -1)
    yield "describe downgraded", ask.describe("m")
    yield "classic heartbeat after it", ask.client.request(heart, 4)
    leaving = [MemberIdentity(group_instance_id="i1")]
    yield "classic leave", ask.client.request(LeaveGroupRequest(group_id="m", members=leaving), 5)
    yield "describe left", ask.client.request(DescribeGroupsRequest(groups=["m"]), 6)
    yield "take the empty classic group", ask.beat("m", "d", 0, ["u"])
    yield "leave it empty", ask.beat("m", "d", -1)
    yield "a classic group of it", classic_member(ask, "m", "i2", "u", {0})
    other = JoinGroupRequestProtocol(name="p", metadata=b"")
    connect = JoinGroupRequest(
        group_id="k", session_timeout_ms=10_000, rebalance_timeout_ms=20_000, group_instance_id="i",
        protocol_type="connect", protocols=[other],
    )  # fmt: skip
    ask.client.request(connect, 9)
    yield "a group of another type", ask.beat("k", "c", 0, ["u"])


def subscription(topic: str, owned: Sequence[int]) -> bytes:
    name = struct.pack(">h", len(topic)) + topic.encode()
    out = struct.pack(">hi", 1, 1) + name + struct.pack(">i", -1)
    if not owned:
        return out + struct.pack(">i", 0)
    return out + struct.pack(">i", 1) + name + struct.pack(f">i{len(owned)}i", len(owned), *owned)


def join(group: str, topic: str, owned: Sequence[int], *, name: str = "range", **options: Any) -> JoinGroupRequest:
    given = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 20_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name=name, metadata=subscription(topic, owned))],
        **options,
    }
    return JoinGroupRequest(group_id=group, **given)


def rejoin(ask: Asker, group: str, member: str, instance: str, topic: str, owned: Sequence[int]) -> Any:
    return ask.client.request(join(group, topic, owned, member_id=member, group_instance_id=instance), 9)


def classic_member(ask: Asker, group: str, instance: str, topic: str, owned: set[int]) -> Any:
    """A stable classic group of one static member with these partitions."""
    joined = ask.client.request(join(group, topic, [], group_instance_id=instance), 9)
    part = subscription(topic, sorted(owned))
    assignment = struct.pack(">h", 1) + part[2 + 4 + 2 + len(topic) + 4 :] + struct.pack(">i", -1)
    given = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)]
    return ask.client.request(
        SyncGroupRequest(
            group_id=group, member_id=joined.member_id, generation_id=joined.generation_id,
            group_instance_id=instance, assignments=given,
        ),
        3,
    )  # fmt: skip


def answers(port: int) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    with NodeClient("127.0.0.1", port, timeout_s=20) as client:
        ask = Asker(client)
        await_coordinator(client)
        ids: dict[str, str] = {}
        for name, answer in questions(ask):
            rows = getattr(answer, "groups", None)
            if rows:
                rows.sort(key=lambda row: row.group_id)
            assert name not in found, name
            found[name] = {path: plain(path, value, ask, ids) for path, value in flat(answer)}
    return found


def plain(path: str, value: object, ask: Asker, ids: dict[str, str]) -> object:
    """What differs from broker to broker, by names."""
    if isinstance(value, bytes) and value in ask.names:
        return ask.names[value]
    if isinstance(value, str) and path.endswith("member_id") and len(value) > 20:
        return ids.setdefault(value, f"member {len(ids)}")
    return value


@pytest.mark.timeout(300)
def test_both_give_the_same_answers(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "klamm", CONFIG) as klamm:
        ours = answers(klamm.port)
        assert "Traceback" not in klamm.log()
    with apache_kafka(tmp_path / "apache", CONFIG) as kafka:
        theirs = answers(kafka.port)
    assert len(ours) > 150
    found = differences(ours, theirs)
    assert not found, found
