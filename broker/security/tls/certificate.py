"""The fields that the broker reads of an X.509 certificate: its subject, its validity and its names.

    Certificate = SEQ { tbs, algorithm, signature }
    tbs = SEQ { [0] version, serial, algorithm, issuer, validity, subject, key, ..., [3] extensions }
    validity = SEQ { not before, not after }

Whether a certificate may be trusted is for OpenSSL to say.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from klamm.broker.security.tls.der import SEQUENCE, BadDer, DerValue, expect, read
from klamm.broker.security.tls.distinguished_name import rfc2253

VERSION_TAG, EXTENSIONS_TAG = 0xA0, 0xA3
UTC_TIME, GENERALIZED_TIME = 0x17, 0x18
SAN_OID: Final = bytes.fromhex("551d11")  # 2.5.29.17
DNS_NAME, IP_ADDRESS = 0x82, 0x87


class Certificate:
    """`subject` and `issuer` are the DER of the names; times are seconds since 1970. Raises BadDer."""

    __slots__ = ("der", "issuer", "not_after", "not_before", "subject", "subject_alternative_names")

    def __init__(self, der: bytes) -> None:
        self.der = der
        tbs = expect(SEQUENCE, next(expect(SEQUENCE, read(der)).values(), read(b"\x05\x00")))
        fields = [field for field in tbs.values() if field.tag != VERSION_TAG]
        if len(fields) < 6:
            raise BadDer("not an X.509 certificate")
        self.issuer, self.subject = fields[2].whole, fields[4].whole
        times = [_seconds(value) for value in expect(SEQUENCE, fields[3]).values()]
        if len(times) != 2:
            raise BadDer("not the validity of a certificate")
        self.not_before, self.not_after = times
        self.subject_alternative_names = frozenset(_alternative_names(fields[6:]))

    @property
    def subject_name(self) -> str:
        return rfc2253(self.subject)

    def is_for(self, host: str) -> bool:
        """Return whether a client that dials `host` finds it among the alternative names."""
        names = {name for _, name in self.subject_alternative_names}
        return host.lower() in names or f"*.{host.partition('.')[2]}".lower() in names


def _seconds(value: DerValue) -> float:
    text = value.content.decode("ascii", "replace")
    if value.tag == UTC_TIME:  # two digits of the year, up to 2049
        text = ("19" if text[:2] >= "50" else "20") + text
    elif value.tag != GENERALIZED_TIME:
        raise BadDer("not a time")
    try:
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise BadDer(f"not a time: {text}") from error


def _alternative_names(fields: list[DerValue]) -> Iterator[tuple[int, str]]:
    for field in fields:
        if field.tag == EXTENSIONS_TAG:
            for extension in expect(SEQUENCE, read(field.content)).values():
                identifier, *_, content = extension.values()
                if identifier.content == SAN_OID:
                    yield from (_alternative_name(name) for name in expect(SEQUENCE, read(content.content)).values())


def _alternative_name(name: DerValue) -> tuple[int, str]:
    """The tag tells what kind of name it is; names of hosts are lower case."""
    if name.tag == DNS_NAME:
        return name.tag, name.content.decode("ascii", "replace").lower()
    if name.tag == IP_ADDRESS and len(name.content) in (4, 16):
        return name.tag, str(ipaddress.ip_address(name.content))
    return name.tag, name.content.hex()
