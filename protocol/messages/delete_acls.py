"""DeleteAcls (KIP-140): remove every ACL binding that matches a filter, and tell which ones went, filter by filter.

v1 adds the pattern type, literal or prefixed (KIP-290); v2 is flexible; v3 knows the user resource type (KIP-373)
in an unchanged layout. Apache Kafka 4.0 dropped v0. A null name, principal or host in a filter matches all.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int8, Int16, Int32, String

LITERAL = 3  # resource pattern type that v0 implies


@struct
class DeleteAclsFilter:
    resource_type_filter: Int8 = field()
    resource_name_filter: String | None = field(nullable="0+")
    pattern_type_filter: Int8 = field("1+", default=LITERAL)
    principal_filter: String | None = field(nullable="0+")
    host_filter: String | None = field(nullable="0+")
    operation: Int8 = field()
    permission_type: Int8 = field()


@message(key=31, kind="request", versions="0-3", flexible="2+")
class DeleteAclsRequest:
    filters: list[DeleteAclsFilter] = field()


@struct
class DeleteAclsMatchingAcl:
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+")
    resource_type: Int8 = field()
    resource_name: String = field()
    pattern_type: Int8 = field("1+", default=LITERAL)
    principal: String = field()
    host: String = field()
    operation: Int8 = field()
    permission_type: Int8 = field()


@struct
class DeleteAclsFilterResult:
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = field()


@message(key=31, kind="response", versions="0-3", flexible="2+")
class DeleteAclsResponse:
    throttle_time_ms: Int32 = field()
    filter_results: list[DeleteAclsFilterResult] = field()
