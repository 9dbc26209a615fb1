"""The broker's side of SCRAM (RFC 5802, RFC 7677); `klamm.protocol.scram` has the arithmetic.

    client-first   n,[a=authzid],n=name,r=nonce[,extension=value ...]
    server-first   r=nonce and ours,s=salt,i=iterations
    client-final   c=base64 of the GS2 header,r=both nonces[,extension=value ...],p=proof
    server-final   v=server signature

A user that does not exist is led on to the end with a salt made of the name, and fails there as a wrong password does.
Stricter than Apache Kafka: `c=` must be the GS2 header that was sent, a mandatory extension (`m=`) is refused at once,
a proof of a wrong length is a wrong proof, and a credential that changed in between is no credential.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from klamm.broker.security.sasl.mechanism import WRONG_AUTHORIZATION_ID, Challenge, LoggedIn, LoginFailed
from klamm.protocol.scram import (
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    base36,
    is_proof,
    random_text,
    signature,
    unescape_name,
)

MAX_MESSAGE_BYTES: Final = 16 * 1024
_NAME: Final = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_NONCE: Final = rb"[\x21-\x2b\x2d-\x7e]+"
_VALUE: Final = rb"[\x01-\x2b\x2d-\x7f]+"
_EXTENSIONS: Final = rb"(?:,(?!m=)[A-Za-z]+=" + _VALUE + rb")*"
_FIRST: Final = re.compile(
    rb"(?P<gs2>n,(?:a=(?P<authzid>" + _NAME + rb"))?,)"
    rb"(?P<bare>n=(?P<name>" + _NAME + rb"),r=(?P<nonce>" + _NONCE + rb")(?P<extensions>" + _EXTENSIONS + rb"))"
)
_FINAL: Final = re.compile(
    rb"(?P<bare>c=(?P<channel>[A-Za-z0-9+/=]+),r=(?P<nonce>"
    + _NONCE
    + rb")"
    + _EXTENSIONS
    + rb"),p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_TOKEN_LOGIN: Final = re.compile(rb",tokenauth=([^,]*)", re.IGNORECASE)

Find = Callable[[str], ScramCredential | None]


@dataclass(frozen=True, slots=True)
class Lent:
    """The login that a delegation token stands for: its owner, and the time it has left."""

    user: str
    lifetime_ms: float
    credential: ScramCredential


def no_token(token_id: str) -> Lent | None:
    """Find no token: there are none."""
    return None


@dataclass(frozen=True, slots=True)
class ScramUsers:
    """What the conversations of one mechanism share: `find` has the credential of a user as of now, `secret` makes the
    salts of users that do not exist."""

    mechanism: ScramMechanism
    find: Find
    secret: bytes
    random_bytes: Callable[[int], bytes]
    find_token: Callable[[str], Lent | None] = no_token

    def pretended(self, name: str) -> ScramCredential:
        """Return a credential that nobody can prove, the same for a name each time."""
        mechanism = self.mechanism
        made = hmac.digest(self.secret, f"{mechanism.name} {name}".encode(), "sha512")
        return ScramCredential(base36(made).encode(), bytes(mechanism.size), bytes(mechanism.size), MIN_ITERATIONS)


@dataclass(frozen=True, slots=True)
class _Begun:
    """What client-final is held against. `credential` is None for a user that does not exist."""

    name: str
    gs2: bytes
    nonce: bytes
    messages: bytes
    credential: ScramCredential | None
    is_token: bool


class Scram:
    """One conversation: two steps."""

    def __init__(self, users: ScramUsers) -> None:
        self._users = users
        self._begun: _Begun | None = None

    def step(self, token: bytes) -> Challenge | LoggedIn:
        if len(token) > MAX_MESSAGE_BYTES:
            raise LoginFailed(None, f"a message of {len(token)} bytes")
        if self._begun is None:
            return self._first(token)
        begun, self._begun = self._begun, None
        return self._final(begun, token)

    def _first(self, token: bytes) -> Challenge:
        match = _FIRST.fullmatch(token)
        if match is None:
            raise LoginFailed(None, "not a client-first message of SCRAM without channel binding")
        name = unescape_name(match["name"].decode("ascii"))
        if match["authzid"] is not None and unescape_name(match["authzid"].decode("ascii")) != name:
            raise LoginFailed(WRONG_AUTHORIZATION_ID, user=name)
        is_token = _asks_for_token(match["extensions"], name)
        credential = self._credential(name, is_token=is_token)
        shown = credential or self._users.pretended(name)
        nonce = match["nonce"] + random_text(self._users.random_bytes).encode()
        first = b"r=%b,s=%b,i=%d" % (nonce, base64.b64encode(shown.salt), shown.iterations)
        self._begun = _Begun(name, match["gs2"], nonce, match["bare"] + b"," + first, credential, is_token)
        return Challenge(first)

    def _final(self, begun: _Begun, token: bytes) -> LoggedIn:
        match = _FINAL.fullmatch(token)
        if match is None:
            raise LoginFailed(None, "not a client-final message of SCRAM", begun.name)
        if not hmac.compare_digest(match["nonce"], begun.nonce):
            raise LoginFailed(None, "the nonce is not the one agreed on", begun.name)
        if _decoded(match["channel"]) != begun.gs2:
            raise LoginFailed(None, "c= is not the GS2 header of the first message", begun.name)
        mechanism, credential = self._users.mechanism, begun.credential
        auth_message = begun.messages + b"," + match["bare"]
        checked = credential or self._users.pretended(begun.name)
        is_right = is_proof(mechanism, checked, _decoded(match["proof"]), auth_message)
        if credential is None:
            raise LoginFailed(None, f"no {mechanism.name} credential of this user", begun.name)
        if not is_right:
            raise LoginFailed(None, "wrong password", begun.name)
        if self._credential(begun.name, is_token=begun.is_token) != credential:
            raise LoginFailed(None, "the credential was changed during the login", begun.name)
        verifier = b"v=" + base64.b64encode(signature(mechanism, credential.server_key, auth_message))
        lent = self._users.find_token(begun.name) if begun.is_token else None
        if lent is not None:
            return LoggedIn(lent.user, verifier, lent.lifetime_ms, is_by_token=True)
        return LoggedIn(begun.name, verifier)

    def _credential(self, name: str, *, is_token: bool) -> ScramCredential | None:
        """Return what the name has to prove; a token that has expired is none."""
        if not is_token:
            return self._users.find(name)
        lent = self._users.find_token(name)
        return lent.credential if lent is not None else None


def _asks_for_token(extensions: bytes, name: str) -> bool:
    """Return whether the name is that of a delegation token. Raises LoginFailed for an unclear word."""
    values = _TOKEN_LOGIN.findall(extensions)
    if not values or values == [b"false"]:
        return False
    if values != [b"true"]:
        raise LoginFailed(None, "tokenauth is neither true nor false, or occurs twice", name)
    return True


def _decoded(text: bytes) -> bytes:
    """Return the bytes that base64 `text` holds; none if it is no base64."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""
