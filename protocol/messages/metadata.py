"""Metadata (3): brokers, topics, partitions and their leaders.

All topics are asked for by an empty list in v0 and by null from v1; from v1 an empty list means none. v1 adds racks,
the controller and internal topics, v2 the cluster id, v3 the throttle time, v4 the choice of auto-creation, v5
offline replicas, v7 leader epochs, v8 authorized operations (those of the cluster went to DescribeCluster in v11), v9
is flexible, v10 has topic ids, which work from v12 on (KIP-516), v13 a top-level error (KIP-1102).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Int16, Int32, String, Uuid

NO_AUTHORIZED_OPERATIONS = -(2**31)


@struct
class MetadataRequestTopic:
    topic_id: Uuid = field("10+", ignorable=True)
    name: String | None = field(nullable="10+")


@message(key=3, kind="request", versions="0-13", flexible="9+")
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = field(nullable="1+")
    allow_auto_topic_creation: Bool = field("4+", default=True)
    include_cluster_authorized_operations: Bool = field("8-10")
    include_topic_authorized_operations: Bool = field("8+")


@struct
class MetadataResponseBroker:
    node_id: Int32 = field()
    host: String = field()
    port: Int32 = field()
    rack: String | None = field("1+", nullable="1+", default=None, ignorable=True)


@struct
class MetadataResponsePartition:
    error_code: Int16 = field()
    partition_index: Int32 = field()
    leader_id: Int32 = field()
    leader_epoch: Int32 = field("7+", default=-1, ignorable=True)
    replica_nodes: list[Int32] = field()
    isr_nodes: list[Int32] = field()
    offline_replicas: list[Int32] = field("5+", ignorable=True)


@struct
class MetadataResponseTopic:
    error_code: Int16 = field()
    name: String | None = field(nullable="12+")
    topic_id: Uuid = field("10+", ignorable=True)
    is_internal: Bool = field("1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition] = field()
    topic_authorized_operations: Int32 = field("8+", default=NO_AUTHORIZED_OPERATIONS)


@message(key=3, kind="response", versions="0-13", flexible="9+")
class MetadataResponse:
    throttle_time_ms: Int32 = field("3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = field()
    cluster_id: String | None = field("2+", nullable="2+", default=None, ignorable=True)
    controller_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = field(encoded=True)
    cluster_authorized_operations: Int32 = field("8-10", default=NO_AUTHORIZED_OPERATIONS)
    error_code: Int16 = field("13+", ignorable=True)
