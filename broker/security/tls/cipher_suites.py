"""The names of cipher suites: those of `ssl.cipher.suites` are Java's (IANA's), OpenSSL has others for TLS 1.2.

Suites without encryption or without a certificate are not among them, nor any that OpenSSL's security level 2 refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

TLS13: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
FIRST_TLS13: Final = TLS13[0]
"""What OpenSSL prefers of all that a client offers."""

_KEY_EXCHANGES: Final = {
    "TLS_ECDHE_ECDSA_WITH_": "ECDHE-ECDSA-",
    "TLS_ECDHE_RSA_WITH_": "ECDHE-RSA-",
    "TLS_DHE_RSA_WITH_": "DHE-RSA-",
    "TLS_RSA_WITH_": "",
}
_AEAD: Final = {
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
}
_BLOCKS: Final = {
    "AES_256_CBC_SHA384": "AES256-SHA384",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA256": "AES256-SHA256",
    "AES_256_CBC_SHA": "AES256-SHA",
    "AES_128_CBC_SHA": "AES128-SHA",
}
_MISSING: Final = frozenset(
    (
        "TLS_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_DHE_RSA_WITH_AES_256_CBC_SHA384",
        "TLS_RSA_WITH_AES_256_CBC_SHA384",
        "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA256",
    )
)
OPENSSL_NAMES: Final[dict[str, str]] = {
    exchange + suite: start + name
    for exchange, start in _KEY_EXCHANGES.items()
    for suite, name in (*_AEAD.items(), *_BLOCKS.items())
    if exchange + suite not in _MISSING
}
SIGNALLING: Final = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"  # stands in Java's lists, and is no suite

DEFAULT: Final = ":".join(
    f"{exchange}{suite}" for suite in _AEAD.values() for exchange in ("ECDHE-ECDSA-", "ECDHE-RSA-")
)
"""Without `ssl.cipher.suites`, for TLS 1.2: authenticated encryption and forward secrecy."""


class UnknownSuite(ValueError):
    """A name that is no suite of Java's, or one that is never offered."""


def openssl_names(suites: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the suites of TLS 1.3, and the names that OpenSSL has for those of TLS 1.2. Raises UnknownSuite."""
    newer = [name for name in suites if name in TLS13]
    older = []
    for name in suites:
        if name in OPENSSL_NAMES:
            older.append(OPENSSL_NAMES[name])
        elif name not in TLS13 and name != SIGNALLING:
            raise UnknownSuite(name)
    return newer, older
