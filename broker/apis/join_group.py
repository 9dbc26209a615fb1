"""JoinGroup (11): v0-9. Joins a classic group, or its rebalance.

The response waits for the group. v0 has one timeout for session and rebalance. v4 makes a new member join twice, the
second time with the member id of the first response (KIP-394). v5 has static members (KIP-345), v9 lets a static leader
skip the assignment (KIP-814).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from klamm.broker.coordinator.group.classic.classic_group import Client
from klamm.broker.coordinator.group.classic.responses import NO_MEMBER
from klamm.broker.coordinator.names import ID_BYTES, check_each, check_names
from klamm.broker.coordinator.runtime.completable_result import CompletableResult
from klamm.protocol.errors import KafkaError
from klamm.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from klamm.protocol.wire import fits_string

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker

NULL_PROTOCOL_FROM = 7


def handle(
    broker: Broker, context: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse | asyncio.Future[JoinGroupResponse]:
    groups = broker.groups
    try:
        _check_names(request, context.client_id)
        if request.group_id:
            groups.check(request.group_id)
    except KafkaError as error:
        return error_response(request, error, context.api_version)
    # Kafka shows addresses as Java prints them: a slash before the number, as there is no host name.
    client = Client(context.client_id or "", f"/{context.connection.peer[0]}", context.api_version)
    answer: CompletableResult[JoinGroupResponse] = CompletableResult()

    def callback(response: JoinGroupResponse) -> None:
        if response.error_code:
            response.protocol_name = _no_protocol(context.api_version)
        answer.complete(response)

    now = groups.now()
    groups.groups.make_room_for_classic(request.group_id, now)
    groups.groups.protocol_handler(request.group_id).join(request, client, callback, now)
    groups.arm(now)
    return answer.value_or_future()


def error_response(request: JoinGroupRequest, error: KafkaError, version: int) -> JoinGroupResponse:
    member_id = request.member_id if fits_string(request.member_id) else NO_MEMBER
    return JoinGroupResponse(error_code=int(error.code), member_id=member_id, protocol_name=_no_protocol(version))


def _check_names(request: JoinGroupRequest, client_id: str | None) -> None:
    """Raise InvalidRequest for a name that cannot be stored. Two of them begin the id of a new member."""
    check_names(member_id=request.member_id, protocol_type=request.protocol_type)
    check_names(ID_BYTES, client_id=client_id, group_instance_id=request.group_instance_id)
    check_each("protocol_name", [protocol.name for protocol in request.protocols])


def _no_protocol(version: int) -> str | None:
    """Return the protocol name of an error response."""
    return None if version >= NULL_PROTOCOL_FROM else ""
