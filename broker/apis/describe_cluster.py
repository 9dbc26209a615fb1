"""DescribeCluster (60): v0-2. Cluster id, controller and live brokers (KIP-700).

v1 has the kind of endpoints: of brokers (1), or of KRaft controllers (2, KIP-919), which this cluster does not have. v2
also lists fenced brokers, of which there are none (KIP-1073).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.broker.apis.common import NOT_ASKED, advertised_address, cluster_operations
from klamm.protocol.errors import InvalidRequest, KafkaError, MismatchedEndpointType, UnsupportedEndpointType
from klamm.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.metadata.image import BrokerImage

BROKERS = 1
CONTROLLERS = 2


def handle(broker: Broker, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        raise _wrong_endpoint(request.endpoint_type, context.api_version)
    image = broker.image
    return DescribeClusterResponse(
        error_message=None,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=[_described(broker, context, node) for node in image.brokers.values()],
        cluster_authorized_operations=(
            cluster_operations(context) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _described(broker: Broker, context: RequestContext, node: BrokerImage) -> DescribeClusterBroker:
    host, port = advertised_address(broker, context)
    if node.node_id != broker.node_id:
        endpoint = node.endpoint(context.connection.listener)
        host, port = (endpoint.host, endpoint.port) if endpoint is not None else ("", -1)
    return DescribeClusterBroker(broker_id=node.node_id, host=host, port=port, rack=node.rack)


def _wrong_endpoint(endpoint_type: int, version: int) -> KafkaError:
    if version == 0:
        return InvalidRequest(f"unsupported endpoint type {endpoint_type}")
    if endpoint_type == CONTROLLERS:
        return MismatchedEndpointType("this is an endpoint of a broker, not of a controller")
    return UnsupportedEndpointType(f"unsupported endpoint type {endpoint_type}")
