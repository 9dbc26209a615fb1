"""Which user a certificate stands for."""

from __future__ import annotations

import ssl
from typing import Final

from klamm.broker.security.tls.certificate import Certificate
from klamm.broker.security.tls.der import BadDer
from klamm.broker.security.tls.principal_rules import NoMatchingRule, PrincipalRules

ANONYMOUS: Final = "User:ANONYMOUS"
MAX_NAME_BYTES: Final = 1024
MAX_CHAIN: Final = 10


class Refused(Exception):
    """The handshake is complete, but the peer is not let in; the message is one line."""


def principal(tls: ssl.SSLObject, rules: PrincipalRules) -> str:
    """Return the principal of the peer after the handshake: anonymous without a certificate. Raises Refused."""
    der = tls.getpeercert(binary_form=True)
    if der is None:
        return ANONYMOUS
    if chain_length(tls) > MAX_CHAIN:
        raise Refused(f"the client's chain has more than {MAX_CHAIN} certificates")
    try:
        name = Certificate(der).subject_name
    except BadDer as error:
        raise Refused(f"the client's certificate cannot be read: {error}") from None
    if len(name.encode()) > MAX_NAME_BYTES:
        raise Refused(f"the name in the client's certificate has more than {MAX_NAME_BYTES} bytes")
    try:
        return f"User:{rules.name(name)}"
    except NoMatchingRule as error:
        raise Refused(str(error)) from None


def chain_length(tls: ssl.SSLObject) -> int:
    """Return how many certificates the peer has sent; public in Python 3.13, before that one level below."""
    source = tls if hasattr(tls, "get_unverified_chain") else tls._sslobj  # type: ignore[attr-defined]
    return len(source.get_unverified_chain() or ())
