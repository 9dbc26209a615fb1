"""Writing DER, for tests."""

from __future__ import annotations


def value(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 128:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def oid(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    content = b""
    for number in (40 * first + second, *rest):
        digits = [number & 0x7F]
        while number := number >> 7:
            digits.append(number & 0x7F | 0x80)
        content += bytes(reversed(digits))
    return value(6, content)


def name(*parts: list[tuple[str, int, bytes]]) -> bytes:
    """A Name; each attribute is its number, the tag of its value and the value."""
    sets = [
        value(0x31, b"".join(value(0x30, oid(number) + value(tag, content)) for number, tag, content in part))
        for part in parts
    ]
    return value(0x30, b"".join(sets))
