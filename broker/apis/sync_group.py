"""SyncGroup (14): v0-5. The leader sends the assignment, every member gets its share.

The response waits until the leader's assignment is in the log. v3 has static members (KIP-345), v5 requires the
protocol in both directions (KIP-559).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from klamm.broker.coordinator.runtime.completable_result import CompletableResult
from klamm.protocol.errors import InconsistentGroupProtocol
from klamm.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker

PROTOCOL_FROM = 5


def handle(
    broker: Broker, context: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | asyncio.Future[SyncGroupResponse]:
    groups = broker.groups
    if context.api_version >= PROTOCOL_FROM and not (request.protocol_type and request.protocol_name):
        raise InconsistentGroupProtocol("protocol type and name must be given")
    if request.group_id:
        groups.check(request.group_id)
    answer: CompletableResult[SyncGroupResponse] = CompletableResult()
    now = groups.now()
    groups.groups.protocol_handler(request.group_id).sync(request, answer.complete, now)
    groups.arm(now)
    return answer.value_or_future()
