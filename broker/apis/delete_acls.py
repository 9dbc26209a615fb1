"""DeleteAcls (31): v0-3. Removes the ACLs that match any of several filters, and lists them (KIP-140).

All of them go at once, and are without effect before the answer. An ACL that several filters find is listed by each. v0
knows LITERAL patterns only (KIP-290). Without an authorizer the answer is SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.broker.apis.acl_messages import check_enabled, filter_of, tell_change
from klamm.protocol.errors import KafkaError
from klamm.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.security.authorizer.acls import Acl


async def handle(broker: Broker, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    check_enabled(broker)
    results = await broker.controller.delete_acls([filter_of(wanted) for wanted in request.filters])
    for acl in {acl: None for result in results if not isinstance(result, KafkaError) for acl in result}:
        tell_change(broker, context, "DeleteAcls", acl)
    return DeleteAclsResponse(
        filter_results=[
            _failed(result)
            if isinstance(result, KafkaError)
            else DeleteAclsFilterResult(error_message=None, matching_acls=[_removed(acl) for acl in result])
            for result in results
        ]
    )


def error_response(request: DeleteAclsRequest, error: KafkaError, version: int) -> DeleteAclsResponse:
    """Return the same error for every filter."""
    return DeleteAclsResponse(filter_results=[_failed(error) for _ in request.filters])


def _failed(error: KafkaError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=int(error.code), error_message=error.message, matching_acls=[])


def _removed(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
