"""OffsetForLeaderEpoch (23): where a leader epoch ends in the log, to find out where a reader's history diverges.

v1 also answers with the epoch, v2 adds the reader's view of the leader epoch (KIP-320), v3 the replica id (-2: a
consumer for debugging, which may see beyond the high watermark), v4 is flexible.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int16, Int32, Int64, String


@struct
class OffsetForLeaderPartition:
    partition: Int32 = field()
    current_leader_epoch: Int32 = field("2+", default=-1, ignorable=True)
    leader_epoch: Int32 = field()


@struct
class OffsetForLeaderTopic:
    topic: String = field()
    partitions: list[OffsetForLeaderPartition] = field()


@message(key=23, kind="request", versions="0-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    replica_id: Int32 = field("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = field()


@struct
class EpochEndOffset:
    error_code: Int16 = field()
    partition: Int32 = field()
    leader_epoch: Int32 = field("1+", default=-1, ignorable=True)
    end_offset: Int64 = field(default=-1)


@struct
class OffsetForLeaderTopicResult:
    topic: String = field()
    partitions: list[EpochEndOffset] = field()


@message(key=23, kind="response", versions="0-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    throttle_time_ms: Int32 = field("2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = field()
