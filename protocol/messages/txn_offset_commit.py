"""TxnOffsetCommit (28): commit offsets of a group as part of a transaction (KIP-98).

v2 adds the leader epoch (KIP-320). v3 is flexible and fences by member and generation (KIP-447). v4 may answer
TRANSACTION_ABORTABLE. v5 adds the group to the transaction by itself, without AddOffsetsToTxn (KIP-890). v6 names
topics by id (KIP-1319).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int16, Int32, Int64, String, Uuid


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: Int32 = field()
    committed_offset: Int64 = field()
    committed_leader_epoch: Int32 = field("2+", default=-1, ignorable=True)
    committed_metadata: String | None = field(nullable="0+")


@struct
class TxnOffsetCommitRequestTopic:
    name: String = field("0-5", ignorable=True)
    topic_id: Uuid = field("6+", ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = field()


@message(key=28, kind="request", versions="0-6", flexible="3+")
class TxnOffsetCommitRequest:
    transactional_id: String = field()
    group_id: String = field()
    producer_id: Int64 = field()
    producer_epoch: Int16 = field()
    generation_id_or_member_epoch: Int32 = field("3+", default=-1)
    member_id: String = field("3+", default="")
    group_instance_id: String | None = field("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field()


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: Int32 = field()
    error_code: Int16 = field()


@struct
class TxnOffsetCommitResponseTopic:
    name: String = field("0-5", ignorable=True)
    topic_id: Uuid = field("6+", ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = field()


@message(key=28, kind="response", versions="0-6", flexible="3+")
class TxnOffsetCommitResponse:
    throttle_time_ms: Int32 = field()
    topics: list[TxnOffsetCommitResponseTopic] = field()
