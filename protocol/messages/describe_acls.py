"""DescribeAcls (KIP-140): list the ACL bindings that match a filter.

v1 adds the pattern type, literal or prefixed (KIP-290); v2 is flexible; v3 knows the user resource type (KIP-373)
in an unchanged layout. Apache Kafka 4.0 dropped v0. A null name, principal or host in the filter matches all.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int8, Int16, Int32, String

LITERAL = 3  # resource pattern type that v0 implies


@message(key=29, kind="request", versions="0-3", flexible="2+")
class DescribeAclsRequest:
    resource_type_filter: Int8 = field()
    resource_name_filter: String | None = field(nullable="0+")
    pattern_type_filter: Int8 = field("1+", default=LITERAL)
    principal_filter: String | None = field(nullable="0+")
    host_filter: String | None = field(nullable="0+")
    operation: Int8 = field()
    permission_type: Int8 = field()


@struct
class AclDescription:
    principal: String = field()
    host: String = field()
    operation: Int8 = field()
    permission_type: Int8 = field()


@struct
class DescribeAclsResource:
    resource_type: Int8 = field()
    resource_name: String = field()
    pattern_type: Int8 = field("1+", default=LITERAL)
    acls: list[AclDescription] = field()


@message(key=29, kind="response", versions="0-3", flexible="2+")
class DescribeAclsResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+")
    resources: list[DescribeAclsResource] = field()
