"""ACLs: what one says, which may be stored, and which of them a filter means.

An ACL allows or denies a principal, from a host, one operation on the resources that a pattern names. A LITERAL pattern
names one resource, or all of its type (`*`). A PREFIXED pattern names every resource with a name that begins with its
own.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from klamm.broker.security.authorizer.codes import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from klamm.broker.security.authorizer.hosts import check_host
from klamm.protocol.errors import InvalidRequest
from klamm.protocol.wire import MAX_STRING_BYTES, fits_string

WILDCARD = "*"
ANYBODY = "User:*"
"""The principal of an ACL that means every principal, of any type."""


class Acl(NamedTuple):
    """One ACL, in the order of Kafka's AccessControlEntryRecord."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int

    def __str__(self) -> str:
        return (
            f"StandardAcl(resourceType={ResourceType(self.resource_type).name}, resourceName='{self.resource_name}', "
            f"patternType={PatternType(self.pattern_type).name}, principal='{self.principal}', host='{self.host}', "
            f"operation={Operation(self.operation).name}, permissionType={Permission(self.permission).name})"
        )


def check(acl: Acl) -> None:
    """Raise InvalidRequest unless the ACL may be stored. Host names and principals that nobody has may be."""
    _check_code("resource type", acl.resource_type, ResourceType, ResourceType.TOPIC)
    _check_code("pattern type", acl.pattern_type, PatternType, PatternType.LITERAL)
    _check_code("operation", acl.operation, Operation, Operation.ALL)
    _check_code("permission type", acl.permission, Permission, Permission.DENY)
    for text in (acl.resource_name, acl.principal, acl.host):
        if not fits_string(text):
            raise InvalidRequest(f"names, principals and hosts may have {MAX_STRING_BYTES} bytes of UTF-8 each")
    if not acl.resource_name:
        raise InvalidRequest("Resource name should not be empty")
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise InvalidRequest(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}.")
    if ":" not in acl.principal:
        raise InvalidRequest(f"Could not parse principal from `{acl.principal[:100]}` (no colon is present).")
    check_host(acl.host)


def _check_code(what: str, code: int, codes: type[IntEnum], first: IntEnum) -> None:
    if not first <= code <= max(codes):
        raise InvalidRequest(f"An ACL cannot have the {what} {codes(code).name if code in list(codes) else code}.")


class AclFilter(NamedTuple):
    """The ACLs that fit all of it. Null and ANY fit everything; hosts are compared as text."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def check(self) -> None:
        """Raise InvalidRequest for a filter that says nothing: the code 0."""
        if not (self.resource_type and self.pattern_type and self.operation and self.permission):
            raise InvalidRequest("The ACL filter has the resource type, pattern type, operation or permission UNKNOWN.")

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self._matches_pattern(acl)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        name, kind = self.resource_name, self.pattern_type
        if kind not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if name is None or name == acl.resource_name:
            return True
        if kind != PatternType.MATCH:
            return False
        if acl.pattern_type == PatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name == WILDCARD
