"""PLAIN (RFC 4616): one message, `[authzid] NUL user NUL password`, and no answer but yes or no.

Users and passwords stand in the config: options `user_<name>="<password>"` of the JAAS entry. An unknown user costs as
much time as a wrong password, and gets the same text.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from klamm.broker.security.sasl.mechanism import WRONG_AUTHORIZATION_ID, LoggedIn, LoginFailed

PARTS = 3
SEEN_PARTS = 4  # it is not counted on


class Plain:
    """A conversation over the passwords by user name."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def step(self, token: bytes) -> LoggedIn:
        parts = token.decode("utf-8", "replace").split("\0", SEEN_PARTS - 1)
        if len(parts) != PARTS:
            raise LoginFailed(f"Invalid SASL/PLAIN response: expected {PARTS} tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise LoginFailed("Authentication failed: username not specified")
        if not password:
            raise LoginFailed("Authentication failed: password not specified", user=user)
        if not self._is_right(user, password):
            raise LoginFailed("Authentication failed: Invalid username or password", user=user)
        if authorization_id and authorization_id != user:
            raise LoginFailed(WRONG_AUTHORIZATION_ID, user=user)
        return LoggedIn(user)

    def _is_right(self, user: str, password: str) -> bool:
        known = self._passwords.get(user)
        is_equal = hmac.compare_digest(_digest(known or ""), _digest(password))
        return is_equal and known is not None


def _digest(password: str) -> bytes:
    """Hash, so that the comparison takes one time for all lengths."""
    return hashlib.sha256(password.encode("utf-8", "surrogatepass")).digest()
