"""OAUTHBEARER (RFC 7628): the client shows a token, which somebody else has signed.

    first message   n,[a=authzid],^A auth=Bearer <token> ^A [name=value ^A ...] ^A       (^A is the byte 1)
    good            an empty answer, and the login is complete until the token expires
    refused         {"status":"invalid_token"}; the client answers ^A and gets the failure, or sends another token

Stricter than Apache Kafka: three tokens at most in one conversation, 64 extensions, and `auth` once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from klamm.broker.security.sasl.mechanism import Challenge, LoggedIn, LoginFailed

MAX_MESSAGE_BYTES: Final = 32 * 1024
MAX_EXTENSIONS: Final = 64
MAX_TRIES: Final = 3
GIVE_UP: Final = b"\x01"
_PAIR: Final = rb"[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01"
_FIRST: Final = re.compile(
    rb"n,(?:a=(?P<authzid>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01(?P<pairs>(?:" + _PAIR + rb")*)\x01"
)
_AUTH: Final = re.compile(rb"(?i:bearer) +(\S+)")


class TokenRefused(Exception):
    """The token is not good. `reason` is for the log; the client gets `status` and, if one is missing, `scope`."""

    def __init__(self, reason: str, status: str = "invalid_token", scope: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.scope = scope

    def as_json(self) -> str:
        found = {"status": self.status, **({"scope": self.scope} if self.scope else {})}
        return json.dumps(found, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Bearer:
    """The subject of a valid token, and its expiry."""

    subject: str
    lifetime_ms: float


Check = Callable[[str], Bearer]
"""What a token says; raises TokenRefused."""


class OAuthBearer:
    """One conversation over the `check` of tokens."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._tries = 0
        self._refused: TokenRefused | None = None

    def step(self, token: bytes) -> Challenge | LoggedIn:
        if self._refused is not None and token == GIVE_UP:
            raise LoginFailed(self._refused.as_json(), self._refused.reason)
        self._tries += 1
        if self._tries > MAX_TRIES:
            raise LoginFailed(None, f"more than {MAX_TRIES} tokens")
        authorization_id, text = _first(token)
        try:
            bearer = self._check(text)
        except TokenRefused as error:
            self._refused = error
            return Challenge(error.as_json().encode())
        if authorization_id and authorization_id != bearer.subject:
            raise LoginFailed(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({bearer.subject})",
                "another authorization id",
                bearer.subject,
            )
        return LoggedIn(bearer.subject, lifetime_ms=bearer.lifetime_ms)


def _first(message: bytes) -> tuple[str, str]:
    """Return authorization id and token of a first message. Raises LoginFailed."""
    if len(message) > MAX_MESSAGE_BYTES:
        raise LoginFailed(None, f"a message of {len(message)} bytes")
    match = _FIRST.fullmatch(message)
    if match is None:
        raise LoginFailed(None, "not a first message of OAUTHBEARER")
    pairs = [pair.partition(b"=")[::2] for pair in match["pairs"].split(b"\x01")[:-1]]
    if len(pairs) > MAX_EXTENSIONS + 1:
        raise LoginFailed(None, f"{len(pairs) - 1} extensions")
    values = [value for name, value in pairs if name == b"auth"]
    if len(values) != 1:
        raise LoginFailed(None, f"auth= occurs {len(values)} times")
    auth = _AUTH.fullmatch(values[0])
    if auth is None:
        raise LoginFailed(None, "auth= is no bearer token")
    authorization_id = (match["authzid"] or b"").decode("ascii").replace("=2C", ",").replace("=3D", "=")
    return authorization_id, auth[1].decode("ascii")
