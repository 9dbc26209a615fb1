"""An X.500 name as the text that Java shows for it (`X500Principal.getName`, RFC 2253): Kafka's user names and ACLs.

The last part comes first; parts are joined by `,` and the attributes of one part by `+`. Nine attributes have keywords.
Any other is its dotted number, `=#` and the hex of its DER value; so is a value that is no text. One thing differs from
Java, which escapes of all control characters only NUL: here each is a backslash and two hex digits, so that a name
never breaks a line of a log.
"""

from __future__ import annotations

from klamm.broker.security.tls.der import (
    OBJECT_IDENTIFIER,
    SEQUENCE,
    SET,
    BadDer,
    DerValue,
    expect,
    object_identifier,
    read,
)

KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
BMP_STRING = 0x1E
TEXT_TAGS = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, BMP_STRING))  # UTF8, Printable, T61, IA5, General
ESCAPED = frozenset(',=+<>#;"\\')


def rfc2253(name: bytes) -> str:
    """Return the text of the DER of a Name. Raises BadDer."""
    parts = [expect(SET, part) for part in expect(SEQUENCE, read(name)).values()]
    return ",".join("+".join(_attribute(attribute) for attribute in part.values()) for part in reversed(parts))


def _attribute(attribute: DerValue) -> str:
    kind, value = _two(expect(SEQUENCE, attribute))
    oid = object_identifier(expect(OBJECT_IDENTIFIER, kind).content)
    keyword = KEYWORDS.get(oid)
    if keyword is None or value.tag not in TEXT_TAGS:
        return f"{keyword or oid}=#{value.whole.hex()}"
    encoding = "utf-16-be" if value.tag == BMP_STRING else "utf-8"
    return f"{keyword}={_escaped(value.content.decode(encoding, 'replace'))}"


def _two(sequence: DerValue) -> tuple[DerValue, DerValue]:
    values = list(sequence.values())
    if len(values) != 2:
        raise BadDer("an attribute is a type and a value")
    return values[0], values[1]


def _escaped(text: str) -> str:
    inner = text.strip(" ")
    leading = len(text) - len(text.lstrip(" "))
    trailing = len(text) - len(inner) - leading
    return "\\ " * leading + "".join(_escape(character) for character in inner) + "\\ " * trailing


def _escape(character: str) -> str:
    if character in ESCAPED:
        return "\\" + character
    if character < " " or character == "\x7f" or character in "\x85\u2028\u2029":
        return "".join(f"\\{byte:02X}" for byte in character.encode())
    return character
