"""StreamsGroupDescribe (KIP-1071): state, topology, members and tasks of Kafka Streams groups.

v1 adds, when asked, the description of the topology that a member pushed (KIP-1331) with its status (0 not requested,
1 not stored, 2 error, 3 available), and the assignor's name (KIP-1357).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Int8, Int16, Int32, Int64, String, UInt16


@message(key=89, kind="request", versions="0-1", flexible="0+")
class StreamsGroupDescribeRequest:
    group_ids: list[String] = field()
    include_authorized_operations: Bool = field()
    include_topology_description: Bool = field("1+")


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
class Assignment:
    active_tasks: list[TaskIds] = field()
    standby_tasks: list[TaskIds] = field()
    warmup_tasks: list[TaskIds] = field()


@struct
class KeyValue:
    key: String = field()
    value: String = field()


@struct
class TopicInfo:
    name: String = field()
    partitions: Int32 = field()
    replication_factor: Int16 = field()
    topic_configs: list[KeyValue] = field()


@struct
class Subtopology:
    subtopology_id: String = field()
    source_topics: list[String] = field()
    repartition_sink_topics: list[String] = field()
    state_changelog_topics: list[TopicInfo] = field()
    repartition_source_topics: list[TopicInfo] = field()


@struct
class Topology:
    epoch: Int32 = field()
    subtopologies: list[Subtopology] | None = field(nullable="0+", default=None)


@struct
class Member:
    member_id: String = field()
    member_epoch: Int32 = field()
    instance_id: String | None = field(nullable="0+", default=None)
    rack_id: String | None = field(nullable="0+", default=None)
    client_id: String = field()
    client_host: String = field()
    topology_epoch: Int32 = field()
    process_id: String = field()
    user_endpoint: Endpoint | None = field(nullable="0+", default=None)
    client_tags: list[KeyValue] = field()
    task_offsets: list[TaskOffset] = field()
    task_end_offsets: list[TaskOffset] = field()
    assignment: Assignment = field()
    target_assignment: Assignment = field()
    is_classic: Bool = field()


@struct
class TopologyDescriptionNode:
    name: String = field("1+")
    node_type: Int8 = field("1+")  # 1 source, 2 processor, 3 sink
    source_topics: list[String] = field("1+")
    sink_topic: String | None = field("1+", nullable="1+", default=None)
    stores: list[String] = field("1+")
    successors: list[String] = field("1+")


@struct
class TopologyDescriptionSubtopology:
    subtopology_id: String = field("1+")
    nodes: list[TopologyDescriptionNode] = field("1+")


@struct
class TopologyDescriptionGlobalStore:
    source: TopologyDescriptionNode = field("1+")
    processor: TopologyDescriptionNode = field("1+")


@struct
class TopologyDescription:
    subtopologies: list[TopologyDescriptionSubtopology] = field("1+")
    global_stores: list[TopologyDescriptionGlobalStore] = field("1+")


@struct
class DescribedGroup:
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+", default=None)
    group_id: String = field()
    group_state: String = field()
    group_epoch: Int32 = field()
    assignment_epoch: Int32 = field()
    topology: Topology | None = field(nullable="0+", default=None)
    members: list[Member] = field()
    authorized_operations: Int32 = field(default=-2147483648)
    topology_description: TopologyDescription | None = field("1+", nullable="1+", default=None)
    topology_description_status: Int8 = field("1+")
    assignor_name: String | None = field("1+", nullable="1+", default=None, ignorable=True)


@message(key=89, kind="response", versions="0-1", flexible="0+")
class StreamsGroupDescribeResponse:
    throttle_time_ms: Int32 = field()
    groups: list[DescribedGroup] = field()
