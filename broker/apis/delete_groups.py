"""DeleteGroups (42): v0-3. Delete groups that nobody is in, with their offsets (KIP-229)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.protocol.errors import KafkaError
from klamm.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker


def handle(broker: Broker, context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[_deleted(broker, group_id) for group_id in dict.fromkeys(request.groups_names)]
    )


def _deleted(broker: Broker, group_id: str) -> DeletableGroupResult:
    try:
        broker.groups.check(group_id)
    except KafkaError as error:
        return DeletableGroupResult(group_id=group_id, error_code=int(error.code), error_message=error.message)
    code = broker.groups.delete_group(group_id)
    message = code.default_message if code else None
    return DeletableGroupResult(group_id=group_id, error_code=int(code), error_message=message)


def error_response(request: DeleteGroupsRequest, error: KafkaError, version: int) -> DeleteGroupsResponse:
    """The same error for every group."""
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=int(error.code), error_message=error.message)
            for group_id in request.groups_names
        ]
    )
