from __future__ import annotations

import random

import pytest

from klamm.broker.security.tls.der import BadDer
from klamm.broker.security.tls.distinguished_name import KEYWORDS, rfc2253
from tests.broker.security.tls import der_writing as der
from tests.broker.security.tls.java_names import ask

UTF8, PRINTABLE, T61, IA5, UNIVERSAL, BITS, OCTETS, INTEGER = 0x0C, 0x13, 0x14, 0x16, 0x1C, 0x03, 0x04, 0x02
OTHERS = ("1.2.840.113549.1.9.1", "2.5.4.5", "2.5.4.12", "2.5.4.42", "1.3.6.1.4.1.311.60.2.1.3")
COMMON_NAME, ORGANIZATION = "2.5.4.3", "2.5.4.10"


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([], ""),
        ([[("2.5.4.6", PRINTABLE, b"DE")], [(COMMON_NAME, UTF8, b"broker")]], "CN=broker,C=DE"),
        ([[(COMMON_NAME, UTF8, b"a"), ("0.9.2342.19200300.100.1.1", UTF8, b"7")]], "CN=a+UID=7"),
        ([[(ORGANIZATION, UTF8, b'A, B+"C"\\<;>#=')]], 'O=A\\, B\\+\\"C\\"\\\\\\<\\;\\>\\#\\='),
        ([[(COMMON_NAME, UTF8, b"  a b ")]], "CN=\\ \\ a b\\ "),
        ([[("1.2.840.113549.1.9.1", IA5, b"a@b")]], "1.2.840.113549.1.9.1=#1603614062"),
        ([[(COMMON_NAME, 0x1E, "né".encode("utf-16-be"))]], "CN=né"),
        ([[(COMMON_NAME, UTF8, b"a\0b\nc\r\x7f")]], "CN=a\\00b\\0Ac\\0D\\7F"),
        ([[(COMMON_NAME, UTF8, "a\u2028b".encode())]], "CN=a\\E2\\80\\A8b"),
    ],
)
def test_names(parts: list[list[tuple[str, int, bytes]]], text: str) -> None:
    assert rfc2253(der.name(*parts)) == text


@pytest.mark.parametrize(
    "data", [b"", b"\x30", b"\x30\x05\x31", b"\x31\x00", der.value(0x30, der.value(0x31, b"\x05\0"))]
)
def test_what_is_no_name(data: bytes) -> None:
    with pytest.raises(BadDer):
        rfc2253(data)


@pytest.mark.java
def test_random_names_are_those_of_java() -> None:
    seed = random.randrange(2**32)
    print(f"seed={seed}")
    numbers = random.Random(seed)
    names = [_random_name(numbers) for _ in range(400)]
    answers = ask([f"name {name.hex()}" for name in names])
    assert [f"={rfc2253(name)}" for name in names] == answers


def _random_name(numbers: random.Random) -> bytes:
    counts = [numbers.choice((1, 1, 1, 2, 3)) for _ in range(numbers.randrange(5))]
    return der.name(*[[_random_attribute(numbers) for _ in range(count)] for count in counts])


def _random_attribute(numbers: random.Random) -> tuple[str, int, bytes]:
    number = numbers.choice([*KEYWORDS, *KEYWORDS, *OTHERS])
    tag = numbers.choice([UTF8] * 5 + [PRINTABLE] * 3 + [T61, IA5, UNIVERSAL, BITS, OCTETS, INTEGER])
    size = numbers.choice((0, 1, 1, 2, 3, 5, 8, 20))
    if tag in (UNIVERSAL, BITS, OCTETS, INTEGER):
        return number, tag, b"\x05"
    letters = "ab Z09,+\"\\<>;#= '()./:?-*&@_" + ("é漢\u00a0\U0001f600" if tag == UTF8 else "")
    text = "".join(numbers.choice(letters) for _ in range(size)) + numbers.choice(("", "", "", "\0"))
    return number, tag, text.encode()
