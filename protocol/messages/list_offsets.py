"""ListOffsets (2): offsets by timestamp, and the first and last ones.

Timestamps below zero are questions of their own: -1 latest, -2 earliest, -3 the record with the greatest timestamp
(v7, KIP-734), -4 the earliest local one (v8, KIP-405), -5 the last one in remote storage (v9, KIP-1005), -6 the
earliest not yet uploaded (v11, KIP-1023). v0 answers with up to `max_num_offsets` segment offsets, v1 with one offset
and its timestamp. v2 adds the isolation level, v4 leader epochs, v6 is flexible, v10 adds a time limit for remote
lookups (KIP-1075).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int8, Int16, Int32, Int64, String

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6


@struct
class ListOffsetsPartition:
    partition_index: Int32 = field()
    current_leader_epoch: Int32 = field("4+", default=-1, ignorable=True)
    timestamp: Int64 = field()
    max_num_offsets: Int32 = field("0", default=1)


@struct
class ListOffsetsTopic:
    name: String = field()
    partitions: list[ListOffsetsPartition] = field()


@message(key=2, kind="request", versions="0-11", flexible="6+")
class ListOffsetsRequest:
    replica_id: Int32 = field()
    isolation_level: Int8 = field("2+")
    topics: list[ListOffsetsTopic] = field()
    timeout_ms: Int32 = field("10+", ignorable=True)


@struct
class ListOffsetsPartitionResponse:
    partition_index: Int32 = field()
    error_code: Int16 = field()
    old_style_offsets: list[Int64] = field("0")
    timestamp: Int64 = field("1+", default=-1)
    offset: Int64 = field("1+", default=-1)
    leader_epoch: Int32 = field("4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    name: String = field()
    partitions: list[ListOffsetsPartitionResponse] = field()


@message(key=2, kind="response", versions="0-11", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: Int32 = field("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field()
