"""Access to the metrics: `klamm.metrics.auth`.

    none          everybody
    basic:FILE    users of the file, a line `name:pbkdf2-sha256$iterations$salt$hash` each (base64), with a password
    bearer:FILE   whoever has a token of the file, one in each line

Empty lines and those with `#` in front do not count. The file is read at each change of it, so that a token can be
exchanged while the broker runs; a file that has become unreadable lets nobody in. It must be private.

Hashing is slow on purpose: it is done in a thread, and a credential that was right is remembered by a keyed digest.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import secrets
from pathlib import Path
from typing import Final

from klamm.broker.security.file_modes import NotPrivate, check_private
from klamm.config.definitions import ConfigError

log = logging.getLogger(__name__)

ITERATIONS: Final = 100_000
MOST_BYTES: Final = 1 << 20
MOST_REMEMBERED: Final = 100


def hashed(password: str) -> str:
    """Return what a line of the file for `basic` has after the name."""
    salt = secrets.token_bytes(16)
    digest = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, ITERATIONS)
    return f"pbkdf2-sha256${ITERATIONS}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def parse_access(text: str) -> Access | None:
    """The access that `klamm.metrics.auth` asks for, None for everybody. Raises `ConfigError`."""
    if text == "none":
        return None
    kind, colon, file = text.partition(":")
    if kind not in ("basic", "bearer") or not colon or not file:
        raise ConfigError(f"klamm.metrics.auth={text}: must be none, basic:FILE or bearer:FILE")
    access = Access(kind, Path(file))
    try:
        access.read()
    except (OSError, ValueError, NotPrivate) as error:
        raise ConfigError(f"klamm.metrics.auth={text}: {error}") from None
    return access


class Access:
    """The file of users or tokens, as it is now."""

    def __init__(self, kind: str, path: Path) -> None:
        self._kind = kind
        self._path = path
        self._key = secrets.token_bytes(32)
        self._version: tuple[int, ...] = ()
        self._lines: list[str] = []
        self._remembered: set[bytes] = set()
        self.challenge = b'Basic realm="klamm"' if kind == "basic" else b'Bearer realm="klamm"'

    def read(self) -> None:
        """Read the file if it has changed. Raises OSError, ValueError, NotPrivate."""
        status = self._path.stat()
        version = (status.st_mtime_ns, status.st_size, status.st_ino)
        if version == self._version:
            return
        check_private(self._path)
        with self._path.open("rb") as file:
            lines = file.read(MOST_BYTES).decode().splitlines()
        self._lines = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if self._kind == "basic":
            for line in self._lines:
                _parts(line)
        self._remembered.clear()
        self._version = version

    async def allows(self, authorization: str) -> bool:
        """Return whether the value of the request's header is good."""
        kind, _, credential = authorization.strip().partition(" ")
        if kind.lower() != self._kind:
            return False
        try:
            self.read()
        except (OSError, ValueError, NotPrivate) as error:
            log.warning("klamm.metrics.auth: nobody is let in: %s", error)
            self._version = ()
            return False
        digest = hmac.digest(self._key, credential.strip().encode(), "sha256")
        if digest in self._remembered:
            return True
        if self._kind == "bearer":
            return any(hmac.compare_digest(digest, self._digest(line)) for line in self._lines)
        if not await asyncio.to_thread(self._knows, credential.strip()):
            return False
        if len(self._remembered) < MOST_REMEMBERED:
            self._remembered.add(digest)
        return True

    def _digest(self, text: str) -> bytes:
        return hmac.digest(self._key, text.encode(), "sha256")

    def _knows(self, credential: str) -> bool:
        """Return whether name and password of a Basic credential are right. Costs the same for an unknown name."""
        try:
            name, _, password = base64.b64decode(credential, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        known = dict(line.split(":", 1) for line in self._lines)
        iterations, salt, wanted = _parts(f"{name}:{known[name]}") if name in known else (ITERATIONS, b"-", b"")
        return hmac.compare_digest(hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations), wanted)


def _parts(line: str) -> tuple[int, bytes, bytes]:
    """Iterations, salt and hash. Raises ValueError, without the line."""
    name, _, rest = line.partition(":")
    kind, *parts = rest.split("$")
    if kind != "pbkdf2-sha256" or len(parts) != 3 or not parts[0].isdecimal():
        raise ValueError(f"the line of {name!r} must be name:pbkdf2-sha256$iterations$salt$hash")
    return int(parts[0]), base64.b64decode(parts[1]), base64.b64decode(parts[2])
