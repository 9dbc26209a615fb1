"""Opening keystores and truststores: PEM, PKCS#12, JKS and JCEKS. What the bytes begin with decides, as in Java, which
opens one format under the name of the other.

PEM needs no package; PKCS#12 needs `cryptography`, which comes with `klamm[tls]`.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as BadBase64
from typing import Final

from klamm.broker.security.tls.jks import is_jks, open_jks
from klamm.broker.security.tls.store import BadStore, Store

DER_SEQUENCE: Final = b"\x30"
_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


def open_store(data: bytes, password: str | None, key_password: str | None) -> Store:
    """Open a store of any format. `password` is of the store, `key_password` of the key in it, if another.
    Raises BadStore."""
    if is_jks(data):
        return open_jks(data, password, key_password)
    if data[:1] == DER_SEQUENCE:
        return _open_pkcs12(data, password)
    if b"-----BEGIN " in data:
        return open_pem(data)
    raise BadStore("neither PEM, PKCS12 nor JKS")


def open_pem(data: bytes) -> Store:
    """Read the first key and all certificates, in whatever order. Raises BadStore."""
    keys, certificates = [], []
    for block in _BLOCK.finditer(data):
        if block[1].endswith(b"PRIVATE KEY"):
            keys.append(block[0] + b"\n")
        elif block[1] in (b"CERTIFICATE", b"X509 CERTIFICATE", b"TRUSTED CERTIFICATE"):
            certificates.append(_decode(block[2]))
    chain = tuple(certificates)
    return Store(keys[0] if keys else None, chain, chain, len(keys))


def _decode(text: bytes) -> bytes:
    try:
        return b64decode(b"".join(text.split()), validate=True)
    except BadBase64 as error:
        raise BadStore(f"a certificate in PEM cannot be read: {error}") from None


def _open_pkcs12(data: bytes, password: str | None) -> Store:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise BadStore("PKCS12 needs a package that is not installed: pip install 'klamm[tls]'; or use PEM") from None
    try:
        found = pkcs12.load_pkcs12(data, password.encode() if password is not None else None)
    except ValueError:
        raise BadStore("the password is wrong, or it is no PKCS12 file") from None
    encoding = serialization.Encoding.DER
    others = tuple(each.certificate.public_bytes(encoding) for each in found.additional_certs)
    if found.key is None:
        return Store(None, (), others, 0)
    key = found.key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    own = (found.cert.certificate.public_bytes(encoding),) if found.cert is not None else ()
    return Store(key, own + others, (), 1)
