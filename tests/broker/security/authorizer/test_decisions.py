"""Every decision as Apache Kafka's StandardAuthorizer makes it: a sample with its seed, and 2,200,000 as a campaign."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator

import pytest

from klamm.broker.security.authorizer.acls import Acl
from klamm.broker.security.authorizer.hosts import canonical
from klamm.broker.security.authorizer.standard import StandardAuthorizer, parse_super_users
from tests.support.jars import JAVA, run_java

pytestmark = pytest.mark.java

PROGRAM = JAVA / "authorizer" / "Decisions.java"


def differences(lines: Iterable[str]) -> Iterator[str]:
    """The questions that are answered in another way here."""
    authorizer = StandardAuthorizer()
    for line in lines:
        kind, *rest = line.rstrip("\n").split("\t")
        if kind == "SET":
            users, everyone = rest
            authorizer = StandardAuthorizer(
                super_users=parse_super_users(users), allow_everyone_if_no_acl=everyone == "1"
            )
        elif kind == "ACL":
            type_, name, pattern, principal, host, operation, permission = rest
            acl = Acl(int(type_), name, int(pattern), principal, host, int(operation), int(permission))
            authorizer.change(added=[acl])
        else:
            principal, host, operation, type_, *names, allowed = rest
            question = (principal, canonical(host), int(operation), int(type_))
            if (authorizer.allows(*question, *names) if names else authorizer.allows_some(*question)) != (
                allowed == "1"
            ):
                yield line


def ask(seed: int, decisions: int, by_type: int) -> list[str]:
    output = run_java("broker", PROGRAM, str(seed), str(decisions), str(by_type), timeout_s=600)
    lines = output.splitlines()
    assert sum(line.startswith("REQ") for line in lines) == decisions
    assert sum(line.startswith("BYT") for line in lines) == by_type
    return lines


def test_a_sample_of_decisions() -> None:
    seed = int(os.environ.get("KLAMM_SEED") or random.SystemRandom().randrange(2**31))
    print(f"KLAMM_SEED={seed}")
    assert list(differences(ask(seed, 20_000, 2_000))) == []


@pytest.mark.campaign
def test_two_million_decisions() -> None:
    seed = int(os.environ.get("KLAMM_SEED", "20261122"))
    print(f"KLAMM_SEED={seed}")
    for part in range(20):
        assert list(differences(ask(seed + part, 100_000, 10_000))) == []
