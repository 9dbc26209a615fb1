"""DeleteTopics (20): remove topics by name, and by id from v6.

v1 adds the throttle time, v3 may answer TOPIC_DELETION_DISABLED, v4 is flexible, v5 tells errors in words and may
answer THROTTLING_QUOTA_EXCEEDED (KIP-599), v6 has names or topic ids (KIP-516).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int16, Int32, String, Uuid


@struct
class DeleteTopicState:
    name: String | None = field("6+", nullable="6+", default=None)
    topic_id: Uuid = field("6+")


@message(key=20, kind="request", versions="0-6", flexible="4+")
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = field("6+")
    topic_names: list[String] = field("0-5", ignorable=True)
    timeout_ms: Int32 = field()


@struct
class DeletableTopicResult:
    name: String | None = field(nullable="6+")
    topic_id: Uuid = field("6+", ignorable=True)
    error_code: Int16 = field()
    error_message: String | None = field("5+", nullable="5+", default=None, ignorable=True)


@message(key=20, kind="response", versions="0-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    responses: list[DeletableTopicResult] = field()
