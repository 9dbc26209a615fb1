"""FindCoordinator: no coordinator yet, said so in every version."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from klamm.broker.apis.find_coordinator import handle
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

NO_BROKER: Any = None


def answers(version: int, *keys: str, key_type: int = 0) -> list[tuple[str, int, int, str, int]]:
    """(key, error code, node id, host, port) of each answer, after a way over the wire."""
    many = version >= 4
    request = FindCoordinatorRequest(
        key="" if many else keys[0], key_type=key_type, coordinator_keys=list(keys) if many else []
    )
    context: Any = SimpleNamespace(api_version=version)
    cls: Any = FindCoordinatorResponse
    response = cls.decode[version](cls.encode[version](handle(NO_BROKER, context, request), bytearray()))[0]
    if not many:
        return [(keys[0], response.error_code, response.node_id, response.host, response.port)]
    return [(row.key, row.error_code, row.node_id, row.host, row.port) for row in response.coordinators]


@pytest.mark.parametrize("version", range(7))
def test_no_coordinator_is_available(version: int) -> None:
    keys = ["g", "h"] if version >= 4 else ["g"]
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert answers(version, *keys) == [(key, code, -1, "", -1) for key in keys]


@pytest.mark.parametrize(("version", "key_type"), [(1, 2), (5, 2), (4, 3), (6, -1)])
def test_a_key_type_that_the_version_does_not_know_is_an_invalid_request(version: int, key_type: int) -> None:
    assert answers(version, "g", key_type=key_type)[0][1] == ErrorCode.INVALID_REQUEST
