"""DescribeCluster: identity, brokers, and the address that a client gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.describe_cluster import DescribeClusterRequest
from tests.support.embedded import EmbeddedBroker


@pytest.mark.parametrize("version", range(3))
def test_the_cluster(broker: EmbeddedBroker, version: int) -> None:
    broker.connection.local_address = ("192.0.2.7", 19092)
    response = broker.call(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    assert response.error_code == 0 and response.error_message is None
    assert response.cluster_id == broker.broker.cluster_id and response.controller_id == 1
    (node,) = response.brokers
    assert (node.broker_id, node.host, node.port, node.rack, node.is_fenced) == (1, "192.0.2.7", 19092, None, False)
    assert response.cluster_authorized_operations == sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))


def test_operations_are_returned_only_when_asked_for(broker: EmbeddedBroker) -> None:
    assert broker.call(DescribeClusterRequest(), 2).cluster_authorized_operations == -(2**31)


def test_advertised_listeners_win_over_the_local_address(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, {"advertised.listeners": "PLAINTEXT://outside:29092"}) as broker:
        (node,) = broker.call(DescribeClusterRequest(), 2).brokers
        assert (node.host, node.port) == ("outside", 29092)


@pytest.mark.parametrize(
    ("version", "endpoint_type", "code"),
    [
        (1, 2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (2, 9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (1, 0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_other_endpoints_are_refused(broker: EmbeddedBroker, version: int, endpoint_type: int, code: int) -> None:
    response = broker.call(DescribeClusterRequest(endpoint_type=endpoint_type), version)
    assert response.error_code == code and response.brokers == []
