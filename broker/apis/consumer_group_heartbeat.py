"""ConsumerGroupHeartbeat (68): v0-1. Join, stay in and leave a group of the consumer protocol (KIP-848).

The response waits until the reported state is in the log. v1 has subscriptions by regular expression, and member ids
made by clients. Without the feature group.version, or with "consumer" not among group.coordinator.rebalance.protocols,
the response is UNSUPPORTED_VERSION, and Java clients fail: they have no fallback.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from klamm.broker.coordinator.group.classic.classic_group import Client
from klamm.broker.coordinator.runtime.completable_result import CompletableResult
from klamm.protocol.errors import KafkaError, UnsupportedVersion
from klamm.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker


def handle(
    broker: Broker, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | asyncio.Future[ConsumerGroupHeartbeatResponse]:
    groups = broker.groups
    if not groups.consumer_protocol:
        raise UnsupportedVersion("the consumer protocol is not enabled")
    if request.group_id:
        groups.check(request.group_id)
    client = Client(context.client_id or "", f"/{context.connection.peer[0]}", context.api_version)
    answer: CompletableResult[ConsumerGroupHeartbeatResponse] = CompletableResult()
    now = groups.now()
    groups.consumers.heartbeat(request, client, answer.complete, now)
    groups.arm(now)
    return answer.value_or_future()


def error_response(
    request: ConsumerGroupHeartbeatRequest, error: KafkaError, version: int
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=int(error.code), error_message=error.message)
