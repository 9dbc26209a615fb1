"""DeleteRecords: the log start moves, durably, and never beyond the high watermark."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.support.embedded import EmbeddedBroker, batch

NONE_LEFT = -1


def delete(
    broker: EmbeddedBroker, offset: int, *, topic: str = "t", index: int = 0, version: int = 2
) -> tuple[int, int]:
    wanted = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)])
    (answer,) = broker.call(DeleteRecordsRequest(topics=[wanted], timeout_ms=1000), version).topics
    assert answer.name == topic
    (result,) = answer.partitions
    assert result.partition_index == index
    return result.error_code, result.low_watermark


def fill(broker: EmbeddedBroker, count: int = 5) -> None:
    for number in range(count):
        assert broker.produce("t", batch(b"x" * 100)).base_offset == number


@pytest.mark.parametrize("version", range(3))
def test_records_below_the_offset_are_gone(broker: EmbeddedBroker, version: int) -> None:
    fill(broker)
    assert delete(broker, 3, version=version) == (0, 3)
    partition = broker.broker.partitions.get_partition("t", 0)
    assert partition is not None and (partition.log_start_offset, partition.log_end_offset) == (3, 5)
    assert delete(broker, 2, version=version) == (0, 3)
    assert delete(broker, -1, version=version) == (0, 5)
    assert broker.produce("t", batch(b"x")).base_offset == 5


@pytest.mark.parametrize(
    ("topic", "index", "offset", "code"),
    [
        ("t", 0, 6, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("t", 0, -2, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("t", 2, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("nobody", 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("compacted", 0, 0, ErrorCode.POLICY_VIOLATION),
        ("__consumer_offsets", 0, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_what_is_refused(broker: EmbeddedBroker, topic: str, index: int, offset: int, code: int) -> None:
    fill(broker)
    broker.create_topic("compacted", config={"cleanup.policy": "compact"})
    broker.create_topic("__consumer_offsets")
    assert delete(broker, offset, topic=topic, index=index) == (code, -1)


def test_deleted_records_do_not_come_back_after_a_crash(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path).__enter__()
    broker.create_topic("t")
    fill(broker)
    assert delete(broker, 4) == (0, 4)
    broker.crash()
    with EmbeddedBroker(tmp_path) as again:
        partition = again.broker.partitions.get_partition("t", 0)
        assert partition is not None and (partition.log_start_offset, partition.log_end_offset) == (4, 5)


def test_segments_below_the_offset_leave_the_disk(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", config={"segment.bytes": 1024 * 1024})
        for _ in range(5):
            broker.produce("t", batch(bytes(500_000)))
        partition = broker.broker.partitions.get_partition("t", 0)
        assert partition is not None and partition.log is not None and len(partition.log.local.segments.all) > 1
        assert delete(broker, -1) == (0, 5)
        assert len(partition.log.local.segments.all) == 1
