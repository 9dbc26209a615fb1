"""DescribeCluster (60): cluster id, controller and nodes, without topics (KIP-700).

v1 asks for brokers (`endpoint_type` 1) or controllers (2) (KIP-919). v2 can list fenced brokers too (KIP-1073).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Int8, Int16, Int32, String

AUTHORIZED_OPERATIONS_OMITTED = -(2**31)


@message(key=60, kind="request", versions="0-2", flexible="0+")
class DescribeClusterRequest:
    include_cluster_authorized_operations: Bool = field()
    endpoint_type: Int8 = field("1+", default=1)
    include_fenced_brokers: Bool = field("2+")


@struct
class DescribeClusterBroker:
    broker_id: Int32 = field()
    host: String = field()
    port: Int32 = field()
    rack: String | None = field(nullable="0+", default=None)
    is_fenced: Bool = field("2+")


@message(key=60, kind="response", versions="0-2", flexible="0+")
class DescribeClusterResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+", default=None)
    endpoint_type: Int8 = field("1+", default=1)
    cluster_id: String = field()
    controller_id: Int32 = field(default=-1)
    brokers: list[DescribeClusterBroker] = field()
    cluster_authorized_operations: Int32 = field(default=AUTHORIZED_OPERATIONS_OMITTED)
