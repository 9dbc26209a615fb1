"""ShareGroupHeartbeat (KIP-932): join, stay in and leave a share group; the broker assigns.

Member epoch 0 joins, -1 leaves; null means "unchanged" both ways. v1 is the first stable version; the v0 of the early
access in Apache Kafka 4.0 is not spoken.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int16, Int32, String, Uuid


@message(key=76, kind="request", versions="1", flexible="0+")
class ShareGroupHeartbeatRequest:
    group_id: String = field()
    member_id: String = field()
    member_epoch: Int32 = field()
    rack_id: String | None = field(nullable="0+", default=None)
    subscribed_topic_names: list[String] | None = field(nullable="0+", default=None)


@struct
class TopicPartitions:
    topic_id: Uuid = field()
    partitions: list[Int32] = field()


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = field()


@message(key=76, kind="response", versions="1", flexible="0+")
class ShareGroupHeartbeatResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+", default=None)
    member_id: String | None = field(nullable="0+", default=None)
    member_epoch: Int32 = field()
    heartbeat_interval_ms: Int32 = field()
    assignment: Assignment | None = field(nullable="0+", default=None)
