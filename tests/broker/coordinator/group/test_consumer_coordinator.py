"""Consumer groups in a whole broker: configs, topics, commits by epoch, restarts, deletion, metrics, a bad disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.controller.features import GROUP_VERSION, FeatureUpdate, UpgradeType
from klamm.broker.metrics.exposition import Exposition
from klamm.broker.partitions.partition import Partition
from klamm.protocol.errors import ErrorCode, NotEnoughReplicas
from klamm.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from klamm.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from klamm.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from klamm.protocol.messages.delete_groups import DeleteGroupsRequest
from klamm.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from klamm.protocol.messages.find_coordinator import FindCoordinatorRequest
from klamm.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm.protocol.messages.join_group import JoinGroupRequest
from klamm.protocol.messages.list_config_resources import ListConfigResourcesRequest
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
from tests.support.embedded import EmbeddedBroker

E = ErrorCode
MINUTE_MS = 60_000
CONFIG = {
    "offsets.topic.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "offsets.retention.minutes": 60,
}
FLUSHED = {**CONFIG, "log.flush.interval.messages": 1}
GROUP_RESOURCE = 32


@pytest.fixture(params=[CONFIG, FLUSHED], ids=["unflushed", "flushed"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path, request.param) as broker:
        begin(broker)
        yield broker


def begin(broker: EmbeddedBroker) -> None:
    broker.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    broker.create_topic("t", partitions=4)


def beat(
    broker: EmbeddedBroker,
    member: str,
    epoch: int,
    names: Sequence[str] | None = None,
    *,
    owned: Sequence[int] | None = None,
    group: str = "g",
    **options: Any,
) -> Any:
    if epoch == 0:
        options.setdefault("rebalance_timeout_ms", 60_000)
    parts = [] if epoch == 0 else None
    if owned is not None:
        parts = [TopicPartitions(topic_id=broker.broker.image.topics["t"].topic_id, partitions=[*owned])]
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        subscribed_topic_names=None if names is None else [*names],
        topic_partitions=parts,
        **options,
    )
    return broker.call(request, 1)


def parts(answer: Any) -> list[int]:
    assert answer.error_code == 0, answer
    return [index for topic in answer.assignment.topic_partitions for index in topic.partitions]


def describe(broker: EmbeddedBroker, group: str = "g") -> Any:
    return broker.call(ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups[0]


def commit(broker: EmbeddedBroker, member: str, epoch: int, version: int = 9) -> int:
    rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")]
    topics = [OffsetCommitRequestTopic(name="t", partitions=rows)]
    request = OffsetCommitRequest(group_id="g", member_id=member, generation_id_or_member_epoch=epoch, topics=topics)
    return int(broker.call(request, version).topics[0].partitions[0].error_code)


def after(broker: EmbeddedBroker, ms: int) -> None:
    """Move the clock and do the work that is due by then."""

    async def tick() -> None:
        broker.broker.groups.runtime.timer.tick()

    broker.clock.advance(ms)
    broker.run(tick())
    broker.run(broker.broker.flusher.drain())


def expire(broker: EmbeddedBroker) -> None:
    broker.run(broker.broker.groups.expiry.expire())
    broker.run(broker.broker.flusher.drain())


def alter(broker: EmbeddedBroker, group: str, **keys: str) -> int:
    configs = [
        AlterableConfig(name=name.replace("_", "."), config_operation=0, value=text) for name, text in keys.items()
    ]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=configs)
    return int(broker.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code)


def test_a_group_lives_and_is_deleted(broker: EmbeddedBroker) -> None:
    assert parts(beat(broker, "a", 0, ["t"])) == [0, 1, 2, 3]
    assert commit(broker, "a", 2) == 0
    assert commit(broker, "a", 1) == E.STALE_MEMBER_EPOCH
    assert commit(broker, "a", 2, version=8) == E.UNSUPPORTED_VERSION
    (deleted,) = broker.call(DeleteGroupsRequest(groups_names=["g"]), 2).results
    assert deleted.error_code == E.NON_EMPTY_GROUP
    beat(broker, "a", -1)
    (deleted,) = broker.call(DeleteGroupsRequest(groups_names=["g"]), 2).results
    assert deleted.error_code == 0
    assert describe(broker).error_code == E.GROUP_ID_NOT_FOUND
    assert not broker.broker.groups.offsets.of("g") and not broker.broker.groups.consumers.groups


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crash"])
@pytest.mark.parametrize("config", [CONFIG, FLUSHED], ids=["unflushed", "flushed"])
def test_a_restart_keeps_epochs_assignments_and_deletions(tmp_path: Path, clean: bool, config: dict[str, Any]) -> None:
    broker = EmbeddedBroker(tmp_path, config).__enter__()
    begin(broker)
    beat(broker, "a", 0, ["t"])
    beat(broker, "b", 0, subscribed_topic_regex="t|u")
    beat(broker, "a", 2, owned=[0, 1, 2, 3])
    assert commit(broker, "a", 2) == 0
    beat(broker, "a", 0, ["t"], group="gone")
    beat(broker, "a", -1, group="gone")
    broker.call(DeleteGroupsRequest(groups_names=["gone"]), 2)
    before = describe(broker)
    broker.__exit__(None, None, None) if clean else broker.crash()
    with EmbeddedBroker(tmp_path, config) as broker:
        broker.run(broker.broker.groups.topic.loaded())
        assert describe(broker) == before
        assert describe(broker, "gone").error_code == E.GROUP_ID_NOT_FOUND
        assert beat(broker, "a", 2, owned=[0, 1]).member_epoch == 3
        assert parts(beat(broker, "b", 3)) == [2, 3]
        committed = broker.broker.groups.offsets.get("g", "t", 0)
        assert committed is not None and committed.offset == 7


def test_members_that_do_not_come_back_after_a_restart_expire(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, CONFIG) as broker:
        begin(broker)
        beat(broker, "a", 0, ["t"])
    with EmbeddedBroker(tmp_path, CONFIG) as broker:
        broker.run(broker.broker.groups.topic.loaded())
        after(broker, 45_000)
        assert describe(broker).group_state == "Empty"


def test_topics_that_come_grow_and_go_are_seen(broker: EmbeddedBroker) -> None:
    assert len(parts(beat(broker, "a", 0, ["t"], subscribed_topic_regex="late-.*"))) == 4
    broker.create_topic("late-1", partitions=2)
    assert len(parts(beat(broker, "a", 2))) == 6
    growth = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=5, assignments=None)], timeout_ms=1000
    )
    assert broker.call(growth, 3).results[0].error_code == 0
    assert len(parts(beat(broker, "a", 3))) == 7
    broker.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="late-1")], timeout_ms=1000), 6)
    answer = beat(broker, "a", 4, owned=range(5))
    assert (answer.member_epoch, len(parts(answer))) == (5, 5)


def test_a_group_has_its_own_configs(broker: EmbeddedBroker) -> None:
    assert alter(broker, "g", consumer_heartbeat_interval_ms="7000", consumer_session_timeout_ms="50000") == 0
    assert beat(broker, "a", 0, ["t"]).heartbeat_interval_ms == 7_000
    assert beat(broker, "a", 0, ["t"], group="h").heartbeat_interval_ms == 5_000
    listed = broker.call(ListConfigResourcesRequest(resource_types=[GROUP_RESOURCE]), 1).config_resources
    assert [row.resource_name for row in listed] == ["g"]
    after(broker, 49_000)
    assert [describe(broker, group).group_state for group in "gh"] == ["Stable", "Empty"]
    after(broker, 1_000)
    assert describe(broker).group_state == "Empty"
    assert alter(broker, "g", consumer_heartbeat_interval_ms="1") == E.INVALID_CONFIG


def test_without_its_feature_the_protocol_is_not_served(broker: EmbeddedBroker) -> None:
    update = FeatureUpdate(GROUP_VERSION, 0, UpgradeType.SAFE_DOWNGRADE)
    broker.run(broker.broker.controller.update_features([update]))
    assert beat(broker, "a", 0, ["t"]).error_code == E.UNSUPPORTED_VERSION
    assert describe(broker).error_code == E.UNSUPPORTED_VERSION


def test_an_empty_group_expires_with_its_offsets(broker: EmbeddedBroker) -> None:
    groups = broker.broker.groups
    beat(broker, "a", 0, ["t"])
    assert commit(broker, "a", 2) == 0
    broker.clock.advance(60 * MINUTE_MS)
    expire(broker)
    assert groups.offsets.get("g", "t", 0) is not None  # it is subscribed
    beat(broker, "a", -1)
    expire(broker)
    assert groups.groups.get("g") is None and not groups.offsets.of("g")


def test_after_a_failed_append_the_log_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise NotEnoughReplicas("not now")

    with EmbeddedBroker(tmp_path, {**CONFIG, "offsets.topic.num.partitions": 1}) as broker:
        begin(broker)
        beat(broker, "a", 0, ["t"])
        with monkeypatch.context() as patch:
            patch.setattr(Partition, "append_coordinator_records", refuse)
            assert beat(broker, "b", 0, ["t"]).error_code == E.COORDINATOR_NOT_AVAILABLE
        broker.run(broker.broker.groups.topic.loaded())
        assert [member.member_id for member in describe(broker).members] == ["a"]
        assert beat(broker, "b", 0, ["t"]).member_epoch == 3


def test_groups_are_counted(broker: EmbeddedBroker) -> None:
    beat(broker, "a", 0, ["t"])
    commit(broker, "a", 2)
    beat(broker, "b", 0, ["t"])

    async def scrape() -> str:
        return b"".join([piece async for piece in Exposition(broker.broker.metrics).render()]).decode()

    text = broker.run(scrape())
    for line in (
        'klamm_groups{protocol="consumer",state="Reconciling"} 1',
        'klamm_groups{protocol="classic",state="Stable"} 0',
        "klamm_consumer_group_rebalances_total 2",
        "klamm_offset_commits_total 1",
        "klamm_committed_offsets 1",
    ):
        assert line in text, line


def test_lists_tell_the_protocols_apart(broker: EmbeddedBroker) -> None:
    beat(broker, "a", 0, ["t"])
    for types, states, expected in ((["Consumer"], [], ["g"]), (["classic"], [], []), ([], ["stable"], ["g"])):
        found = broker.call(ListGroupsRequest(types_filter=types, states_filter=states), 5).groups
        assert [(group.group_id, group.group_type) for group in found] == [(name, "consumer") for name in expected]


def test_of_a_hundred_members_half_die_silently(broker: EmbeddedBroker) -> None:
    def counts() -> tuple[int, int, int]:
        groups = broker.broker.groups
        members = sum(len(group.members) for group in groups.consumers.groups.values())
        return members, len(groups.consumers.timers), len(asyncio.all_tasks(broker.loop))

    before = counts()
    names = [f"m{number}" for number in range(100)]
    epochs = {name: beat(broker, name, 0, ["t"]).member_epoch for name in names}
    for _ in range(10):
        after(broker, 6_000)
        for name in names[::2]:
            answer = beat(broker, name, epochs[name], owned=[])
            assert answer.error_code == 0
            epochs[name] = answer.member_epoch
    described = describe(broker)
    assert (described.group_state, len(described.members)) == ("Stable", 50)
    owned = [
        index for row in described.members for part in row.assignment.topic_partitions for index in part.partitions
    ]
    assert sorted(owned) == [0, 1, 2, 3]
    for name in names[::2]:
        beat(broker, name, -1)
    assert counts() == before


@pytest.mark.parametrize("what", ["group", "offsets", "heartbeat"])
def test_answers_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    with EmbeddedBroker(tmp_path, FLUSHED) as broker:
        begin(broker)
        beat(broker, "a", 0, ["t"])
        commit(broker, "a", 2)
        beat(broker, "a", -1)
        held: list[asyncio.Future[None]] = []

        def hold(partition: Partition) -> asyncio.Future[None]:
            held.append(broker.loop.create_future())
            return held[-1]

        rows = [OffsetDeleteRequestPartition(partition_index=0)]
        request, version = {
            "group": (DeleteGroupsRequest(groups_names=["g"]), 2),
            "offsets": (
                OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=rows)]),
                0,
            ),
            "heartbeat": (
                ConsumerGroupHeartbeatRequest(
                    group_id="g",
                    member_id="b",
                    rebalance_timeout_ms=1,
                    subscribed_topic_names=["t"],
                    topic_partitions=[],
                ),
                1,
            ),
        }[what]
        with monkeypatch.context() as patch:
            patch.setattr(broker.broker.flusher, "flush", hold)
            answer = broker.start(request, version)
            broker.run(asyncio.sleep(0))
            broker.run(asyncio.sleep(0))
            assert held and not answer.done()
            for flushed in held:
                flushed.set_result(None)
            assert "error_code=0" in repr(broker.run(answer))


def test_a_classic_join_that_is_refused_leaves_the_offsets_to_a_group(broker: EmbeddedBroker) -> None:
    beat(broker, "a", 0, ["t"])
    assert commit(broker, "a", 2) == 0
    beat(broker, "a", -1)
    refused = JoinGroupRequest(group_id="g", member_id="x", session_timeout_ms=10_000, protocol_type="consumer")
    assert broker.call(refused, 9).error_code != 0
    assert broker.broker.groups.groups.get("g") is not None
    (deleted,) = broker.call(DeleteGroupsRequest(groups_names=["g"]), 2).results
    assert deleted.error_code == 0 and not broker.broker.groups.offsets.of("g")
