"""SCRAM logins by a delegation token: the extension `tokenauth`."""

from __future__ import annotations

import base64
import math

import pytest

from klamm.broker.security.sasl.mechanism import Challenge, LoggedIn, LoginFailed
from klamm.broker.security.sasl.scram import Lent, Scram, ScramUsers
from klamm.broker.security.tokens import TokenKeys
from klamm.protocol.scram import BY_NAME, ScramMechanism, proof_of, salt_password

KEYS = TokenKeys("the secret", lambda size: b"s" * size)
LIVES = {"token-1": 60_000.0}


def users(mechanism: ScramMechanism) -> ScramUsers:
    def find_token(token_id: str) -> Lent | None:
        if token_id not in LIVES:
            return None
        return Lent("alice", LIVES[token_id], KEYS.credential(mechanism, token_id))

    return ScramUsers(mechanism, lambda _: None, b"s" * 32, lambda size: b"r" * size, find_token)


def log_in(
    mechanism: ScramMechanism, name: str = "token-1", extensions: str = ",tokenauth=true", hmac: bytes | None = None
) -> LoggedIn:
    machine = Scram(users(mechanism))
    bare = f"n={name},r=abc{extensions}"
    challenge = machine.step(f"n,,{bare}".encode())
    assert isinstance(challenge, Challenge)
    nonce, salt, iterations = (part[2:] for part in challenge.token.decode().split(","))
    password = base64.b64encode(hmac if hmac is not None else KEYS.hmac_of(name)).decode()
    salted = salt_password(mechanism, password, base64.b64decode(salt), int(iterations))
    final = f"c=biws,r={nonce}"
    proof = proof_of(mechanism, salted, f"{bare},{challenge.token.decode()},{final}".encode())
    result = machine.step(f"{final},p={base64.b64encode(proof).decode()}".encode())
    assert isinstance(result, LoggedIn)
    return result


@pytest.mark.parametrize("mechanism", BY_NAME.values(), ids=list(BY_NAME))
def test_a_token_logs_in_as_its_owner_until_it_expires(mechanism: ScramMechanism) -> None:
    result = log_in(mechanism)
    assert (result.user, result.lifetime_ms, result.is_by_token) == ("alice", 60_000.0, True)
    assert math.isfinite(result.lifetime_ms)


@pytest.mark.parametrize(
    ("name", "extensions"),
    [
        ("token-1", ""),
        ("token-1", ",tokenauth=false"),
        ("token-1", ",tokenauth=TRUE"),
        ("token-1", ",tokenauth=true,tokenauth=true"),
        ("token-1", ",tokenauth=true,TokenAuth=false"),
        ("token-1", ",tokenauth=yes"),
        ("expired", ",tokenauth=true"),
        ("alice", ",tokenauth=true"),
    ],
)
def test_security_row_31_anything_else_is_no_token_login(name: str, extensions: str) -> None:
    with pytest.raises(LoginFailed) as caught:
        log_in(BY_NAME["SCRAM-SHA-256"], name, extensions)
    assert caught.value.text is None


def test_a_token_with_another_hmac_fails() -> None:
    with pytest.raises(LoginFailed):
        log_in(BY_NAME["SCRAM-SHA-512"], hmac=b"x" * 64)


def test_a_token_that_expires_during_the_login_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Scram._first

    def first(self: Scram, token: bytes) -> Challenge:
        challenge = original(self, token)
        monkeypatch.delitem(LIVES, "token-1")
        return challenge

    monkeypatch.setattr(Scram, "_first", first)
    with pytest.raises(LoginFailed):
        log_in(BY_NAME["SCRAM-SHA-256"])
