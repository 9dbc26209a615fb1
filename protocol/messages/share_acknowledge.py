"""ShareAcknowledge (KIP-932): settle acquired records of a share group without fetching more.

v1 is the first stable version; the v0 of the early access in Apache Kafka 4.0 is not spoken. v2 adds the renewal of
acquisition locks and tells their timeout (KIP-1222). Acknowledge types: 0 gap, 1 accept, 2 release, 3 reject,
4 renew (v2).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Int8, Int16, Int32, Int64, String, Uuid


@struct
class AcknowledgementBatch:
    first_offset: Int64 = field()
    last_offset: Int64 = field()
    acknowledge_types: list[Int8] = field()


@struct
class AcknowledgePartition:
    partition_index: Int32 = field()
    acknowledgement_batches: list[AcknowledgementBatch] = field()


@struct
class AcknowledgeTopic:
    topic_id: Uuid = field()
    partitions: list[AcknowledgePartition] = field()


@message(key=79, kind="request", versions="1-2", flexible="0+")
class ShareAcknowledgeRequest:
    group_id: String | None = field(nullable="0+", default=None)
    member_id: String | None = field(nullable="0+")
    share_session_epoch: Int32 = field()
    is_renew_ack: Bool = field("2+")
    topics: list[AcknowledgeTopic] = field()


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = field()
    leader_epoch: Int32 = field()


@struct
class PartitionData:
    partition_index: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = field()


@struct
class ShareAcknowledgeTopicResponse:
    topic_id: Uuid = field()
    partitions: list[PartitionData] = field()


@struct
class NodeEndpoint:
    node_id: Int32 = field()
    host: String = field()
    port: Int32 = field()
    rack: String | None = field(nullable="0+", default=None)


@message(key=79, kind="response", versions="1-2", flexible="0+")
class ShareAcknowledgeResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+", default=None)
    acquisition_lock_timeout_ms: Int32 = field("2+", ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = field()
    node_endpoints: list[NodeEndpoint] = field()
