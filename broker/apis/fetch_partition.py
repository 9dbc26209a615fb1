"""One partition of a Fetch response: its errors, and the values that a session has reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.protocol.errors import (
    ErrorCode,
    InconsistentTopicId,
    KafkaError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from klamm.protocol.messages.fetch import PartitionData

if TYPE_CHECKING:
    from klamm.broker.fetch.fetch_session import FetchedPartition
    from klamm.broker.partitions.partition_manager import PartitionManager

STORAGE_ERROR_FROM = 6
NO_RECORDS = b""


def gone(wanted: FetchedPartition, manager: PartitionManager) -> KafkaError:
    """Return the error for a topic that no longer exists. A session has the name that the topic had."""
    if wanted.name is None:
        return UnknownTopicId("no topic has this id")
    now = manager.topics.get(wanted.name)
    if now is None or not 0 <= wanted.partition < len(now.partitions):
        return UnknownTopicOrPartition(f"{wanted.name}-{wanted.partition} was deleted")
    return InconsistentTopicId(f"{wanted.name} is another topic since this fetch session began")


def failed(index: int, error: KafkaError, version: int) -> PartitionData:
    code = error.code
    if code is ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_FROM:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return PartitionData(
        partition_index=index, error_code=int(code), high_watermark=-1, aborted_transactions=None, records=NO_RECORDS
    )


def note_told(wanted: FetchedPartition, data: PartitionData) -> bool:
    """Note the values that the session reports. Return whether an incremental response needs this partition."""
    changed = bool(data.records) or data.error_code != 0 or data.diverging_epoch.epoch >= 0
    if data.error_code:
        wanted.high_watermark = -1  # so that the recovery of the partition is reported, too
        return True
    if wanted.high_watermark != data.high_watermark or wanted.log_start_offset != data.log_start_offset:
        wanted.high_watermark = data.high_watermark
        wanted.log_start_offset = data.log_start_offset
        changed = True
    return changed
