"""A partition keeps nothing that its log knows: one high watermark, one answer to whether it is offline."""

from __future__ import annotations

from pathlib import Path

from klamm.broker.partitions.partition import Partition
from tests.support.embedded import EmbeddedBroker, batch


def filled(broker: EmbeddedBroker) -> Partition:
    broker.create_topic("t")
    partition = broker.broker.partitions.get_partition("t", 0)
    assert partition is not None
    for _ in range(3):
        partition.append_coordinator_records(bytearray(batch(b"v")), now_ms=broker.clock.wall_ms())
    return partition


def test_a_cut_of_the_log_moves_the_high_watermark(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        partition = filled(broker)
        assert partition.high_watermark == 3
        log = partition.online_log()
        log.truncate_to(1)
        assert partition.high_watermark == partition.last_stable_offset == log.high_watermark == 1


def test_it_is_offline_when_its_log_is(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        partition = filled(broker)
        assert not partition.is_offline and partition.offline_reason is None
        log = partition.online_log()
        log.local.offline_reason = "the disk has failed"
        assert partition.is_offline and partition.offline_reason == "the disk has failed"
        log.local.offline_reason = None
        partition.go_offline("it is gone")
        assert partition.is_offline and partition.offline_reason == "it is gone"
        partition.go_online(log)
        assert not partition.is_offline and partition.high_watermark == log.log_end_offset
