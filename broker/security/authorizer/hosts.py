"""The hosts of ACLs: all (`*`), an address as text, or a CIDR range that contains it (`10.0.0.0/8`, `2001:db8::/32`).

IPv6 addresses have one spelling here, so that an ACL holds for its address however either is written; Kafka compares
the text as Java prints it. An IPv4 address that is mapped into IPv6 is the IPv4 address.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import NamedTuple

from klamm.protocol.errors import InvalidRequest

ANY_HOST = "*"

_V4 = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})/([0-9]{1,2})", re.ASCII)
_V6_BITS = re.compile(r"[0-9]{1,3}", re.ASCII)


class Cidr(NamedTuple):
    """A range: the addresses of this many bits that begin as `prefix`, with `shift` bits that do not count."""

    bits: int
    prefix: int
    shift: int

    def contains(self, bits: int, address: int) -> bool:
        return bits == self.bits and address >> self.shift == self.prefix


def canonical(host: str) -> str:
    """Return the one spelling of an address; other text stays as it is."""
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host)
    except AddressValueError:
        return host
    return str(address.ipv4_mapped or address)


def numeric(host: str) -> tuple[int, int]:
    """Return the number of bits of an address and its value; (0, 0) for other text."""
    try:
        if ":" not in host:
            return 32, int(IPv4Address(host))
        address = IPv6Address(host)
    except AddressValueError:
        return 0, 0
    mapped = address.ipv4_mapped
    return (32, int(mapped)) if mapped is not None else (128, int(address))


def parse_cidr(text: str) -> Cidr:
    """Read `address/bits`; bits of the address beyond those do not count. Raises ValueError."""
    if ":" not in text:
        found = _V4.fullmatch(text)
        if found is None:
            raise ValueError("it is not of the form a.b.c.d/bits")
        *parts, length = (int(part) for part in found.groups())
        if max(parts) > 255 or length > 32:
            raise ValueError("a part of it is not in [0, 255], or the bits are not in [0, 32]")
        return Cidr(32, int.from_bytes(bytes(parts), "big") >> (32 - length), 32 - length)
    address, _, bits = text.partition("/")
    if _V6_BITS.fullmatch(bits) is None or int(bits) > 128:
        raise ValueError("the bits are not in [0, 128]")
    if "." in address or "%" in address:
        raise ValueError("a range of IPv6 has neither dots nor a zone")
    return Cidr(128, int(IPv6Address(address)) >> (128 - int(bits)), 128 - int(bits))


def range_of(text: str) -> Cidr | None:
    """The range of a host that an older broker has stored; None for text that is none, and fits no address."""
    try:
        return parse_cidr(text)
    except ValueError:
        return None


def check_host(host: str) -> None:
    """Raise InvalidRequest for an empty host, or a range that is none."""
    if not host:
        raise InvalidRequest("Host pattern cannot be null or empty")
    if "/" in host:
        try:
            parse_cidr(host)
        except ValueError as error:
            raise InvalidRequest(f"Invalid CIDR notation '{host[:100]}': {error}") from None
