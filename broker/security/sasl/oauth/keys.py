"""The public keys that sign tokens: a JWKS (RFC 7517) taken in, and signatures checked against it.

Keys come from a URL that others control, so a key that is too weak, too large or of no use here is left out, and a set
without a usable key changes nothing: the old keys stay. The key of a token is the one with its `kid`, and the algorithm
must be one of that key's kind: a public key never serves as the secret of an HMAC. `jku`, `x5u`, `jwk` and `x5c` in a
header are not looked at.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Mapping
from typing import Any, Final

from joserfc import jws
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import ECKey, OKPKey, RSAKey

from klamm.broker.security.sasl.oauth.bearer import TokenRefused
from klamm.broker.security.sasl.oauth.claims import Parts

warnings.filterwarnings("ignore", category=SecurityWarning)  # weak keys are refused here; "EdDSA" is an old name

log = logging.getLogger(__name__)

MAX_KEYS: Final = 100
MAX_KID_CHARACTERS: Final = 1000
RSA_BITS: Final = range(2048, 8193)
REFRESH_INTERVAL_S: Final = 60.0
"""Between two refreshes for the sake of keys that are not known."""

_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_BY_CURVE: Final = {"P-256": ("ES256",), "P-384": ("ES384",), "P-521": ("ES512",), "Ed25519": ("EdDSA", "Ed25519")}
_Key = RSAKey | ECKey | OKPKey


class UnusableKeys(Exception):
    """A fetched set has no key that can be used. The message is one line."""


class Keys:
    """The keys as of the last good fetch. `replace` may be called from another thread than the others."""

    def __init__(self) -> None:
        self._by_id: Mapping[str, tuple[_Key, tuple[str, ...]]] = {}
        self._asked_at_s = -REFRESH_INTERVAL_S

    def __len__(self) -> int:
        return len(self._by_id)

    def replace(self, data: bytes) -> None:
        """Take in a JWKS. Raises UnusableKeys, and keeps the old keys."""
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            raise UnusableKeys("it is not JSON") from None
        keys = found.get("keys") if isinstance(found, dict) else None
        if not isinstance(keys, list) or len(keys) > MAX_KEYS:
            raise UnusableKeys(f"it is no set of at most {MAX_KEYS} keys")
        usable = dict(filter(None, map(_usable, keys)))
        if not usable:
            raise UnusableKeys(f"none of its {len(keys)} keys can be used")
        self._by_id = usable

    def wants_refresh(self, now_s: float) -> bool:
        """Return whether a key that is not known may start a fetch now; it counts as started then."""
        if now_s - self._asked_at_s < REFRESH_INTERVAL_S:
            return False
        self._asked_at_s = now_s
        return True

    def lacks(self, kid: object) -> bool:
        """Return whether `kid` may be the name of a key that a fetch would bring."""
        return isinstance(kid, str) and 0 < len(kid) <= MAX_KID_CHARACTERS and kid not in self._by_id

    def check(self, token: str, parts: Parts) -> None:
        """Raise TokenRefused unless one of the keys has signed the token."""
        header = parts.header
        if "crit" in header or "b64" in header:
            raise TokenRefused("the header has extensions that must be understood")
        kid = header.get("kid")
        if not isinstance(kid, str) or len(kid) > MAX_KID_CHARACTERS:
            raise TokenRefused("kid is missing or no name")
        key, algorithms = self._by_id.get(kid, (None, ()))
        if key is None:
            raise TokenRefused("kid is not known")
        if header.get("alg") not in algorithms:
            raise TokenRefused("alg is none of the key's")
        try:
            jws.deserialize_compact(token.encode(), key, algorithms=list(algorithms))
        except (JoseError, ValueError):
            raise TokenRefused("the signature is wrong") from None


def _usable(found: object) -> tuple[str, tuple[_Key, tuple[str, ...]]] | None:
    """Return kid, key and its algorithms; None for one that is of no use."""
    if not isinstance(found, dict) or found.get("use", "sig") != "sig":
        return None
    kid = found.get("kid")
    if not isinstance(kid, str) or not kid or len(kid) > MAX_KID_CHARACTERS:
        return None
    try:
        made = _made(found)
    except (JoseError, ValueError, TypeError, KeyError, AttributeError):
        log.warning("a key of the JWKS cannot be read, and is left out")
        return None
    if made is None:
        return None
    key, algorithms = made
    own = found.get("alg")
    algorithms = algorithms if own is None else tuple(name for name in algorithms if name == own)
    return (kid, (key, algorithms)) if algorithms else None


def _made(found: dict[str, Any]) -> tuple[_Key, tuple[str, ...]] | None:
    public = {name: value for name, value in found.items() if name in ("kty", "n", "e", "crv", "x", "y", "kid")}
    match found.get("kty"), found.get("crv"):
        case "RSA", _:
            rsa = RSAKey.import_key(public)
            return (rsa, _RSA) if rsa.raw_value.key_size in RSA_BITS else None
        case "EC", ("P-256" | "P-384" | "P-521") as curve:
            return ECKey.import_key(public), _BY_CURVE[curve]
        case "OKP", "Ed25519":
            return OKPKey.import_key(public), _BY_CURVE["Ed25519"]
    return None
