"""DescribeAcls, CreateAcls and DeleteAcls, and the store below them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.security.authorizer.acls import Acl
from klamm.config.rows_cluster import STANDARD_AUTHORIZER
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from klamm.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from klamm.protocol.messages.describe_acls import DescribeAclsRequest
from tests.support.embedded import EmbeddedBroker

CONFIG = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
READ = Acl(2, "t", 3, "User:a", "*", 3, 3)
VERSION = 3
EVERYTHING = (1, None, 1, None, None, 1, 1)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path, CONFIG) as broker:
        yield broker


def creation(acl: Acl) -> AclCreation:
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def filter_fields(wanted: tuple[Any, ...]) -> dict[str, Any]:
    names = ("resource_type_filter", "resource_name_filter", "pattern_type_filter", "principal_filter", "host_filter")
    return dict(zip((*names, "operation", "permission_type"), wanted, strict=True))


def create(broker: EmbeddedBroker, *acls: Acl, version: int = VERSION) -> list[int]:
    response = broker.call(CreateAclsRequest(creations=[creation(acl) for acl in acls]), version)
    return [result.error_code for result in response.results]


def describe(broker: EmbeddedBroker, *wanted: Any, version: int = VERSION) -> list[Acl]:
    response = broker.call(DescribeAclsRequest(**filter_fields(wanted or EVERYTHING)), version)
    assert response.error_code == 0, response
    return [
        Acl(found.resource_type, found.resource_name, found.pattern_type, acl.principal, acl.host, acl.operation,
            acl.permission_type)
        for found in response.resources
        for acl in found.acls
    ]  # fmt: skip


def delete(broker: EmbeddedBroker, *filters: tuple[Any, ...]) -> list[tuple[int, int]]:
    response = broker.call(
        DeleteAclsRequest(filters=[DeleteAclsFilter(**filter_fields(wanted)) for wanted in filters]), VERSION
    )
    return [(result.error_code, len(result.matching_acls)) for result in response.filter_results]


def test_an_acl_is_stored_once_and_survives_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        with EmbeddedBroker(tmp_path, CONFIG) as broker:
            assert create(broker, READ, READ) == [0, 0]
            assert describe(broker) == [READ]


def test_each_acl_succeeds_or_fails_alone(broker: EmbeddedBroker) -> None:
    bad = READ._replace(host="10.0.0.0/33")
    assert create(broker, bad, READ, READ._replace(resource_type=0)) == [42, 0, 42]
    assert describe(broker) == [READ]


def test_overlapping_filters_remove_once_and_tell_twice(broker: EmbeddedBroker) -> None:
    other = READ._replace(principal="User:b")
    create(broker, READ, other)
    everything, of_a = (2, "t", 2, None, None, 1, 1), (2, None, 1, "User:a", None, 1, 1)
    assert delete(broker, everything, of_a, (3, *of_a[1:]), (0, *of_a[1:])) == [(0, 2), (0, 1), (0, 0), (42, 0)]
    assert describe(broker) == []


def test_an_old_client_gets_literal_patterns_only(broker: EmbeddedBroker) -> None:
    create(broker, READ, READ._replace(pattern_type=4))
    assert describe(broker, 1, None, 3, None, None, 1, 1, version=0) == [READ]


def test_too_many_are_refused(broker: EmbeddedBroker) -> None:
    """Row 44 of the hostile inputs."""
    request = CreateAclsRequest(creations=[creation(READ._replace(host=str(n))) for n in range(10_001)])
    response = broker.call(request, VERSION)
    assert {result.error_code for result in response.results} == {42}
    assert describe(broker) == []


def test_without_an_authorizer_there_are_no_acls(tmp_path: Path) -> None:
    disabled = int(ErrorCode.SECURITY_DISABLED)
    with EmbeddedBroker(tmp_path) as broker:
        assert create(broker, READ) == [disabled]
        assert delete(broker, EVERYTHING) == [(disabled, 0)]
        assert broker.call(DescribeAclsRequest(**filter_fields(EVERYTHING)), VERSION).error_code == disabled
