"""The decision, by hand; `test_decisions` holds it against Kafka's class."""

from __future__ import annotations

import pytest

from klamm.broker.security.authorizer.acls import Acl
from klamm.broker.security.authorizer.codes import Operation, PatternType, Permission, ResourceType
from klamm.broker.security.authorizer.standard import EVERYTHING, StandardAuthorizer, parse_super_users

ALICE, HOST = "User:alice", "10.0.0.1"
TOPIC = ResourceType.TOPIC


def acl(
    operation: Operation = Operation.READ,
    permission: Permission = Permission.ALLOW,
    *,
    name: str = "t",
    principal: str = ALICE,
    host: str = "*",
    pattern: PatternType = PatternType.LITERAL,
) -> Acl:
    return Acl(TOPIC, name, pattern, principal, host, operation, permission)


def allows(authorizer: StandardAuthorizer, operation: Operation, name: str = "t", host: str = HOST) -> bool:
    return authorizer.allows(ALICE, host, operation, TOPIC, name)


def test_without_an_acl_everything_is_denied() -> None:
    assert not allows(StandardAuthorizer(), Operation.READ)


def test_allow_everyone_ends_with_the_first_acl_on_the_resource_whoever_it_is_for() -> None:
    authorizer = StandardAuthorizer(allow_everyone_if_no_acl=True)
    assert allows(authorizer, Operation.ALTER)
    authorizer.change(added=[acl(principal="User:bob")])
    assert not allows(authorizer, Operation.ALTER)
    assert allows(authorizer, Operation.ALTER, "other")


def test_a_super_user_is_not_denied() -> None:
    authorizer = StandardAuthorizer([acl(permission=Permission.DENY)], super_users=[ALICE])
    assert authorizer.allowed(ALICE, HOST, TOPIC, "t") == EVERYTHING


def test_a_deny_wins_and_implies_nothing() -> None:
    authorizer = StandardAuthorizer([acl(Operation.ALL), acl(Operation.READ, Permission.DENY)])
    assert not allows(authorizer, Operation.READ)
    assert allows(authorizer, Operation.DESCRIBE)


@pytest.mark.parametrize("given", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_an_allow_implies_describe(given: Operation) -> None:
    authorizer = StandardAuthorizer([acl(given)])
    assert allows(authorizer, Operation.DESCRIBE)
    assert not allows(authorizer, Operation.DESCRIBE_CONFIGS)


def test_a_prefixed_star_is_no_wildcard() -> None:
    authorizer = StandardAuthorizer([acl(name="*", pattern=PatternType.PREFIXED)])
    assert allows(authorizer, Operation.READ, "*a")
    assert not allows(authorizer, Operation.READ, "a")


def test_a_wildcard_holds_for_names_that_begin_with_a_star() -> None:
    """Kafka leaves such names out: a DENY of `*` leaves the group `*a` open there."""
    denied = acl(Operation.ALL, Permission.DENY, name="*")
    authorizer = StandardAuthorizer([acl(name="*a"), denied])
    assert not allows(authorizer, Operation.READ, "*a")


def test_names_are_compared_as_they_are() -> None:
    """Rows 45 and 46 of the hostile inputs: prefixes of other tenants, capitals, the longest name."""
    authorizer = StandardAuthorizer([acl(name="tenant-a", pattern=PatternType.PREFIXED), acl(name="Case")])
    assert allows(authorizer, Operation.READ, "tenant-a.x") and allows(
        authorizer, Operation.READ, "tenant-a" + "x" * 241
    )
    assert not allows(authorizer, Operation.READ, "tenant-b.x")
    assert not allows(authorizer, Operation.READ, "tenant-")
    assert not allows(authorizer, Operation.READ, "case")


@pytest.mark.parametrize(
    ("pattern", "host", "fits"),
    [
        ("10.0.0.77/24", "10.0.0.255", True),
        ("10.0.0.77/24", "10.0.1.0", False),
        ("0.0.0.0/0", "255.255.255.255", True),
        ("0.0.0.0/0", "2001:db8::1", False),
        ("::/0", "10.0.0.1", False),
        ("2001:db8::/32", "2001:db8:ffff::1", True),
        ("2001:db8:0:0:0:0:0:1", "2001:db8::1", True),  # the spelling does not matter here
        ("2001:DB8::1", "2001:db8::1", True),
        ("10.0.0.1", "10.0.0.10", False),
        ("no/range", "10.0.0.1", False),
        ("10.0.0.0/8", "no address", False),
    ],
)
def test_hosts(pattern: str, host: str, fits: bool) -> None:
    assert allows(StandardAuthorizer([acl(host=pattern)]), Operation.READ, host=host) is fits


def test_what_is_removed_has_no_effect_any_more() -> None:
    acls = [
        acl(),
        acl(host="10.0.0.1"),
        acl(name="*"),
        acl(pattern=PatternType.PREFIXED),
        acl(Operation.ALL, Permission.DENY, name="tt", pattern=PatternType.PREFIXED),
    ]
    authorizer = StandardAuthorizer(acls, allow_everyone_if_no_acl=True)
    assert not allows(authorizer, Operation.READ, "ttt")
    authorizer.change(removed=acls[4:])
    assert allows(authorizer, Operation.READ, "ttt")
    authorizer.change(removed=acls[:4])
    assert authorizer.allowed("User:nobody", HOST, TOPIC, "t") == EVERYTHING  # no ACL is left on it


def test_a_rule_is_printed_as_kafka_prints_it() -> None:
    authorizer = StandardAuthorizer([acl(), acl(permission=Permission.DENY)], super_users=["User:root"])
    rule = authorizer.rule(ALICE, HOST, Operation.READ, TOPIC, "t")
    assert rule == (
        "MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName='t', patternType=LITERAL, "
        "principal='User:alice', host='*', operation=READ, permissionType=DENY))"
    )
    assert authorizer.rule(ALICE, HOST, Operation.READ, TOPIC, "x") == "DefaultDeny"
    assert authorizer.rule("User:root", HOST, Operation.READ, TOPIC, "x") == "SuperUser"


def test_super_users_are_principals() -> None:
    assert parse_super_users(" User:a; Group:b:c ;") == {"User:a", "Group:b:c"}
    assert parse_super_users(None) == frozenset()
    with pytest.raises(ValueError, match="'alice' is not of the form Type:name"):
        parse_super_users("User:a;alice")
