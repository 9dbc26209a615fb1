from __future__ import annotations

import time

import pytest

from klamm.broker.security.tls.principal_rules import BadRule, NoMatchingRule, PrincipalRules
from tests.broker.security.tls.java_names import ask

NONE = "none"
CASES = [
    ("DEFAULT", "CN=a,O=b", "=CN=a,O=b"),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,DEFAULT", "CN=kafka,OU=ServiceUsers,O=x", "=kafka"),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,DEFAULT", "CN=kafka,OU=Other,O=x", "=CN=kafka,OU=Other,O=x"),
    ("RULE:^CN=(.*?),O=x$/$1@$2/L", "CN=KafKa,O=x", "=kafka@$2"),
    ("RULE:CN=(.*?)/$1@$2/L", "CN=KafKa,O=x", "=@$2kafka,o=x"),
    ("RULE:CN=(.*)/$1@$0/U", "CN=KafKa,O=x", "=KAFKA,O=X@CN=KAFKA,O=X"),
    ("RULE:.*/x/", "abc", "=xx"),
    ("RULE:b*/x/", "bbb", "=xx"),
    ("RULE:CN=admin/admin/", "CN=admin,O=evil", NONE),
    ("RULE:CN=admin/admin/", "O=evil,CN=admin", NONE),
    (r"RULE:CN=(.*?),.*/$1\/y/U", "CN=aa,O=x", "=AA/Y"),
    ("RULE:CN=(.*?),.*/$1,z/ , DEFAULT", "CN=aa,O=x", "=aa,z"),
    (r"RULE:CN=(.*)\,O=(.*)/$2-$1/", "CN=aa,O=bb", "=bb-aa"),
    ("RULE:CN=((a)(b)(c)(d)(e)(f)(g)(h)(i)(j))/$10$11$12/", "CN=abcdefghij", "=ijabcdefghij2"),
    ("RULE:CN=(a)/$11/", "CN=a", "=a1"),
    (r"RULE:CN=(a)/\$1/", "CN=a", "=$1"),
    (r"RULE:CN=(a)/\\$1/", "CN=a", "=\\a"),
    ("RULE:CN=(?<x>a)/${x}/", "CN=a", "=a"),
    ("RULE:(CN)=a|CN=b/<$1>/", "CN=b", "=<>"),
    (r"RULE:CN=a/b c\n/", "CN=a", "=b cn"),
    (r"RULE:CN=(.)/$1x\/$01/", "CN=q", "=qx/q"),
    ("RULE:CN=(.)/$1x$1/L,RULE:.*/z/", "CN=Q", "=qxq"),
    (r"RULE:CN=([\p{Alpha}.]+)\p{Digit}*,.*/$1/", "CN=a.b12,O=x", "=a.b"),
    (r"RULE:CN=\p{Lower}\P{Lower}/ok/", "CN=aB", "=ok"),
    ("RULE:a/b/", "c", NONE),
]


def apply(rules: str, name: str) -> str:
    try:
        return "=" + PrincipalRules(rules).name(name)
    except NoMatchingRule:
        return NONE


@pytest.mark.parametrize(("rules", "name", "expected"), CASES)
def test_rules(rules: str, name: str, expected: str) -> None:
    assert apply(rules, name) == expected


@pytest.mark.java
def test_the_cases_are_those_of_kafka() -> None:
    assert ask([f"rules {rules}\t{name}" for rules, name, _ in CASES]) == [expected for *_, expected in CASES]


@pytest.mark.parametrize(
    "rules",
    [
        "", " , ,", "BOGUS", "RULE:a/b", "RULE:a/b/X", "RULE:a/b/LU", "RULE:a(/b/", "RULE:a/$/", r"RULE:a/${x}/",
        "RULE:a*+/b/", "RULE:(?=a)a/b/", r"RULE:(a)\1/b/", "RULE:[a-z&&[^b]]/b/", "RULE:[a[b]]/b/",
    ],
)  # fmt: skip
def test_what_is_no_rule_is_refused(rules: str) -> None:
    with pytest.raises(BadRule):
        PrincipalRules(rules)


def test_a_rule_that_backtracks_without_end_in_java_does_not() -> None:
    rules = PrincipalRules("RULE:(a*)*(a*)*(a*)*b/x/")
    started = time.process_time()
    assert apply("RULE:CN=(a|aa)+$/x/", "CN=" + "a" * 1000 + "!") == NONE
    with pytest.raises(NoMatchingRule):
        rules.name("a" * 1024)
    assert time.process_time() - started < 5  # ages, if it did
