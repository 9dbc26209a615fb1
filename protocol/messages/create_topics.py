"""CreateTopics (19): make topics, with partition counts or explicit replica assignments.

v1 can only validate and tells errors in words, v2 adds the throttle time, v4 takes the broker's defaults for -1
(KIP-464), v5 is flexible and answers with the resulting configs (KIP-525), v6 may answer THROTTLING_QUOTA_EXCEEDED
(KIP-599), v7 tells the topic id.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Int8, Int16, Int32, String, Uuid


@struct
class CreatableReplicaAssignment:
    partition_index: Int32 = field()
    broker_ids: list[Int32] = field()


@struct
class CreatableTopicConfig:
    name: String = field()
    value: String | None = field(nullable="0+", sensitive=True)


@struct
class CreatableTopic:
    name: String = field()
    num_partitions: Int32 = field()
    replication_factor: Int16 = field()
    assignments: list[CreatableReplicaAssignment] = field()
    configs: list[CreatableTopicConfig] = field()


@message(key=19, kind="request", versions="0-7", flexible="5+")
class CreateTopicsRequest:
    topics: list[CreatableTopic] = field()
    timeout_ms: Int32 = field(default=60000)
    validate_only: Bool = field("1+", default=False)


@struct
class CreatableTopicConfigs:
    name: String = field("5+")
    value: String | None = field("5+", nullable="5+")
    read_only: Bool = field("5+")
    config_source: Int8 = field("5+", default=-1, ignorable=True)
    is_sensitive: Bool = field("5+")


@struct
class CreatableTopicResult:
    name: String = field()
    topic_id: Uuid = field("7+", ignorable=True)
    error_code: Int16 = field()
    error_message: String | None = field("1+", nullable="0+", ignorable=True)
    topic_config_error_code: Int16 = field("5+", tag=0, ignorable=True)
    num_partitions: Int32 = field("5+", default=-1, ignorable=True)
    replication_factor: Int16 = field("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field("5+", nullable="5+", ignorable=True)


@message(key=19, kind="response", versions="0-7", flexible="5+")
class CreateTopicsResponse:
    throttle_time_ms: Int32 = field("2+", ignorable=True)
    topics: list[CreatableTopicResult] = field()
