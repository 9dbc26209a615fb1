"""ListOffsets: both ends, a point in time, the largest timestamp, and v0's list."""

from __future__ import annotations

import errno
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.broker.apis import list_offsets
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from klamm.storage.filesystem import OsFile
from klamm.storage.log.timestamps import Search
from tests.support.embedded import NOW_MS, EmbeddedBroker, batch


def ask(broker: EmbeddedBroker, version: int, timestamp: int, **options: Any) -> Any:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp, **options)
    topics = [ListOffsetsTopic(name="t", partitions=[partition])]
    return broker.call(ListOffsetsRequest(replica_id=-1, topics=topics), version).topics[0].partitions[0]


@pytest.fixture
def filled(broker: EmbeddedBroker) -> EmbeddedBroker:
    for step in (0, 20, 10):
        broker.produce("t", batch(b"x", b"y", timestamp=NOW_MS + step))
    return broker


@pytest.mark.parametrize("version", range(1, 12))
def test_earliest_and_latest(filled: EmbeddedBroker, version: int) -> None:
    assert [ask(filled, version, timestamp).offset for timestamp in (-2, -1)] == [0, 6]


@pytest.mark.parametrize("version", range(1, 12))
def test_the_first_record_at_or_after_a_time(filled: EmbeddedBroker, version: int) -> None:
    found = [ask(filled, version, NOW_MS + step) for step in (-5, 1, 20)]
    assert [(answer.offset, answer.timestamp - NOW_MS) for answer in found] == [(0, 0), (2, 20), (2, 20)]
    late = ask(filled, version, NOW_MS + 21)
    assert (late.error_code, late.offset, late.timestamp) == (0, -1, -1)


def test_the_largest_timestamp_needs_v7(filled: EmbeddedBroker) -> None:
    answer = ask(filled, 7, -3)
    assert (answer.offset, answer.timestamp) == (2, NOW_MS + 20)
    assert ask(filled, 6, -3).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_tiers(filled: EmbeddedBroker) -> None:
    assert ask(filled, 8, -4).offset == 0
    assert [ask(filled, 11, timestamp).offset for timestamp in (-5, -6)] == [-1, -1]


def test_v0_lists_segments(filled: EmbeddedBroker) -> None:
    assert ask(filled, 0, -1, max_num_offsets=10).old_style_offsets == [6, 0]
    assert ask(filled, 0, -1, max_num_offsets=1).old_style_offsets == [6]
    assert ask(filled, 0, -2, max_num_offsets=10).old_style_offsets == [0]


def test_errors(broker: EmbeddedBroker) -> None:
    assert ask(broker, 4, -1, current_leader_epoch=9).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    partition = ListOffsetsPartition(partition_index=9, timestamp=-1)
    topics = [ListOffsetsTopic(name="t", partitions=[partition])]
    answer = broker.call(ListOffsetsRequest(replica_id=-1, topics=topics), 5).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    twice = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * 2
    topics = [ListOffsetsTopic(name="t", partitions=twice)]
    answers = broker.call(ListOffsetsRequest(replica_id=-1, topics=topics), 5).topics[0].partitions
    assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_REQUEST] * 2


def test_the_earliest_of_a_partition_without_records_has_the_current_epoch(broker: EmbeddedBroker) -> None:
    answer = ask(broker, 4, -2)
    assert (answer.offset, answer.leader_epoch) == (0, 0)


@pytest.mark.parametrize("timestamp", [-7, -100])
def test_a_timestamp_without_meaning_is_no_version_s(broker: EmbeddedBroker, timestamp: int) -> None:
    assert ask(broker, 11, timestamp).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_searches_by_time_run_in_a_thread_and_nothing_else_does(
    filled: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set()
    run = Search.run

    def noted(search: Search) -> Any:
        threads.add(threading.current_thread())
        return run(search)

    monkeypatch.setattr(Search, "run", noted)
    for timestamp in (-1, -2, -4, -5, -6):
        topics = [ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=timestamp)])]
        context: Any = SimpleNamespace(api_version=11)
        answer = list_offsets.handle(filled.broker, context, ListOffsetsRequest(replica_id=-1, topics=topics))
        assert isinstance(answer, ListOffsetsResponse)
    assert not threads
    assert [ask(filled, 7, timestamp).offset for timestamp in (-3, NOW_MS + 1)] == [2, 2]
    assert len(threads) in (1, 2) and threading.current_thread() not in threads


def test_each_partition_of_a_request_gets_its_own_answer(filled: EmbeddedBroker) -> None:
    filled.create_topic("u", partitions=2)
    filled.produce("u", batch(b"x", timestamp=NOW_MS + 5), partition=1)
    wanted = [("t", 0, NOW_MS + 1), ("t", 1, NOW_MS), ("u", 0, NOW_MS), ("u", 1, NOW_MS), ("u", 2, -1)]
    topics = [
        ListOffsetsTopic(
            name=name,
            partitions=[
                ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                for topic, index, timestamp in wanted
                if topic == name
            ],
        )
        for name in ("t", "u")
    ]
    response = filled.call(ListOffsetsRequest(replica_id=-1, topics=topics), 7)
    answers = [
        (topic.name, answer.partition_index, answer.error_code, answer.offset)
        for topic in response.topics
        for answer in topic.partitions
    ]
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert answers == [("t", 0, 0, 2), ("t", 1, 0, -1), ("u", 0, 0, -1), ("u", 1, 0, 0), ("u", 2, unknown, -1)]


@pytest.mark.parametrize("version", [0, 1, 3])
def test_a_disk_that_fails_in_a_search(filled: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    def fail(*_: object) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(OsFile, "read_at", fail)
    monkeypatch.setattr(OsFile, "modified_ms", fail)
    if version == 0:  # asks for the age of a file without timestamps
        monkeypatch.setattr("klamm.storage.log.timestamps.NO_TIMESTAMP", NOW_MS + 20)
    expected = ErrorCode.NOT_LEADER_OR_FOLLOWER if version < 3 else ErrorCode.KAFKA_STORAGE_ERROR
    assert ask(filled, version, NOW_MS, max_num_offsets=1).error_code == expected
