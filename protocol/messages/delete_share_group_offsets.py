"""DeleteShareGroupOffsets (KIP-932): forget the offsets of whole topics in an empty share group."""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int16, Int32, String, Uuid


@struct
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: String = field()


@message(key=92, kind="request", versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    group_id: String = field()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field()


@struct
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: String = field()
    topic_id: Uuid = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+", default=None)


@message(key=92, kind="response", versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field()
