"""StreamsGroupHeartbeat (KIP-1071): join, stay in and leave a Kafka Streams group; the broker hands out the tasks.

The client sends its topology when it joins; null means "unchanged" both ways. v1 widens the acceptable recovery lag
from 32 to 64 bits, lets the broker ask for a description of the topology (KIP-1331), and allows the status
"client tags missing". The request is the same in both versions.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Int8, Int16, Int32, Int64, String, UInt16


@struct
class KeyValue:
    key: String = field()
    value: String = field()


@struct
class TopicInfo:
    name: String = field()
    partitions: Int32 = field()  # 0: not prescribed
    replication_factor: Int16 = field()  # 0: the broker's default
    topic_configs: list[KeyValue] = field()


@struct
class Endpoint:
    host: String = field()
    port: UInt16 = field()


@struct
class TaskOffset:
    subtopology_id: String = field()
    partition: Int32 = field()
    offset: Int64 = field()


@struct
class TaskIds:
    subtopology_id: String = field()
    partitions: list[Int32] = field()


@struct
class CopartitionGroup:
    """Topics that need equally many partitions; the numbers are positions in the lists of the subtopology."""

    source_topics: list[Int16] = field()
    source_topic_regex: list[Int16] = field()
    repartition_source_topics: list[Int16] = field()


@struct
class Subtopology:
    subtopology_id: String = field()
    source_topics: list[String] = field()
    source_topic_regex: list[String] = field()
    state_changelog_topics: list[TopicInfo] = field()
    repartition_sink_topics: list[String] = field()
    repartition_source_topics: list[TopicInfo] = field()
    copartition_groups: list[CopartitionGroup] = field()


@struct
class Topology:
    epoch: Int32 = field()
    subtopologies: list[Subtopology] = field()


@message(key=88, kind="request", versions="0-1", flexible="0+")
class StreamsGroupHeartbeatRequest:
    group_id: String = field()
    member_id: String = field()
    member_epoch: Int32 = field()
    endpoint_information_epoch: Int32 = field()
    instance_id: String | None = field(nullable="0+", default=None)
    rack_id: String | None = field(nullable="0+", default=None)
    rebalance_timeout_ms: Int32 = field(default=-1)
    topology: Topology | None = field(nullable="0+", default=None)
    active_tasks: list[TaskIds] | None = field(nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = field(nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = field(nullable="0+", default=None)
    process_id: String | None = field(nullable="0+", default=None)
    user_endpoint: Endpoint | None = field(nullable="0+", default=None)
    client_tags: list[KeyValue] | None = field(nullable="0+", default=None)
    task_offsets: list[TaskOffset] | None = field(nullable="0+", default=None)
    task_end_offsets: list[TaskOffset] | None = field(nullable="0+", default=None)
    shutdown_application: Bool = field()


@struct
class Status:
    """0 stale topology, 1 missing source topics, 2 incorrectly partitioned topics, 3 missing internal topics,
    4 shutdown of the application, 5 assignment delayed, 6 missing client tags (v1)."""

    status_code: Int8 = field()
    status_detail: String = field()


@struct
class TopicPartition:
    topic: String = field()
    partitions: list[Int32] = field()


@struct
class EndpointToPartitions:
    user_endpoint: Endpoint = field()
    active_partitions: list[TopicPartition] = field()
    standby_partitions: list[TopicPartition] = field()


@message(key=88, kind="response", versions="0-1", flexible="0+")
class StreamsGroupHeartbeatResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+", default=None)
    member_id: String = field()
    member_epoch: Int32 = field()
    heartbeat_interval_ms: Int32 = field()
    acceptable_recovery_lag_legacy: Int32 = field("0")
    task_offset_interval_ms: Int32 = field()
    acceptable_recovery_lag: Int64 = field("1+", default=-1, ignorable=True)
    status: list[Status] | None = field(nullable="0+")
    active_tasks: list[TaskIds] | None = field(nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = field(nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = field(nullable="0+", default=None)
    topology_description_required: Bool = field("1+")
    endpoint_information_epoch: Int32 = field()
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = field(nullable="0+", default=None)
