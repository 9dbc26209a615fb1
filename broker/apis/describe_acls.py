"""DescribeAcls (29): v0-3. The ACLs that match a filter, by their resource pattern (KIP-140).

v0 knows LITERAL patterns only (KIP-290); what it cannot tell is left out. Without an authorizer the answer is
SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.broker.apis.acl_messages import check_enabled, filter_of
from klamm.broker.security.authorizer.codes import PatternType
from klamm.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker

PATTERNS_FROM = 1


def handle(broker: Broker, context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    check_enabled(broker)
    wanted = filter_of(request)
    wanted.check()
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for acl in broker.image.acls.values():
        if not wanted.matches(acl) or (context.api_version < PATTERNS_FROM and acl.pattern_type != PatternType.LITERAL):
            continue
        key = (acl.resource_type, acl.resource_name, acl.pattern_type)
        resource = resources.get(key)
        if resource is None:
            resource = resources[key] = DescribeAclsResource(
                resource_type=acl.resource_type, resource_name=acl.resource_name, pattern_type=acl.pattern_type, acls=[]
            )
        resource.acls.append(
            AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
        )
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))
