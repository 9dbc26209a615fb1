"""ShareGroupDescribe (KIP-932): state, members and assignment of share groups.

v1 is the first stable version; the v0 of the early access in Apache Kafka 4.0 is not spoken.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Int16, Int32, String, Uuid


@message(key=77, kind="request", versions="1", flexible="0+")
class ShareGroupDescribeRequest:
    group_ids: list[String] = field()
    include_authorized_operations: Bool = field()


@struct
class TopicPartitions:
    topic_id: Uuid = field()
    topic_name: String = field()
    partitions: list[Int32] = field()


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = field()


@struct
class Member:
    member_id: String = field()
    rack_id: String | None = field(nullable="0+", default=None)
    member_epoch: Int32 = field()
    client_id: String = field()
    client_host: String = field()
    subscribed_topic_names: list[String] = field()
    assignment: Assignment = field()


@struct
class DescribedGroup:
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+", default=None)
    group_id: String = field()
    group_state: String = field()
    group_epoch: Int32 = field()
    assignment_epoch: Int32 = field()
    assignor_name: String = field()
    members: list[Member] = field()
    authorized_operations: Int32 = field(default=-2147483648)


@message(key=77, kind="response", versions="1", flexible="0+")
class ShareGroupDescribeResponse:
    throttle_time_ms: Int32 = field()
    groups: list[DescribedGroup] = field()
