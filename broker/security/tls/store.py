"""What a keystore or truststore holds, whatever its format."""

from __future__ import annotations

from typing import NamedTuple


class BadStore(ValueError):
    """A store that cannot be used; the message is one line without the name of the file."""


class Store(NamedTuple):
    """`key` is the PKCS#8 DER, or PEM that may still be encrypted; `chain` and `trusted` are the DER of certificates,
    the chain's own certificate first. `key_count` says how many keys there are: only the first is used."""

    key: bytes | None
    chain: tuple[bytes, ...]
    trusted: tuple[bytes, ...]
    key_count: int
