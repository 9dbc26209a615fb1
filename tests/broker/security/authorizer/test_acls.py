"""What may be stored, and what filters find."""

from __future__ import annotations

import pytest

from klamm.broker.security.authorizer.acls import Acl, AclFilter, check
from klamm.broker.security.authorizer.codes import PatternType
from klamm.protocol.errors import InvalidRequest

GOOD = Acl(2, "t", 3, "User:x", "*", 3, 3)


@pytest.mark.parametrize(
    "change",
    [
        {"host": "some.host"},
        {"host": "10.0.0.0/8"},
        {"host": "2001:db8::/32"},
        {"principal": "User:"},
        {"principal": "Group:a:b"},
        {"operation": 12},
        {"resource_type": 7, "resource_name": "x"},
        {"resource_type": 4, "resource_name": "kafka-cluster"},
    ],
)
def test_what_kafka_stores_is_stored(change: dict[str, object]) -> None:
    check(GOOD._replace(**change))


@pytest.mark.parametrize(
    "change",
    [
        {"resource_type": 0},
        {"resource_type": 1},
        {"resource_type": 99},
        {"resource_type": -1},
        {"pattern_type": 1},
        {"pattern_type": 2},
        {"operation": 1},
        {"operation": 16},
        {"permission": 1},
        {"permission": 4},
        {"resource_name": ""},
        {"resource_type": 4, "resource_name": "other"},
        {"resource_type": 4, "resource_name": "kafka", "pattern_type": 4},
        {"principal": "nobody"},
        {"host": ""},
        {"host": "10.0.0.0/33"},
        {"host": "1.2.3.4/-1"},
        {"host": "/99999999999"},
        {"host": "1.2.3.4/99999999999"},
        {"host": "[::]/0"},
        {"host": "::/129"},
        {"host": "::ffff:1.2.3.4/96"},
        {"host": "256.0.0.0/8"},
        {"host": "10.0.0.0/8/8"},
        {"resource_name": "\ufffd" * 20000},
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, object]) -> None:
    """Row 44 of the hostile inputs."""
    with pytest.raises(InvalidRequest):
        check(GOOD._replace(**change))


ANY = AclFilter(1, None, 1, None, None, 1, 1)
LITERAL, STAR, PREFIXED = GOOD, GOOD._replace(resource_name="*"), GOOD._replace(pattern_type=PatternType.PREFIXED)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (ANY, {LITERAL, STAR, PREFIXED}),
        (ANY._replace(pattern_type=3), {LITERAL, STAR}),
        (ANY._replace(pattern_type=4), {PREFIXED}),
        (ANY._replace(resource_name="t"), {LITERAL, PREFIXED}),
        (ANY._replace(resource_name="t", pattern_type=2), {LITERAL, STAR, PREFIXED}),
        (ANY._replace(resource_name="tt", pattern_type=2), {STAR, PREFIXED}),
        (ANY._replace(resource_name="x", pattern_type=2), {STAR}),
        (ANY._replace(pattern_type=2), {LITERAL, STAR, PREFIXED}),
        (ANY._replace(resource_type=99), set()),
        (ANY._replace(host="10.0.0.1"), set()),
        (ANY._replace(principal="User:x", operation=3, permission=3, host="*"), {LITERAL, STAR, PREFIXED}),
        (ANY._replace(principal="User:*"), set()),
    ],
)
def test_filters(wanted: AclFilter, found: set[Acl]) -> None:
    wanted.check()
    assert {acl for acl in (LITERAL, STAR, PREFIXED) if wanted.matches(acl)} == found


@pytest.mark.parametrize("field", ["resource_type", "pattern_type", "operation", "permission"])
def test_a_filter_with_an_unknown_code_is_refused(field: str) -> None:
    with pytest.raises(InvalidRequest):
        ANY._replace(**{field: 0}).check()
