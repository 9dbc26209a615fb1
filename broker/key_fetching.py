"""The fetching of keys that sign tokens, in a thread of its own: at start, every refresh interval, and on demand.

Whatever the other side does costs this thread alone, and little of it: no redirects, 1 MiB at most, a timeout for each
step and one for all of it. A fetch that fails is tried again, with a growing pause, and the old keys stay meanwhile.
"""

from __future__ import annotations

import http.client
import logging
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from klamm.broker.security.sasl.oauth.keys import UnusableKeys

if TYPE_CHECKING:
    from klamm.broker.security.sasl.oauth.settings import KeySource

log = logging.getLogger(__name__)

MOST_BYTES: Final = 1 << 20
PIECE_BYTES: Final = 64 << 10


class CannotFetch(Exception):
    """One attempt has failed; one line."""


class KeyFetcher:
    """`start` it, `wake` it for keys that are not known, `stop` it. `take` gets each document, in the thread."""

    def __init__(self, source: KeySource, take: Callable[[bytes], None]) -> None:
        self._source = source
        self._take = take
        self._woken = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="klamm-jwks")
        parts = urlsplit(source.url)
        self._shown = f"{parts.scheme}://{parts.hostname or ''}{parts.path}"  # without user, password and query

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Have the keys fetched now, unless that is being done."""
        self._woken.set()

    def stop(self) -> None:
        """End the thread once it is between two fetches; it is not waited for."""
        self._stopped = True
        self._woken.set()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end after `stop`."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        backoff_s = self._source.backoff_s
        while not self._stopped:
            self._woken.clear()
            try:
                self._take(fetch(self._source))
                log.debug("%s: keys fetched", self._shown)
                backoff_s = self._source.backoff_s
                self._woken.wait(self._source.refresh_s)
            except (CannotFetch, UnusableKeys) as error:
                log.warning("%s: no new keys for OAUTHBEARER, the old ones stay: %s", self._shown, error)
                time.sleep(backoff_s * random.uniform(0.8, 1.2))
                backoff_s = min(backoff_s * 2, self._source.max_backoff_s)


def fetch(source: KeySource) -> bytes:
    """Return the document at the URL. Blocks. Raises CannotFetch."""
    parts = urlsplit(source.url)
    try:
        if parts.scheme == "file":
            with Path(unquote(parts.path)).open("rb") as file:
                return _bounded(file.read(MOST_BYTES + 1))
        return _over_http(source)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise CannotFetch(f"{type(error).__name__}: {error}") from None


def _over_http(source: KeySource) -> bytes:
    parts = urlsplit(source.url)
    assert parts.hostname is not None, "the settings have checked it"
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=source.connect_timeout_s, context=context
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=source.connect_timeout_s)
    connection.connect()
    plain = connection.sock
    plain.settimeout(source.read_timeout_s)
    is_cut = threading.Event()
    watchdog = threading.Timer(2 * source.read_timeout_s, _cut, (plain, is_cut))
    watchdog.daemon = True
    watchdog.start()
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", target, headers={"Accept": "application/json", "Connection": "close"})
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise CannotFetch(f"status {response.status}")
        data = _read(response)
        if is_cut.is_set():
            raise CannotFetch("it took too long")
        return data
    finally:
        watchdog.cancel()
        connection.close()


def _cut(connection: socket.socket, is_cut: threading.Event) -> None:
    """End a connection that takes too long in all; for the thread that reads it, it ends there."""
    is_cut.set()
    try:
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # a TLS socket's own would take its state from the reader
    except OSError:
        return


def _read(response: http.client.HTTPResponse) -> bytes:
    data = bytearray()
    while piece := response.read(PIECE_BYTES):
        data += piece
        _bounded(data)
    if response.length:
        raise CannotFetch("the answer was cut off")
    return bytes(data)


def _bounded(data: bytes | bytearray) -> bytes:
    if len(data) > MOST_BYTES:
        raise CannotFetch(f"more than {MOST_BYTES} bytes")
    return bytes(data)
