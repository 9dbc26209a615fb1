"""Keys and certificates of one listener, read from its stores, and the `ssl.SSLContext` made of them.

A new context takes new connections; those that are open keep the one they began with. Private keys go to OpenSSL
through memory files (memfd), never through a file on a disk.
"""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from klamm.broker.security.tls.certificate import Certificate
from klamm.broker.security.tls.cipher_suites import DEFAULT, openssl_names
from klamm.broker.security.tls.der import BadDer
from klamm.broker.security.tls.keystores import open_pem, open_store
from klamm.broker.security.tls.settings import StoreSettings, TlsSettings
from klamm.broker.security.tls.store import BadStore, Store

_VERIFY_MODES: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_REASONS: Final = {
    "KEY_VALUES_MISMATCH": "the key does not belong to the first certificate of the chain",
    "EE_KEY_TOO_SMALL": "the key is too weak; use EC P-256, or RSA of 2048 bits or more",
    "CA_MD_TOO_WEAK": "a certificate of the chain is signed with a broken hash",
    "BAD_DECRYPT": "ssl.key.password is wrong",
    "BAD_PASSWORD_READ": "the key is encrypted, set ssl.key.password",
    "PEM lib": "the key cannot be read; if it is encrypted, is ssl.key.password right?",
}

ReadFile = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class Material:
    """What the stores hold. `key` is PEM, perhaps encrypted; `trusted` is None for the authorities of the system."""

    key: bytes
    chain: tuple[Certificate, ...]
    trusted: tuple[bytes, ...] | None

    @property
    def own(self) -> Certificate:
        """The certificate that clients see."""
        return self.chain[0]


def load_material(settings: TlsSettings, read_file: ReadFile) -> Material:
    """Read the stores. Blocks; raises BadStore with the config key and the file."""
    keystore = settings.keystore
    with _named(keystore):
        store = _open(keystore, settings.key_password, read_file)
        if store.key is None or not store.chain:
            raise BadStore("there is no private key with a certificate in it")
        chain = tuple(Certificate(der) for der in store.chain)
    if settings.truststore is None:
        return Material(_pem_key(store.key), chain, None)
    with _named(settings.truststore):
        trusted = _open(settings.truststore, None, read_file).trusted
        if not trusted:
            raise BadStore("there is no certificate in it")
        for der in trusted:
            Certificate(der)
    return Material(_pem_key(store.key), chain, trusted)


def server_context(settings: TlsSettings, material: Material) -> ssl.SSLContext:
    """Make the context for connections that clients open. Raises BadStore."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0  # Java clients resume little, and each ticket is a write after the handshake
    _limit(context, settings)
    with _named(settings.keystore):
        load_key(context, settings, material)
    context.verify_mode = _VERIFY_MODES[settings.client_auth]
    if material.trusted is not None:
        # As in Java, every certificate of a truststore is an anchor, also one that another has signed.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        assert settings.truststore is not None
        with _named(settings.truststore):
            context.load_verify_locations(cadata=b"".join(material.trusted))
    return context


def _limit(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Set protocols and cipher suites. A list without any suite of TLS 1.3 is one for TLS 1.2 alone, as in Java."""
    newer, older = openssl_names(settings.cipher_suites or ())
    allowed = [
        name for name in settings.protocols if settings.cipher_suites is None or (newer if name == "TLSv1.3" else older)
    ]
    context.minimum_version = _VERSIONS[allowed[0]]
    context.maximum_version = _VERSIONS[allowed[-1]]
    context.set_ciphers(":".join(older) if older else DEFAULT)


def load_key(context: ssl.SSLContext, settings: TlsSettings, material: Material) -> None:
    """Give a context the key and its chain. Raises ssl.SSLError."""
    chain = b"".join(_pem("CERTIFICATE", certificate.der) for certificate in material.chain)
    with _memory_file(chain) as chain_path, _memory_file(material.key) as key_path:
        context.load_cert_chain(chain_path, key_path, password=lambda: settings.key_password or "")


@contextmanager
def _memory_file(data: bytes) -> Iterator[str]:
    """The path of a file in memory that no other process and no directory shows."""
    descriptor = os.memfd_create("klamm-tls", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


@contextmanager
def _named(settings: StoreSettings) -> Iterator[None]:
    """Turn all that goes wrong into a BadStore of one line that names the key and the file."""
    place = f"{settings.key}={settings.location}" if settings.location else settings.key
    try:
        yield
    except BadDer as error:
        raise BadStore(f"{place}: a certificate is damaged: {error}") from None
    except BadStore as error:
        raise BadStore(f"{place}: {error}") from None
    except ssl.SSLError as error:
        reason = next((text for word, text in _REASONS.items() if word in str(error)), error.reason or str(error))
        raise BadStore(f"{place}: {reason}") from None
    except OSError as error:
        raise BadStore(f"{place}: cannot be read: {error.strerror or error}") from None


def _open(settings: StoreSettings, key_password: str | None, read_file: ReadFile) -> Store:
    if settings.inline is not None:
        return open_pem(settings.inline.encode())
    assert settings.location is not None
    return open_store(read_file(settings.location), settings.password, key_password)


def _pem_key(key: bytes) -> bytes:
    return key if key.startswith(b"-----") else _pem("PRIVATE KEY", key)


def _pem(label: str, der: bytes) -> bytes:
    body = base64.encodebytes(der).replace(b"\n", b"")
    lines = b"\n".join(body[start : start + 64] for start in range(0, len(body), 64))
    return b"-----BEGIN %s-----\n%s\n-----END %s-----\n" % (label.encode(), lines, label.encode())
