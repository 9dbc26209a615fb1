"""DescribeUserScramCredentials and AlterUserScramCredentials: codes and texts are Kafka's."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from klamm.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from klamm.protocol.scram import SCRAM_SHA_256, credential_of, salt_password
from tests.support.embedded import EmbeddedBroker

SHA_256, SHA_512 = 1, 2
SIZES = {SHA_256: 32, SHA_512: 64}
TWICE = "A user credential cannot be altered twice in the same request"


def upsert(
    name: str, mechanism: int = SHA_256, iterations: int = 4096, salt: bytes = b"salt", salted: bytes | None = None
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        salted_password=bytes(SIZES.get(mechanism, 32)) if salted is None else salted,
    )


def delete(name: str, mechanism: int = SHA_256) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(broker: EmbeddedBroker, *changes: object) -> dict[str, tuple[int, str | None]]:
    deletions = [change for change in changes if isinstance(change, ScramCredentialDeletion)]
    upsertions = [change for change in changes if isinstance(change, ScramCredentialUpsertion)]
    response = broker.call(AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions), 0)
    assert len({result.user for result in response.results}) == len(response.results)
    return {result.user: (result.error_code, result.error_message) for result in response.results}


def described(broker: EmbeddedBroker, *users: str, named: bool = True) -> dict[str, object]:
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=user) for user in users] if named else None)
    response = broker.call(request, 0)
    assert (response.error_code, response.error_message) == (0, None)
    return {
        result.user: [(info.mechanism, info.iterations) for info in result.credential_infos]
        if result.error_code == 0
        else (result.error_code, result.error_message)
        for result in response.results
    }


def test_what_was_set_is_described_and_stays_after_a_restart(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        assert alter(broker, upsert("a", SHA_512, 8192), upsert("b c/d", SHA_256)) == {
            "a": (0, None),
            "b c/d": (0, None),
        }
        assert alter(broker, upsert("a", SHA_256, 16384)) == {"a": (0, None)}
        assert alter(broker, upsert("b c/d", SHA_256, 5000)) == {"b c/d": (0, None)}
    expected = {"a": [(1, 16384), (2, 8192)], "b c/d": [(1, 5000)]}
    with EmbeddedBroker(tmp_path) as broker:
        assert described(broker) == described(broker, named=False) == described(broker, "b c/d", "a") == expected
        assert alter(broker, delete("a", SHA_512), delete("b c/d")) == {"a": (0, None), "b c/d": (0, None)}
        assert described(broker) == {"a": [(1, 16384)]}
    with EmbeddedBroker(tmp_path) as broker:
        assert described(broker) == {"a": [(1, 16384)]}


def test_what_is_kept_checks_the_password_and_is_not_the_salted_password(tmp_path: Path) -> None:
    salted = salt_password(SCRAM_SHA_256, "secret", b"salt", 4096)
    with EmbeddedBroker(tmp_path) as broker:
        assert alter(broker, upsert("a", salted=salted)) == {"a": (0, None)}
        assert broker.broker.image.scram["a", 1] == credential_of(SCRAM_SHA_256, salted, b"salt", 4096)
    store = b"".join(file.read_bytes() for file in (tmp_path / "data").glob("klamm-metadata.db*"))
    assert salted not in store and b"salt" in store


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        (upsert("x", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsert("x", iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (upsert("x", SHA_512, iterations=-1), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsert(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (delete(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (upsert("x", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsert("x", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (delete("x", 7), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (delete("x"), ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"),
        (delete("a", SHA_512), ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"),
        (upsert("x", salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "a salt has 1 to 1024 bytes, not 0"),
        (upsert("x", salt=b"x" * 1025), ErrorCode.UNACCEPTABLE_CREDENTIAL, "a salt has 1 to 1024 bytes, not 1025"),
        (
            upsert("x", SHA_512, salted=bytes(32)),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "a salted password of SCRAM-SHA-512 has 64 bytes",
        ),
    ],
)
def test_what_is_refused_stands_alone(broker: EmbeddedBroker, change: object, code: ErrorCode, text: str) -> None:
    assert alter(broker, upsert("a")) == {"a": (0, None)}
    user = change.name  # type: ignore[attr-defined]
    errors = alter(broker, change, upsert("good"))
    assert errors == {user: (code, text), "good": (0, None)}
    assert described(broker) == {"a": [(1, 4096)], "good": [(1, 4096)]}


@pytest.mark.parametrize(
    "changes",
    [
        (upsert("x"), upsert("x", SHA_512)),
        (upsert("x"), upsert("x")),
        (delete("a"), upsert("a")),
        (delete("a"), delete("a")),
        (delete("a"), upsert("a", SHA_512), upsert("a")),
    ],
)
def test_a_user_may_occur_once(broker: EmbeddedBroker, changes: tuple[object, ...]) -> None:
    alter(broker, upsert("a"))
    (user,) = {change.name for change in changes}  # type: ignore[attr-defined]
    assert alter(broker, *changes) == {user: (ErrorCode.DUPLICATE_RESOURCE, TWICE)}
    assert described(broker) == {"a": [(1, 4096)]}


def test_users_that_cannot_be_described(broker: EmbeddedBroker) -> None:
    alter(broker, upsert("a"))
    twice = "Cannot describe SCRAM credentials for the same user twice in a single request: a"
    unknown = "Attempt to describe a user credential that does not exist: x"
    assert described(broker, "a", "a", "x") == {
        "a": (ErrorCode.DUPLICATE_RESOURCE, twice),
        "x": (ErrorCode.RESOURCE_NOT_FOUND, unknown),
    }


def test_nothing_secret_is_logged(broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    alter(broker, upsert("a", salt=b"marked-salt", salted=b"marked-salted-password--" + bytes(8)))
    described(broker)
    assert "marked" not in caplog.text
