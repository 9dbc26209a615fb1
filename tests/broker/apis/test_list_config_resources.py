"""ListConfigResources: which names there are, by type."""

from __future__ import annotations

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.support.embedded import EmbeddedBroker


def names(broker: EmbeddedBroker, *types: int) -> set[tuple[int, str]]:
    response = broker.call(ListConfigResourcesRequest(resource_types=list(types)), 1)
    assert response.error_code == 0
    return {(resource.resource_type, resource.resource_name) for resource in response.config_resources}


def test_v0_knows_client_metrics_only(broker: EmbeddedBroker) -> None:
    assert broker.call(ListConfigResourcesRequest(), 0).config_resources == []


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ((), {(2, "t"), (4, "1"), (8, "1")}),
        ((2,), {(2, "t")}),
        ((4, 4), {(4, "1")}),
        ((8, 2), {(8, "1"), (2, "t")}),
        ((16, 32), set()),
    ],
)
def test_resources_by_type(broker: EmbeddedBroker, types: tuple[int, ...], expected: set[tuple[int, str]]) -> None:
    assert names(broker, *types) == expected


def test_an_unknown_type_is_refused(broker: EmbeddedBroker) -> None:
    response = broker.call(ListConfigResourcesRequest(resource_types=[2, 77]), 1)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION and response.config_resources == []
