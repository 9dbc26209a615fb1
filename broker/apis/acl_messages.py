"""Common parts of the three ACL APIs: conversion of ACLs and filters between messages and the authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.broker.security.authorizer.acls import Acl, AclFilter
from klamm.protocol.errors import SecurityDisabled

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.protocol.messages.create_acls import AclCreation
    from klamm.protocol.messages.delete_acls import DeleteAclsFilter
    from klamm.protocol.messages.describe_acls import DescribeAclsRequest


def check_enabled(broker: Broker) -> None:
    """Raise SecurityDisabled without an authorizer."""
    if broker.authorizer is None:
        raise SecurityDisabled("No Authorizer is configured on the broker.")


def tell_change(broker: Broker, context: RequestContext, request: str, acl: Acl) -> None:
    """Write an added or removed ACL to the audit log."""
    if broker.audit is not None:
        connection = context.connection
        broker.audit.changed(connection.principal, connection.peer[0], request, str(acl))


def acl_of(creation: AclCreation) -> Acl:
    return Acl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def filter_of(wanted: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        wanted.pattern_type_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )
