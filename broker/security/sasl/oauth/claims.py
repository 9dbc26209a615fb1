"""The claims of a token (RFC 7519), and what must hold for each.

A token is three parts in base64url with dots between: header, claims, signature. Everything else is refused:
claims that occur twice, numbers that are none, text that is no JSON object.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from klamm.broker.security.sasl.oauth.bearer import Bearer, TokenRefused

MAX_TOKEN_CHARACTERS: Final = 16 * 1024
LAST_SECOND: Final = 253_402_300_799  # of the year 9999
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Parts:
    """A token taken apart; nothing of it is checked yet."""

    header: Mapping[str, Any]
    claims: Mapping[str, Any]
    signature: bytes


@dataclass(frozen=True, slots=True)
class Expected:
    """What the claims must say. Empty `audiences` and an `issuer` of None are not looked at."""

    audiences: tuple[str, ...] = ()
    issuer: str | None = None
    skew_s: float = 30
    scope_claim: str = "scope"
    subject_claim: str = "sub"
    required_scope: frozenset[str] = frozenset()
    needs_iat: bool = True


def parse(token: str) -> Parts:
    """Take a token apart. Raises TokenRefused."""
    if len(token) > MAX_TOKEN_CHARACTERS:
        raise TokenRefused(f"a token of {len(token)} characters")
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenRefused(f"a token of {len(parts)} parts")
    header, claims, signature = map(_decoded, parts)
    return Parts(_object("header", header), _object("claims", claims), signature)


def _decoded(text: str) -> bytes:
    if _BASE64URL.fullmatch(text) is None:
        raise TokenRefused("not base64url")
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        raise TokenRefused("not base64url") from None


def _object(what: str, data: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(data.decode(), object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise TokenRefused(f"the {what} are not JSON, or name something twice") from None
    if not isinstance(found, dict):
        raise TokenRefused(f"the {what} are no JSON object")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(text)


def check_claims(claims: Mapping[str, Any], expected: Expected, now_s: float) -> Bearer:
    """Return the bearer of the token. Raises TokenRefused for the first claim that does not hold."""
    expiry = _time(claims, "exp")
    if expiry is None:
        raise TokenRefused("exp is missing")
    if not now_s - expected.skew_s < expiry:
        raise TokenRefused("the token has expired")
    issued = _time(claims, "iat")
    if issued is None and expected.needs_iat:
        raise TokenRefused("iat is missing")
    if issued is not None and issued > now_s + expected.skew_s:
        raise TokenRefused("iat is in the future")
    not_before = _time(claims, "nbf")
    if not_before is not None and not_before > now_s + expected.skew_s:
        raise TokenRefused("nbf is in the future")
    _check_audience(claims, expected)
    if expected.issuer is not None and claims.get("iss") != expected.issuer:
        raise TokenRefused("iss is not the expected one")
    missing = expected.required_scope - _scopes(claims, expected.scope_claim)
    if missing:
        raise TokenRefused(
            "a scope is missing", status="insufficient_scope", scope=" ".join(sorted(expected.required_scope))
        )
    subject = claims.get(expected.subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise TokenRefused(f"{expected.subject_claim} is missing or empty")
    return Bearer(subject, max(expiry - now_s, 0.001) * 1000)


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    """Return a time in seconds; None when there is none. Raises TokenRefused."""
    if name not in claims:
        return None
    value = claims[name]
    if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value <= LAST_SECOND:
        raise TokenRefused(f"{name} is no time")
    return float(value)


def _check_audience(claims: Mapping[str, Any], expected: Expected) -> None:
    if not expected.audiences:
        return
    value = claims.get("aud")
    audiences = [value] if isinstance(value, str) else value
    if not isinstance(audiences, list) or not any(audience in expected.audiences for audience in audiences):
        raise TokenRefused("aud has none of the expected audiences")


def _scopes(claims: Mapping[str, Any], name: str) -> frozenset[str]:
    value = claims.get(name)
    if value is None:
        return frozenset()
    scopes = value.split() if isinstance(value, str) else value
    if not isinstance(scopes, list) or not all(isinstance(scope, str) for scope in scopes):
        raise TokenRefused(f"{name} is neither text nor a list of texts")
    return frozenset(scopes)


def check_unsecured(token: str, expected: Expected, now_s: float) -> Bearer:
    """Return the bearer that an unsigned token names: for tests on the loopback. Raises TokenRefused."""
    parts = parse(token)
    if parts.header.get("alg") != "none" or parts.signature:
        raise TokenRefused("only unsigned tokens are taken here")
    return check_claims(parts.claims, expected, now_s)
