"""Certificates for tests: an authority that signs anything, and the contexts of clients.

Keys are EC P-256, which are quick to make. `written` gives PEM files, `material` is for a server without files.
"""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
DAY = timedelta(days=1)


def name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


@dataclass
class Leaf:
    """A key, its certificate and the ones between it and the authority."""

    key: Any
    certificate: x509.Certificate
    between: tuple[x509.Certificate, ...] = ()

    @property
    def key_pem(self) -> bytes:
        return bytes(
            self.key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )

    @property
    def chain_pem(self) -> bytes:
        return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in (self.certificate, *self.between))

    @property
    def pem(self) -> bytes:
        return self.key_pem + self.chain_pem

    def write(self, path: Path) -> Path:
        path.write_bytes(self.pem)
        return path


class Authority:
    """A CA; `sign` gives leaves, `intermediate` authorities below it."""

    def __init__(self, common_name: str = "Test Authority", above: Authority | None = None, **options: Any) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.subject = name(common_name)
        self.between: tuple[x509.Certificate, ...] = ()
        signer = above or self
        self.certificate = _certificate(signer, self.subject, self.key, is_authority=True, **options)
        if above is not None:
            self.between = (self.certificate, *above.between)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def write(self, path: Path) -> Path:
        path.write_bytes(self.pem)
        return path

    def sign(self, subject: str | x509.Name = "leaf", *hosts: str, key: Any = None, **options: Any) -> Leaf:
        """A leaf for these names of hosts; `options` are those of `_certificate`."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        owner = name(subject) if isinstance(subject, str) else subject
        return Leaf(key, _certificate(self, owner, key, hosts=hosts, **options), self.between)

    def server(self, common_name: str = "broker", *hosts: str, **options: Any) -> Leaf:
        return self.sign(common_name, *(hosts or ("localhost", "127.0.0.1")), **options)

    def client_context(self, leaf: Leaf | None = None, folder: Path | None = None) -> ssl.SSLContext:
        """A context that trusts this authority alone, and shows `leaf`, which is written into `folder` for that."""
        context = ssl.create_default_context(cadata=self.pem.decode())
        if leaf is not None:
            assert folder is not None
            context.load_cert_chain(leaf.write(folder / f"client-{id(leaf)}.pem"))
        return context


def _certificate(
    signer: Authority,
    subject: x509.Name,
    key: Any,
    *,
    hosts: tuple[str, ...] = (),
    usages: tuple[x509.ObjectIdentifier, ...] | None = (SERVER, CLIENT),
    is_authority: bool = False,
    begins: timedelta = -DAY,
    ends: timedelta = 365 * DAY,
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
        .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), False)
    if usages and not is_authority:
        builder = builder.add_extension(x509.ExtendedKeyUsage(list(usages)), critical=False)
    return builder.sign(signer.key, hashes.SHA256())


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
