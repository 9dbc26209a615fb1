"""FindCoordinator (10): v0-6. The broker that coordinates a group, a transactional id or a share partition.

v1 has the key type, v4 many keys per request (KIP-699), v6 share partitions. The coordinator of every group and
transactional id is this broker; the first request creates the internal topic that stores them. Share partitions have no
coordinator yet and get COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from klamm.broker.apis.common import advertised_address
from klamm.protocol.errors import CoordinatorNotAvailable, InvalidRequest, KafkaError
from klamm.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker

MANY_KEYS_FROM = 4
SHARE_FROM = 6
KEY_TYPES = ("group", "transaction", "share")
GROUP = KEY_TYPES.index("group")
TRANSACTION = KEY_TYPES.index("transaction")
SHARE = KEY_TYPES.index("share")
NO_NODE = -1
NO_PORT = -1


def handle(
    broker: Broker, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    version = context.api_version
    if request.key_type == GROUP:
        is_there, find = broker.groups.topic.exists, broker.groups.topic.find
    elif request.key_type == TRANSACTION:
        is_there, find = broker.transactions.topic.exists, broker.transactions.topic.find
    else:
        return error_response(request, _refusal(request.key_type, version), version)
    if is_there:
        return _response(broker, context, request)
    return _after_creation(broker, context, request, find)


async def _after_creation(
    broker: Broker, context: RequestContext, request: FindCoordinatorRequest, find: Callable[[], Awaitable[None]]
) -> FindCoordinatorResponse:
    try:
        await find()
    except KafkaError as error:
        return error_response(request, error, context.api_version)
    return _response(broker, context, request)


def _response(broker: Broker, context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    host, port = advertised_address(broker, context)
    if context.api_version < MANY_KEYS_FROM:
        return FindCoordinatorResponse(error_message=None, node_id=broker.node_id, host=host, port=port)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=broker.node_id, host=host, port=port, error_message=None)
            for key in request.coordinator_keys
        ]
    )


def _refusal(key_type: int, version: int) -> KafkaError:
    if not 0 <= key_type < len(KEY_TYPES) or (key_type == SHARE and version < SHARE_FROM):
        return InvalidRequest(f"key type {key_type} is not known in FindCoordinator v{version}")
    return CoordinatorNotAvailable(f"there is no {KEY_TYPES[key_type]} coordinator yet")


def error_response(request: FindCoordinatorRequest, error: KafkaError, version: int) -> FindCoordinatorResponse:
    """Return the same error for every key."""
    code = int(error.code)
    if version < MANY_KEYS_FROM:
        return FindCoordinatorResponse(
            error_code=code, error_message=error.message, node_id=NO_NODE, host="", port=NO_PORT
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=NO_NODE, host="", port=NO_PORT, error_code=code, error_message=error.message)
            for key in request.coordinator_keys
        ]
    )
