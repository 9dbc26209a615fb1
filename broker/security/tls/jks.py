"""Java's own keystores, JKS and JCEKS.

    store   = magic:4 | version:4 (1 or 2) | count:4 | entry* | check:20
    entry   = 1:4 | alias:utf | date:8 | key:bytes | count:4 | certificate*      a key and its chain
            | 2:4 | alias:utf | date:8 | certificate                            a certificate that is trusted
    certificate = type:utf (version 2 only) | der:bytes
    utf     = size:2 | text                bytes = size:4 | data

`check` is the SHA-1 of the password in UTF-16BE, two words in ASCII, and everything before. Each key is a PKCS#8
EncryptedPrivateKeyInfo with a cipher of Java's own: `salt:20 | key XOR stream | check:20`. The stream begins with the
SHA-1 of password and salt; each next 20 bytes are the SHA-1 of the password and the 20 before. `check` is the SHA-1 of
password and key. This protects a key no better than its password does; JCEKS may have it, or triple DES, which is not
read.
"""

from __future__ import annotations

import hashlib
import hmac
import struct

from klamm.broker.security.tls.der import OCTET_STRING, SEQUENCE, BadDer, expect, read
from klamm.broker.security.tls.store import BadStore, Store

JKS_MAGIC, JCEKS_MAGIC = bytes.fromhex("FEEDFEED"), bytes.fromhex("CECECECE")
HEAD = struct.Struct(">4sII")
CHECK_BYTES = 20
KEY_ENTRY, TRUSTED_ENTRY = 1, 2
JKS_KEY_PROTECTOR = bytes.fromhex("2b060104012a021101 01".replace(" ", ""))  # 1.3.6.1.4.1.42.2.17.1.1


def is_jks(data: bytes) -> bool:
    return data[:4] in (JKS_MAGIC, JCEKS_MAGIC)


def open_jks(data: bytes, password: str | None, key_password: str | None) -> Store:
    """Read the first key with its chain, and all trusted certificates. Without a password the store is not checked
    and gives no key. Raises BadStore."""
    if password is not None and not hmac.compare_digest(_check(data[:-CHECK_BYTES], password), data[-CHECK_BYTES:]):
        raise BadStore("the password is wrong, or the keystore is damaged")
    try:
        return _read_store(data[:-CHECK_BYTES], key_password or password)
    except (struct.error, IndexError, BadDer) as error:
        raise BadStore(f"the keystore is damaged: {error}") from None


def _read_store(data: bytes, key_password: str | None) -> Store:
    _, version, count = HEAD.unpack_from(data)
    if version not in (1, 2):
        raise BadStore(f"version {version} of a keystore; there are 1 and 2")
    reader = _Reader(data, HEAD.size)
    keys: list[tuple[bytes, list[bytes]]] = []
    trusted: list[bytes] = []
    for _ in range(count):
        tag = reader.integer()
        reader.text()  # the alias
        reader.skip(8)  # the date
        if tag == KEY_ENTRY:
            keys.append((reader.data(), [reader.certificate(version) for _ in range(reader.integer())]))
        elif tag == TRUSTED_ENTRY:
            trusted.append(reader.certificate(version))
        else:
            raise BadStore(f"an entry of kind {tag}; there are keys and certificates")
    if not keys or key_password is None:
        return Store(None, (), tuple(trusted), len(keys))
    protected, chain = keys[0]
    return Store(_recover(protected, key_password), tuple(chain), tuple(trusted), len(keys))


class _Reader:
    """A reader of the values of a store, one after the other. Raises struct.error and IndexError at its end."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position

    def skip(self, size: int) -> int:
        start = self._position
        self._position += size
        if self._position > len(self._data):
            raise IndexError("it ends inside an entry")
        return start

    def integer(self) -> int:
        value: int = struct.unpack_from(">I", self._data, self.skip(4))[0]
        return value

    def text(self) -> str:
        size: int = struct.unpack_from(">H", self._data, self.skip(2))[0]
        start = self.skip(size)
        return self._data[start : start + size].decode(errors="replace")

    def data(self) -> bytes:
        size = self.integer()
        start = self.skip(size)
        return self._data[start : start + size]

    def certificate(self, version: int) -> bytes:
        if version == 2 and (kind := self.text()) != "X.509":
            raise BadStore(f"a certificate of kind {kind}; only X.509 is known")
        return self.data()


def _check(data: bytes, password: str) -> bytes:
    return hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + data).digest()


def _recover(protected: bytes, password: str) -> bytes:
    """Return the PKCS#8 DER of a key."""
    algorithm, content = expect(SEQUENCE, read(protected)).values()
    identifier = next(algorithm.values())
    if identifier.content != JKS_KEY_PROTECTOR:
        raise BadStore(
            "the key is protected in a way that only Java reads; convert the store: keytool -importkeystore "
            "-deststoretype PKCS12"
        )
    data = expect(OCTET_STRING, content).content
    secret = password.encode("utf-16-be")
    salt, body, check = data[:CHECK_BYTES], data[CHECK_BYTES:-CHECK_BYTES], data[-CHECK_BYTES:]
    key = _xor(body, secret, salt)
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):
        raise BadStore("the key's password is wrong")
    return key


def _xor(body: bytes, secret: bytes, salt: bytes) -> bytes:
    stream, block = bytearray(), salt
    while len(stream) < len(body):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    return bytes(one ^ other for one, other in zip(body, stream, strict=False))
