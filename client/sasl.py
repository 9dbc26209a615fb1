"""The SASL login, as a conversation without I/O: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.

`log_in` is a generator: it yields a request and its version, and is sent the response; it returns how long the session
lasts. Both clients drive it. With SCRAM the server proves too that it knows the password.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Final

from klamm.client.errors import ClientError
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from klamm.protocol.messages.sasl_handshake import SaslHandshakeRequest
from klamm.protocol.scram import (
    BY_NAME,
    MIN_ITERATIONS,
    ScramMechanism,
    credential_of,
    escape_name,
    proof_of,
    random_text,
    salt_password,
    signature,
)

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, *BY_NAME)
MAX_ITERATIONS: Final = 1 << 20  # a server must not keep this side busy for long
HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 1
GS2: Final = b"n,,"
_SERVER_FIRST: Final = re.compile(rb"r=([^,]+),s=([A-Za-z0-9+/=]+),i=([0-9]{1,9})(?:,.*)?", re.DOTALL)

Tokens = Generator[bytes, bytes, None]
"""The client's tokens; each is sent the server's answer."""
Conversation = Generator[tuple[Any, int], Any, int]
"""Requests with their versions; each is sent its response. Returns the session lifetime in ms, 0 for ever."""


class LoginFailed(ClientError):
    """The node refused the login, or did not prove that it knows the password. The connection is closed."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The mechanism, user and password of a login. The password is not shown."""

    mechanism: str
    user: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            raise ValueError(f"SASL mechanism {self.mechanism!r} is not one of {', '.join(MECHANISMS)}")


def log_in(credentials: Credentials, random_bytes: Callable[[int], bytes] = os.urandom) -> Conversation:
    """Log in on a connection. Raises LoginFailed."""
    name = credentials.mechanism
    handshake = yield SaslHandshakeRequest(mechanism=name), HANDSHAKE_VERSION
    if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise LoginFailed(f"the node does not have {name}, only {', '.join(handshake.mechanisms)}")
    if handshake.error_code:
        raise LoginFailed(f"SaslHandshake was answered with error {handshake.error_code}: no SASL on this listener?")
    tokens = _plain(credentials) if name == PLAIN else _scram(BY_NAME[name], credentials, random_bytes)
    token = next(tokens)
    while True:
        response = yield SaslAuthenticateRequest(auth_bytes=token), AUTHENTICATE_VERSION
        if response.error_code:
            raise LoginFailed(response.error_message or f"login refused with error {response.error_code}")
        try:
            token = tokens.send(bytes(response.auth_bytes))
        except StopIteration:
            return int(response.session_lifetime_ms)


def _plain(credentials: Credentials) -> Tokens:
    yield f"\0{credentials.user}\0{credentials.password}".encode()


def _scram(mechanism: ScramMechanism, credentials: Credentials, random_bytes: Callable[[int], bytes]) -> Tokens:
    nonce = random_text(random_bytes).encode()
    first = b"n=%b,r=%b" % (escape_name(credentials.user).encode(), nonce)
    server_first = yield GS2 + first
    match = _SERVER_FIRST.fullmatch(server_first)
    if match is None or not match[1].startswith(nonce) or match[1] == nonce:
        raise LoginFailed(f"the node's first message does not fit {mechanism.name}")
    salt, iterations = _decoded(match[2]), int(match[3])
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise LoginFailed(f"the node asks for {iterations} iterations, not {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    salted = salt_password(mechanism, credentials.password, salt, iterations)
    final = b"c=%b,r=%b" % (base64.b64encode(GS2), match[1])
    auth_message = b",".join((first, server_first, final))
    server_final = yield final + b",p=" + base64.b64encode(proof_of(mechanism, salted, auth_message))
    server_key = credential_of(mechanism, salted, salt, iterations).server_key
    expected = b"v=" + base64.b64encode(signature(mechanism, server_key, auth_message))
    if not hmac.compare_digest(server_final, expected):
        raise LoginFailed("the node did not prove that it knows the password")


def _decoded(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise LoginFailed("the node's salt is not base64") from None
