"""Heartbeat (12): v0-4. Keeps a member of a classic group alive, and reports rebalances to it.

While the coordinator loads its log a heartbeat succeeds, as in Kafka: the member must not leave, and its session
restarts when the log is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.protocol.errors import CoordinatorLoadInProgress
from klamm.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker


def handle(broker: Broker, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    groups = broker.groups
    if request.group_id:
        try:
            groups.check(request.group_id)
        except CoordinatorLoadInProgress:
            return HeartbeatResponse()
    now = groups.now()
    response = groups.groups.protocol_handler(request.group_id).heartbeat(request, now)
    groups.arm(now)
    return response
