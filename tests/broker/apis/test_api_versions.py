"""ApiVersions is the registry, in a form that every client can read."""

from __future__ import annotations

import struct

import pytest

from klamm.broker.apis.registry import HANDLERS
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.api_versions import ApiVersionsRequest
from tests.support.embedded import EmbeddedBroker, decode_reply


def named(**options: object) -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="my-client", client_software_version="1.0", **options)


@pytest.mark.parametrize("version", range(6))
def test_what_is_advertised_is_the_registry(broker: EmbeddedBroker, version: int) -> None:
    response = broker.call(named() if version >= 3 else ApiVersionsRequest(), version)
    served = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    assert served == {key: (row.min_version, row.max_version) for key, row in HANDLERS.items()}


def test_features_are_there_from_v3(broker: EmbeddedBroker) -> None:
    response = broker.call(named(), 3)
    assert "metadata.version" in {feature.name for feature in response.finalized_features}
    assert response.finalized_features_epoch >= 0
    assert all(feature.min_version > 0 for feature in response.supported_features)


def test_an_unknown_version_is_answered_in_v0(broker: EmbeddedBroker) -> None:
    reply = broker.dispatch(struct.pack(">hhih", 18, 99, 7, -1))
    response = decode_reply(reply, 18, 0)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [row.api_key for row in response.api_keys] == [18]


@pytest.mark.parametrize("name", ["", "-x", "a b", "x-"])
def test_a_bad_client_name_is_refused(broker: EmbeddedBroker, name: str) -> None:
    response = broker.call(ApiVersionsRequest(client_software_name=name, client_software_version="1"), 3)
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_a_client_that_means_another_cluster_is_sent_away(broker: EmbeddedBroker) -> None:
    mine = broker.broker.cluster_id
    assert broker.call(named(cluster_id=mine, node_id=1), 5).error_code == 0
    assert broker.call(named(cluster_id="other"), 5).error_code == ErrorCode.REBOOTSTRAP_REQUIRED
    assert broker.call(named(node_id=9), 5).error_code == ErrorCode.REBOOTSTRAP_REQUIRED
