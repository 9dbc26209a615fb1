"""DeleteTopics: by name and by id; the name is free at once, and a crash half-way is made good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from klamm.protocol.wire import ZERO_UUID
from tests.support.embedded import EmbeddedBroker, batch


def delete(broker: EmbeddedBroker, *names: str | bytes, version: int = 6) -> Any:
    if version < 6:
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=1000)
    else:
        states = [
            DeleteTopicState(name=None, topic_id=name)
            if isinstance(name, bytes)
            else DeleteTopicState(name=name, topic_id=ZERO_UUID)
            for name in names
        ]
        request = DeleteTopicsRequest(topics=states, timeout_ms=1000)
    return broker.call(request, version).responses


def directories(tmp_path: Path) -> list[str]:
    return sorted(entry.name for entry in (tmp_path / "data").iterdir() if entry.is_dir())


@pytest.mark.parametrize("version", range(7))
def test_a_topic_goes_with_its_logs(broker: EmbeddedBroker, tmp_path: Path, version: int) -> None:
    assert directories(tmp_path) == ["t-0", "t-1"]
    (result,) = delete(broker, "t", version=version)
    assert (result.name, result.error_code) == ("t", 0)
    assert not broker.broker.image.topics and not broker.broker.partitions.topics
    assert directories(tmp_path) == []


def test_by_id(broker: EmbeddedBroker) -> None:
    topic_id = broker.broker.image.topics["t"].topic_id
    found, unknown = delete(broker, topic_id, b"x" * 16)
    assert (found.error_code, found.name, found.topic_id) == (0, "t", topic_id)
    assert (unknown.error_code, unknown.name, unknown.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, b"x" * 16)


def test_a_new_topic_of_the_same_name_is_empty_and_another_one(broker: EmbeddedBroker) -> None:
    old_id = broker.broker.image.topics["t"].topic_id
    broker.produce("t", batch(b"old"))
    delete(broker, "t")
    assert broker.create_topic("t") != old_id
    assert broker.produce("t", batch(b"new")).base_offset == 0


def test_what_is_refused(broker: EmbeddedBroker) -> None:
    topic_id = broker.broker.image.topics["t"].topic_id
    assert delete(broker, "nobody")[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [result.error_code for result in delete(broker, "t", "t")] == [ErrorCode.INVALID_REQUEST]
    assert {result.error_code for result in delete(broker, "t", topic_id)} == {ErrorCode.INVALID_REQUEST}
    both = DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=topic_id)], timeout_ms=1000)
    assert broker.call(both, 6).responses[0].error_code == ErrorCode.INVALID_REQUEST
    neither = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=ZERO_UUID)], timeout_ms=1000)
    assert broker.call(neither, 6).responses[0].error_code == ErrorCode.INVALID_REQUEST
    assert "t" in broker.broker.image.topics


@pytest.mark.parametrize("version", range(7))
def test_deletion_can_be_turned_off(tmp_path: Path, version: int) -> None:
    with EmbeddedBroker(tmp_path, {"delete.topic.enable": "false"}) as broker:
        broker.create_topic("t")
        code = ErrorCode.INVALID_REQUEST if version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        (result,) = delete(broker, "t", version=version)
        assert (result.name, result.error_code) == ("t", code)
        assert "t" in broker.broker.image.topics


def test_a_crash_after_the_mark_is_finished_by_the_next_start(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", partitions=2)
        broker.create_topic("u")
        broker.broker.controller._store.create("/admin/delete_topics/t")
    with EmbeddedBroker(tmp_path) as broker:
        assert set(broker.broker.image.topics) == {"u"}
        assert directories(tmp_path) == ["u-0"]
        broker.create_topic("t")
