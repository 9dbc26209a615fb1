"""ConsumerGroupDescribe (KIP-848): state, members, current and target assignment of groups of the consumer protocol.

v1 tells for each member whether it speaks the classic (0) or the consumer protocol (1), -1 when unknown (KIP-1099).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Int8, Int16, Int32, String, Uuid


@message(key=69, kind="request", versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
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
    instance_id: String | None = field(nullable="0+", default=None)
    rack_id: String | None = field(nullable="0+", default=None)
    member_epoch: Int32 = field()
    client_id: String = field()
    client_host: String = field()
    subscribed_topic_names: list[String] = field()
    subscribed_topic_regex: String | None = field(nullable="0+", default=None)
    assignment: Assignment = field()
    target_assignment: Assignment = field()
    member_type: Int8 = field("1+", default=-1, ignorable=True)


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


@message(key=69, kind="response", versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    throttle_time_ms: Int32 = field()
    groups: list[DescribedGroup] = field()
