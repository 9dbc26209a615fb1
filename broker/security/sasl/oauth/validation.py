"""The check of a signed token: its parts, the signature by a known key, then its claims."""

from __future__ import annotations

from collections.abc import Callable

from klamm.broker.security.sasl.oauth.bearer import Bearer
from klamm.broker.security.sasl.oauth.claims import Expected, check_claims, parse
from klamm.broker.security.sasl.oauth.keys import Keys


class SignedTokens:
    """`check` is handed to `OAuthBearer`. A key that is not known fails this login, and has the keys fetched."""

    def __init__(
        self,
        expected: Expected,
        keys: Keys,
        *,
        refresh: Callable[[], None],
        wall_s: Callable[[], float],
        monotonic_s: Callable[[], float],
    ) -> None:
        self._expected = expected
        self._keys = keys
        self._refresh = refresh
        self._wall_s = wall_s
        self._monotonic_s = monotonic_s

    def check(self, token: str) -> Bearer:
        """Return the bearer of the token. Raises TokenRefused."""
        parts = parse(token)
        if self._keys.lacks(parts.header.get("kid")) and self._keys.wants_refresh(self._monotonic_s()):
            self._refresh()
        self._keys.check(token, parts)
        return check_claims(parts.claims, self._expected, self._wall_s())
