"""CreateAcls (KIP-140): add ACL bindings, one result per binding in the order of the request.

v1 adds the pattern type, literal or prefixed (KIP-290); v2 is flexible; v3 knows the user resource type (KIP-373)
in an unchanged layout. Apache Kafka 4.0 dropped v0.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int8, Int16, Int32, String

LITERAL = 3  # resource pattern type that v0 implies


@struct
class AclCreation:
    resource_type: Int8 = field()
    resource_name: String = field()
    resource_pattern_type: Int8 = field("1+", default=LITERAL)
    principal: String = field()
    host: String = field()
    operation: Int8 = field()
    permission_type: Int8 = field()


@message(key=30, kind="request", versions="0-3", flexible="2+")
class CreateAclsRequest:
    creations: list[AclCreation] = field()


@struct
class AclCreationResult:
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+")


@message(key=30, kind="response", versions="0-3", flexible="2+")
class CreateAclsResponse:
    throttle_time_ms: Int32 = field()
    results: list[AclCreationResult] = field()
