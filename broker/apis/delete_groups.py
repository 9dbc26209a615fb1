"""DeleteGroups (42): v0-3. Deletes groups without members, and their offsets (KIP-229).

The response waits until the tombstones are as durable as acks=all makes them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from klamm.protocol.errors import KafkaError
from klamm.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.coordinator.runtime.write_timeouts import Outcome


async def handle(broker: Broker, context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    outcomes = {group_id: _delete(broker, group_id) for group_id in dict.fromkeys(request.groups_names)}
    return DeleteGroupsResponse(results=[await _result(group_id, outcome) for group_id, outcome in outcomes.items()])


def _delete(broker: Broker, group_id: str) -> Outcome | KafkaError:
    try:
        broker.groups.check(group_id)
    except KafkaError as error:
        return error
    return broker.groups.removals.delete_group(group_id)


async def _result(group_id: str, outcome: Outcome | KafkaError) -> DeletableGroupResult:
    if isinstance(outcome, KafkaError):
        return DeletableGroupResult(group_id=group_id, error_code=int(outcome.code), error_message=outcome.message)
    code = await outcome if isinstance(outcome, asyncio.Future) else outcome
    message = code.default_message if code else None
    return DeletableGroupResult(group_id=group_id, error_code=int(code), error_message=message)


def error_response(request: DeleteGroupsRequest, error: KafkaError, version: int) -> DeleteGroupsResponse:
    """Return the same error for every group."""
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=int(error.code), error_message=error.message)
            for group_id in request.groups_names
        ]
    )
