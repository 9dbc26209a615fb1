"""ConsumerGroupHeartbeat (KIP-848): join, stay in and leave a group of the consumer protocol, assignment included.

Member epoch 0 joins, -1 leaves, -2 leaves for a while as a static member. In a request null (and -1 for the timeout)
means "as I said last time"; in a response a null assignment means "unchanged". v1 adds the subscription by regular
expression, which the broker matches, and expects the client to make up its own member id (KIP-1082).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int16, Int32, String, Uuid


@struct
class TopicPartitions:
    topic_id: Uuid = field()
    partitions: list[Int32] = field()


@message(key=68, kind="request", versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    group_id: String = field()
    member_id: String = field()
    member_epoch: Int32 = field()
    instance_id: String | None = field(nullable="0+", default=None)
    rack_id: String | None = field(nullable="0+", default=None)
    rebalance_timeout_ms: Int32 = field(default=-1)
    subscribed_topic_names: list[String] | None = field(nullable="0+", default=None)
    subscribed_topic_regex: String | None = field("1+", nullable="1+", default=None)
    server_assignor: String | None = field(nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = field(nullable="0+", default=None)


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = field()


@message(key=68, kind="response", versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+", default=None)
    member_id: String | None = field(nullable="0+", default=None)
    member_epoch: Int32 = field()
    heartbeat_interval_ms: Int32 = field()
    assignment: Assignment | None = field(nullable="0+", default=None)
