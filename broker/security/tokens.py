"""Delegation tokens (KIP-48): a user's right to log in, lent to somebody without the user's own secret.

A token is an id and an HMAC of it under `delegation.token.secret.key`. The HMAC, in base64, is the password of a SCRAM
login with the extension `tokenauth=true`, so the stored token has no secret: it is as in Kafka's metadata.
"""

from __future__ import annotations

import base64
import hmac
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from klamm.protocol.scram import (
    BY_NUMBER,
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    credential_of,
    salt_password,
)

ID_BYTES: Final = 16
SALT_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """One token. Principals are texts, `User:alice`; times are ms since the epoch."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    expiry_ms: int

    def belongs_to(self, principal: str) -> bool:
        """Return whether the principal may renew it and let it expire."""
        return principal in (self.owner, self.requester, *self.renewers)


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """What a login by a token needs."""

    token: DelegationToken
    credential: ScramCredential = field(repr=False)


def new_token_id(random_bytes: Callable[[int], bytes]) -> str:
    """Return 22 characters that were never a token."""
    return base64.urlsafe_b64encode(random_bytes(ID_BYTES)).rstrip(b"=").decode()


class TokenKeys:
    """What follows from the secret key: the HMAC of each token, and its credentials. May be used from any thread.

    A credential is salted once, which takes some ms of CPU: `prepare` does so in a thread, a login that comes before it
    does so itself. `forget_others` drops those of tokens that are gone.
    """

    def __init__(self, secret: str, random_bytes: Callable[[int], bytes]) -> None:
        self._secret = secret.encode()
        self._random_bytes = random_bytes
        self._ids: dict[bytes, str] = {}
        self._credentials: dict[tuple[str, int], ScramCredential] = {}
        self._known: Mapping[str, DelegationToken] = {}
        self._lock = threading.Lock()

    def hmac_of(self, token_id: str) -> bytes:
        return hmac.digest(self._secret, token_id.encode(), "sha512")

    def find(self, tokens: Mapping[str, DelegationToken], wanted: bytes) -> DelegationToken | None:
        """Return the token with this HMAC."""
        with self._lock:
            if tokens is not self._known:
                kept = {key: token_id for key, token_id in self._ids.items() if token_id in tokens}
                known = set(kept.values())
                kept.update((self.hmac_of(token_id), token_id) for token_id in tokens if token_id not in known)
                self._ids, self._known = kept, tokens
            return tokens.get(self._ids.get(wanted, ""))

    def credential(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential:
        """Return the credential of a token; the same one each time."""
        key = (token_id, mechanism.number)
        found = self._credentials.get(key)
        if found is None:
            password = base64.b64encode(self.hmac_of(token_id)).decode()
            salt = self._random_bytes(SALT_BYTES)
            salted = salt_password(mechanism, password, salt, MIN_ITERATIONS)
            made = credential_of(mechanism, salted, salt, MIN_ITERATIONS)
            found = self._credentials.setdefault(key, made)
        return found

    def prepare(self, token_ids: Iterable[str]) -> None:
        """Make the credentials of these tokens: some ms for each, so that logins need not wait."""
        for token_id in token_ids:
            for mechanism in BY_NUMBER.values():
                self.credential(mechanism, token_id)

    def forget_others(self, tokens: Mapping[str, DelegationToken]) -> None:
        """Drop the credentials of tokens that are no more."""
        for key in [key for key in list(self._credentials) if key[0] not in tokens]:
            self._credentials.pop(key, None)
