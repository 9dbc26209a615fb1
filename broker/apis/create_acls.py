"""CreateAcls (30): v0-3. Adds ACLs, each independently (KIP-140).

They are durable and in effect before the answer. Adding one that is there already changes nothing. v0 knows LITERAL
patterns only (KIP-290). Without an authorizer the answer is SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.broker.apis.acl_messages import acl_of, check_enabled, tell_change
from klamm.protocol.errors import KafkaError
from klamm.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker


async def handle(broker: Broker, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    check_enabled(broker)
    wanted = [acl_of(creation) for creation in request.creations]
    errors = await broker.controller.create_acls(wanted)
    for acl, error in zip(wanted, errors, strict=True):
        if error is None:
            tell_change(broker, context, "CreateAcls", acl)
    return CreateAclsResponse(results=[_result(error) for error in errors])


def error_response(request: CreateAclsRequest, error: KafkaError, version: int) -> CreateAclsResponse:
    """Return the same error for every ACL."""
    return CreateAclsResponse(results=[_result(error) for _ in request.creations])


def _result(error: KafkaError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult(error_message=None)
    return AclCreationResult(error_code=int(error.code), error_message=error.message)
