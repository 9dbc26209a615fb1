"""CreatePartitions (37): raise the partition count of topics (KIP-195).

`count` is the new total, not the increment; `assignments` null lets the controller place the new partitions.
From v1 the answer leaves before a throttled connection is muted (KIP-219). v2 is flexible. v3 says that the client
understands THROTTLING_QUOTA_EXCEEDED per topic (KIP-599).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Int16, Int32, String


@struct
class CreatePartitionsAssignment:
    broker_ids: list[Int32] = field()


@struct
class CreatePartitionsTopic:
    name: String = field()
    count: Int32 = field()
    assignments: list[CreatePartitionsAssignment] | None = field(nullable="0+")


@message(key=37, kind="request", versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = field()
    timeout_ms: Int32 = field()
    validate_only: Bool = field()


@struct
class CreatePartitionsTopicResult:
    name: String = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+", default=None)


@message(key=37, kind="response", versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: Int32 = field()
    results: list[CreatePartitionsTopicResult] = field()
