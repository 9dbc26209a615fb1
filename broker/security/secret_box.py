"""Passwords that are set at run time, encrypted in the metadata store under the key of `klamm.secret.key.file`.

    sealed value    {aes-256-gcm}<key id>:<base64 of nonce (12 bytes), ciphertext, tag (16 bytes)>
    key file        <key id>:<base64 of 32 bytes>     one line for each key; the first one encrypts

The id is the beginning of the key's SHA-256. The name of the resource and of the config key are authenticated, so a
value cannot be moved to another place. A value under a key that the file lacks stops the start: it is not guessed at.
To change the key, `klamm secrets new-key` puts a new line first; the next start encrypts all values under it, and the
old line may go.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klamm.broker.security.file_modes import PRIVATE_FILE, NotPrivate, check_private
from klamm.config.secrets import holds_secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MARK: Final = "{aes-256-gcm}"
KEY_BYTES, NONCE_BYTES, ID_CHARACTERS = 32, 12, 16


class Unsealable(Exception):
    """A stored secret cannot be read, or a new one cannot be stored. The message is one line without the secret."""


class SecretBox:
    """Seal and open the values of PASSWORD keys in a config. Without a key file it opens only unsealed values."""

    def __init__(self, path: Path | None, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        self._path = path
        self._random_bytes = random_bytes
        self._keys: dict[str, bytes] | None = None

    def sealed(self, resource: str, config: Mapping[str, str]) -> dict[str, str]:
        """Return the config as it is to be stored. Raises Unsealable when it has a secret and there is no key."""
        return {
            name: self._seal(_context(resource, name), value) if holds_secret(name) and value else value
            for name, value in config.items()
        }

    def opened(self, resource: str, stored: Mapping[str, str]) -> dict[str, str]:
        """Return the config that was stored. Raises Unsealable."""
        return {
            name: self._open(_context(resource, name), value) if value.startswith(MARK) else value
            for name, value in stored.items()
        }

    def is_current(self, stored: Mapping[str, str]) -> bool:
        """Return whether every secret in it is sealed under the first key. Raises Unsealable."""
        return all(
            value.startswith(f"{MARK}{next(iter(self._load()))}:")
            for name, value in stored.items()
            if holds_secret(name) and value
        )

    def _seal(self, context: bytes, value: str) -> str:
        key_id, key = next(iter(self._load(make=True).items()))
        nonce = self._random_bytes(NONCE_BYTES)
        sealed = _cipher(key).encrypt(nonce, value.encode(), context)
        return f"{MARK}{key_id}:{base64.b64encode(nonce + sealed).decode()}"

    def _open(self, context: bytes, value: str) -> str:
        key_id, _, text = value.removeprefix(MARK).partition(":")
        key = self._load().get(key_id)
        if key is None:
            raise Unsealable(f"a password is encrypted under key {key_id}, which {self._path} does not have")
        from cryptography.exceptions import InvalidTag

        try:
            data = base64.b64decode(text, validate=True)
            return _cipher(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], context).decode()
        except (InvalidTag, ValueError):
            raise Unsealable(f"{context.decode()}: the stored password was changed, or is of another place") from None

    def _load(self, *, make: bool = False) -> dict[str, bytes]:
        if self._keys is not None:
            return self._keys
        if self._path is None:
            raise Unsealable("a password that is set at run time needs klamm.secret.key.file")
        try:
            if make and not self._path.exists():
                add_key(self._path, self._random_bytes)
            self._keys = read_keys(self._path)
        except (OSError, ValueError, NotPrivate) as error:
            raise Unsealable(f"klamm.secret.key.file: {error}") from None
        return self._keys


def read_keys(path: Path) -> dict[str, bytes]:
    """Return the keys by id, in the order of the file. Raises OSError, ValueError, NotPrivate."""
    check_private(path)
    keys = {}
    for number, line in enumerate(path.read_text(encoding="ascii").split(), 1):
        key_id, _, text = line.partition(":")
        try:
            key = base64.b64decode(text, validate=True)
        except binascii.Error:
            key = b""
        if len(key) != KEY_BYTES or _id_of(key) != key_id:
            raise ValueError(f"{path}: line {number} is no key")
        keys[key_id] = key
    if not keys:
        raise ValueError(f"{path}: it has no key")
    return keys


def add_key(path: Path, random_bytes: Callable[[int], bytes] = os.urandom) -> str:
    """Put a new key first in the file, which is replaced at once. Returns its id. Raises OSError, NotPrivate."""
    old = ""
    if path.exists():
        check_private(path)
        old = path.read_text(encoding="ascii")
    key = random_bytes(KEY_BYTES)
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{_id_of(key)}:{base64.b64encode(key).decode()}\n{old}")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return _id_of(key)


def _id_of(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()[:ID_CHARACTERS]


def _context(resource: str, name: str) -> bytes:
    return f"broker {resource or 'default'}: {name}".encode()


def _cipher(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ModuleNotFoundError:
        raise Unsealable("to encrypt passwords, pip install 'klamm[tls]'") from None
    return AESGCM(key)
