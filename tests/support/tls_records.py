"""TLS 1.3 records that no library would send: KeyUpdates without end, records without content.

The keys come from the secret that a client's key log has (RFC 8446, 7.1 to 7.3; suite TLS_AES_256_GCM_SHA384).
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

HANDSHAKE, APPLICATION_DATA = 22, 23
KEY_UPDATE = b"\x18\x00\x00\x01\x00"  # update_not_requested
KEY_UPDATE_REQUESTED = b"\x18\x00\x00\x01\x01"
SECRET_BYTES, KEY_BYTES, NONCE_BYTES = 48, 32, 12


def client_secret(key_log: Path) -> bytes:
    """The first secret of the client's traffic in the newest connection of the log."""
    return bytes.fromhex(re.findall(r"CLIENT_TRAFFIC_SECRET_0 \w+ (\w+)", key_log.read_text())[-1])


class RecordWriter:
    """A cipher for the records of one direction, from the first after the handshake on."""

    def __init__(self, secret: bytes) -> None:
        self._use(secret)

    def record(self, kind: int, content: bytes) -> bytes:
        inner = content + bytes([kind])
        head = struct.pack(">BHH", APPLICATION_DATA, 0x0303, len(inner) + 16)
        nonce = (int.from_bytes(self._nonce, "big") ^ self._number).to_bytes(NONCE_BYTES, "big")
        self._number += 1
        return head + self._cipher.encrypt(nonce, inner, head)

    def key_update(self, message: bytes = KEY_UPDATE) -> bytes:
        record = self.record(HANDSHAKE, message)
        self._use(_expand(self._secret, b"traffic upd", SECRET_BYTES))
        return record

    def _use(self, secret: bytes) -> None:
        self._secret, self._number = secret, 0
        self._cipher = AESGCM(_expand(secret, b"key", KEY_BYTES))
        self._nonce = _expand(secret, b"iv", NONCE_BYTES)


def _expand(secret: bytes, label: bytes, size: int) -> bytes:
    whole = b"tls13 " + label
    info = struct.pack(">HB", size, len(whole)) + whole + b"\0"
    return HKDFExpand(hashes.SHA384(), size, info).derive(secret)
