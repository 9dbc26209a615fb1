"""Which tokens are taken: signatures, claims, keys. No sockets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from klamm.broker.security.sasl.oauth.bearer import Bearer, TokenRefused
from klamm.broker.security.sasl.oauth.claims import Expected, check_unsecured
from klamm.broker.security.sasl.oauth.keys import Keys, UnusableKeys
from klamm.broker.security.sasl.oauth.validation import SignedTokens
from tests.broker.security.sasl.tokens import (
    CLAIMS,
    EC,
    ED,
    GOOD_SET,
    NOW_S,
    OTHER_RSA,
    RSA,
    RSAKey,
    b64,
    hmac_with_public_key,
    jwk,
    jwks,
    token,
    unsigned,
)

pytestmark = pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning")

EXPECTED = Expected(audiences=("kafka", "klamm"), issuer="https://issuer")


class Checked:
    """A check with counted refreshes and a clock that stands still."""

    def __init__(self, expected: Expected = EXPECTED, keys: bytes = GOOD_SET) -> None:
        self.keys = Keys()
        self.keys.replace(keys)
        self.refreshes = 0
        self.monotonic_s = 1000.0
        tokens = SignedTokens(
            expected, self.keys, refresh=self._refresh, wall_s=lambda: NOW_S, monotonic_s=lambda: self.monotonic_s
        )
        self.check = tokens.check

    def _refresh(self) -> None:
        self.refreshes += 1

    def refusal(self, text: str) -> str:
        with pytest.raises(TokenRefused) as caught:
            self.check(text)
        return caught.value.reason


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in CLAIMS.items() if key != name}


@pytest.mark.parametrize(
    ("key", "header"),
    [
        (RSA, {"alg": "RS256", "kid": "rsa"}),
        (RSA, {"alg": "PS512", "kid": "rsa"}),
        (EC, {"alg": "ES256", "kid": "ec"}),
        (ED, {"alg": "EdDSA", "kid": "ed"}),
        (RSA, {"alg": "RS256", "kid": "rsa", "jku": "http://127.0.0.1:1/evil", "x5u": "http://127.0.0.1:1/evil"}),
    ],
)
def test_a_good_token_is_of_its_subject_until_it_expires(key: Any, header: dict[str, Any]) -> None:
    assert Checked().check(token(key=key, header=header)) == Bearer("alice", 300_000)


def test_security_row_34_algorithms_and_key_ids_that_are_refused() -> None:
    checked = Checked()
    for text in (
        unsigned({"alg": "none", "kid": "rsa"}),
        unsigned({"alg": "None", "kid": "rsa"}),
        hmac_with_public_key(),
        token(header={"alg": "RS256"}),
        token(header={"alg": "RS256", "kid": "ec"}),
        token(key=EC, header={"alg": "ES256", "kid": "rsa"}),
        token(key=OTHER_RSA),
        token()[:-6] + "AAAAAA",
        unsigned({"alg": "RS256", "kid": ["rsa"]}),
        unsigned({"alg": "RS256", "kid": "x" * 1001}),
    ):
        assert checked.refusal(text)
    assert checked.refreshes == 0


def test_security_row_34_unknown_keys_start_one_refresh_in_a_minute() -> None:
    checked = Checked()
    for number in range(1000):
        assert checked.refusal(token(header={"alg": "RS256", "kid": f"../../{number}"})) == "kid is not known"
    assert checked.refreshes == 1
    checked.monotonic_s += 61
    checked.refusal(token(header={"alg": "RS256", "kid": "new"}))
    assert checked.refreshes == 2


@pytest.mark.parametrize(
    "claims",
    [
        without("exp"),
        {**CLAIMS, "exp": NOW_S - 31},
        {**CLAIMS, "exp": 1e308},
        {**CLAIMS, "exp": -1},
        {**CLAIMS, "exp": str(NOW_S + 300)},
        {**CLAIMS, "exp": True},
        {**CLAIMS, "exp": None},
        without("iat"),
        {**CLAIMS, "iat": NOW_S + 3600},
        {**CLAIMS, "nbf": NOW_S + 3600},
        {**CLAIMS, "aud": "other"},
        {**CLAIMS, "aud": ["other", 5]},
        {**CLAIMS, "aud": {"kafka": 1}},
        without("aud"),
        {**CLAIMS, "iss": "https://issuer/"},
        without("iss"),
        {**CLAIMS, "sub": ""},
        {**CLAIMS, "sub": "  "},
        {**CLAIMS, "sub": 7},
        without("sub"),
    ],
)
def test_security_row_35_claims_that_do_not_hold_are_refused(claims: dict[str, Any]) -> None:
    assert Checked().refusal(token(claims))


def test_claims_within_the_skew_and_in_other_forms_hold() -> None:
    checked = Checked()
    for claims in (
        {**CLAIMS, "exp": NOW_S - 29},
        {**CLAIMS, "iat": NOW_S + 29},
        {**CLAIMS, "nbf": NOW_S},
        {**CLAIMS, "aud": ["other", "klamm"]},
        {**CLAIMS, "exp": NOW_S + 0.5},
    ):
        bearer = checked.check(token(claims))
        assert bearer.subject == "alice"
        assert bearer.lifetime_ms > 0


def test_unchecked_audience_and_issuer_are_not_looked_at() -> None:
    checked = Checked(Expected())
    assert checked.check(token({**without("aud"), "iss": "anybody"})).subject == "alice"


def test_another_subject_claim_and_scopes() -> None:
    expected = Expected(subject_claim="user", required_scope=frozenset({"read", "write"}))
    checked = Checked(expected)
    for scope in ("write read more", ["read", "write"]):
        assert checked.check(token({**CLAIMS, "user": "bob", "scope": scope})).subject == "bob"
    for bad in ("read", None, 5, ["read", 5]):
        with pytest.raises(TokenRefused) as caught:
            checked.check(token({**CLAIMS, "user": "bob", "scope": bad}))
    assert '"status":"invalid_token"' in caught.value.as_json()
    with pytest.raises(TokenRefused) as caught:
        checked.check(token({**CLAIMS, "user": "bob", "scope": "read"}))
    assert json.loads(caught.value.as_json()) == {"status": "insufficient_scope", "scope": "read write"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "..",
        "a.b",
        "a.b.c.d.e",
        "!.!.!",
        token() + ".x",
        token({**CLAIMS, "pad": "x" * 20_000}),
        unsigned({"alg": "RS256", "kid": "rsa", "crit": ["exp"]}),
        unsigned({"alg": "RS256", "kid": "rsa", "b64": False}),
        token(b'{"sub":"alice","sub":"admin","exp":1,"iat":1}'),
        token(b"[" * 10_000 + b"]" * 10_000),
        token(b'{"a":' * 2_000 + b"1" + b"}" * 2_000),
        token(b'{"exp":NaN}'),
        token(b"\xff\xfe"),
        token(b"[]"),
        f"{b64(b'[1]')}.{b64(b'{}')}.{b64(b'x')}",
    ],
    ids=range(16),
)
def test_security_row_36_what_is_no_token_is_refused_and_nothing_is_fetched(text: str) -> None:
    checked = Checked()
    assert checked.refusal(text)
    assert checked.refreshes == 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not JSON",
        b"[" * 100_000,
        b"[]",
        b"{}",
        b'{"keys":[]}',
        b'{"keys":{}}',
        b'{"keys":[1,null,"x",{}]}',
        jwks(*[{"kty": "RSA", "kid": str(number)} for number in range(101)]),
        jwks(jwk(RSAKey.generate_key(1024), "rsa")),
        jwks({"kty": "RSA", "n": b64(b"\xc1" * 64), "e": "AQAB", "kid": "rsa"}),
        jwks({"kty": "RSA", "n": b64(b"\xc1" * 2048), "e": "AQAB", "kid": "rsa"}),
        jwks(jwk(RSA, None)),
        jwks(jwk(RSA, "rsa", use="enc")),
        jwks(jwk(RSA, "rsa", alg="HS256")),
        jwks({"kty": "oct", "k": "AAAA", "kid": "rsa"}),
        jwks({"kty": "RSA", "n": "!", "e": 5, "kid": "rsa"}),
        jwks({"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA", "kid": "ec"}),
        jwks({"kty": "EC", "crv": ["P-256"], "x": "AAAA", "y": "AAAA", "kid": "ec"}),
    ],
    ids=range(19),
)
def test_security_row_39_a_set_without_a_usable_key_changes_nothing(data: bytes) -> None:
    checked = Checked()
    with pytest.raises(UnusableKeys):
        checked.keys.replace(data)
    assert checked.check(token()).subject == "alice"


def test_a_new_set_replaces_the_old_one_and_one_bad_key_spoils_nothing() -> None:
    checked = Checked()
    checked.keys.replace(jwks({"kty": "RSA", "n": "!", "kid": "bad"}, jwk(OTHER_RSA, "rsa", alg="RS256")))
    assert len(checked.keys) == 1
    assert checked.refusal(token()) == "the signature is wrong"
    assert checked.check(token(key=OTHER_RSA)).subject == "alice"
    assert checked.refusal(token(key=OTHER_RSA, header={"alg": "PS256", "kid": "rsa"})) == "alg is none of the key's"


def test_without_keys_every_login_fails() -> None:
    checked = Checked()
    checked.keys = Keys()
    tokens = SignedTokens(EXPECTED, checked.keys, refresh=lambda: None, wall_s=lambda: NOW_S, monotonic_s=lambda: 0.0)
    with pytest.raises(TokenRefused, match="kid is not known"):
        tokens.check(token())


def test_an_unsecured_check_takes_unsigned_tokens_alone() -> None:
    expected = Expected(skew_s=0, needs_iat=False)
    assert check_unsecured(unsigned({"alg": "none"}), expected, NOW_S) == Bearer("alice", 300_000)
    for text in (token(), unsigned({"alg": "none"}, signature=b"x"), unsigned({}), unsigned({"alg": "none"}, {})):
        with pytest.raises(TokenRefused):
            check_unsecured(text, expected, NOW_S)
