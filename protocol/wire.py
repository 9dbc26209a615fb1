"""The primitive types of the Kafka protocol, as annotations for message declarations.

Everything is big endian. Fixed types have one size in all versions. `String`, `Bytes`, `Records` and arrays carry a
length. In the old versions it is an int16 (strings) or int32 (the rest), -1 for null. In "flexible" versions (KIP-482)
it is an unsigned varint of length + 1, 0 for null. A varint here has at most five bytes.

`Malformed` is the one exception for bad bytes. Nothing here knows about messages or versions.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Annotated

from klamm.protocol.regions import FileRegion


class Malformed(ValueError):
    """The bytes violate the protocol."""


class TooManyElements(Malformed):
    """The message has more elements than its reader allows."""


class NotEncodable(ValueError):
    """The message holds a value that this version of it cannot carry."""


@dataclass(frozen=True, slots=True)
class Wire:
    """The form of a type on the wire: `fixed` with a struct format and a size, or `string`, `bytes`, `records`."""

    kind: str
    name: str
    format: str = ""
    size: int = 0
    default: object = None


Buffer = bytes | bytearray | memoryview
RecordBytes = memoryview | bytes | bytearray | FileRegion | None

ZERO_UUID = bytes(16)

Bool = Annotated[bool, Wire("fixed", "bool", "?", 1, False)]
Int8 = Annotated[int, Wire("fixed", "int8", "b", 1, 0)]
Int16 = Annotated[int, Wire("fixed", "int16", "h", 2, 0)]
UInt16 = Annotated[int, Wire("fixed", "uint16", "H", 2, 0)]
Int32 = Annotated[int, Wire("fixed", "int32", "i", 4, 0)]
Int64 = Annotated[int, Wire("fixed", "int64", "q", 8, 0)]
Float64 = Annotated[float, Wire("fixed", "float64", "d", 8, 0.0)]
Uuid = Annotated[bytes, Wire("fixed", "uuid", "16s", 16, ZERO_UUID)]
String = Annotated[str, Wire("string", "string", default="")]
Bytes = Annotated[bytes, Wire("bytes", "bytes", default=b"")]
Records = Annotated[RecordBytes, Wire("records", "records", default=None)]

MAX_STRING_BYTES = 0x7FFF


def fits_string(text: str, spare_bytes: int = 0) -> bool:
    """Return whether a String can carry the text and `spare_bytes` more.

    A text that was read may be too long to be written: an invalid UTF-8 byte is read as U+FFFD, which has three bytes.
    """
    limit = MAX_STRING_BYTES - spare_bytes
    return len(text) <= limit // 4 or len(text.encode()) <= limit


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Return the unsigned varint at `pos` and the position after it. Raises IndexError at the end of the buffer."""
    byte = buf[pos]
    pos += 1
    if byte < 128:
        return byte, pos
    value = byte & 127
    shift = 7
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, pos
        shift += 7
        if shift > 28:
            raise Malformed("varint of more than 5 bytes")


def put_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def uuid_to_text(value: bytes) -> str:
    """Return Kafka's text of a uuid: 22 characters of unpadded base64url."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def uuid_from_text(text: str) -> bytes:
    """Return the 16 bytes of Kafka's text of a uuid. Raises ValueError for anything else."""
    try:
        value = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"not a uuid: {text!r}") from error
    if len(value) != 16:
        raise ValueError(f"not a uuid: {text!r}")
    return value
