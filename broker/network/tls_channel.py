"""TLS on a socket of ours: OpenSSL works between two memories, and a channel moves ciphertext from and to the socket.

    recv_into     socket -> scratch -> incoming -> OpenSSL -> the reader's view
    send          data -> OpenSSL -> outgoing -> socket
    send_file     file -> scratch -> OpenSSL -> outgoing -> socket

Nothing but what OpenSSL gave out is ever sent. What must not be missed:

- Plaintext can wait inside OpenSSL while the socket has nothing to read. While there is a reader, it is called for
  that, too; so a connection that was muted finds it when it reads again.
- A piece is encrypted only when the one before has left. Its ciphertext that the socket does not take is kept, and its
  bytes count as sent when all of that has left: so unsent bytes are counted once, and the kept rest is one piece.
- Reading can make output (an answer to KeyUpdate, an alert): it leaves at once or before the next piece.
- A record brings data, or it is one of `MAX_EMPTY_RECORDS` that did not; more, and the connection ends.
- One thread has the SSL object: the loop's.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from klamm.broker.network.channel import Bytes, half_close, has_ended_unread, local_address, peer_has_gone

if TYPE_CHECKING:
    from klamm.protocol.regions import HasFileno

PIECE_BYTES: Final = (
    64 * 1024
)  # encrypted, or read, at once; larger ones make no difference, and OpenSSL keeps the room
TURN_BYTES: Final = 1024 * 1024  # of one send
READ_TURN_BYTES: Final = 256 * 1024
MAX_HANDSHAKE_BYTES: Final = 64 * 1024
MAX_EMPTY_RECORDS: Final = 32
MAX_CONTROL_BYTES: Final = 16 * 1024  # answers to the peer's control messages that it does not take
RECORD_HEAD_BYTES: Final = 5  # type:1 | version:2 | length:2
RECORD_TYPES: Final = frozenset((20, 21, 22, 23))  # change cipher spec, alert, handshake, application data
NOTHING: Final = memoryview(b"")


class TlsScratch:
    """Room for one piece each way, shared by all channels of a loop."""

    __slots__ = ("ciphertext", "plaintext")

    def __init__(self) -> None:
        self.ciphertext = memoryview(bytearray(PIECE_BYTES))
        self.plaintext = memoryview(bytearray(PIECE_BYTES))


class TlsChannel:
    """A `Channel`, on which `handshake` comes first."""

    __slots__ = (
        "_empty_records", "_has_ended", "_incoming", "_is_looking", "_loop", "_on_readable", "_outgoing", "_owed_bytes",
        "_records", "_scratch", "_socket", "_unsent", "first_bytes", "handshake_bytes", "tls",
    )  # fmt: skip

    sends_by_thread = False

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, scratch: TlsScratch) -> None:
        self._socket = connected
        self._scratch = scratch
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._records = RecordCounter()
        self._empty_records = 0
        self._unsent = NOTHING  # ciphertext
        self._owed_bytes = 0  # of plaintext; its ciphertext ends with `_unsent`
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_readable: Callable[[], None] | None = None
        self._is_looking = False
        self._has_ended = False  # by a close_notify of the peer
        self.handshake_bytes = 0
        self.first_bytes = b""

    # -- handshake

    def handshake(self) -> bool:
        """Take one step; return whether it was the last. Raises OSError (ssl.SSLError), after an alert was sent."""
        try:
            if not self._read_ciphertext():
                raise ConnectionResetError("closed by the peer")
        except BlockingIOError:
            return False
        self.first_bytes = self.first_bytes or bytes(self._scratch.ciphertext[:8])
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            if self.handshake_bytes > MAX_HANDSHAKE_BYTES:
                raise ConnectionAbortedError(f"more than {MAX_HANDSHAKE_BYTES} bytes of a handshake") from None
            self._send_control()
            return False
        except ssl.SSLError:
            with suppress(OSError):
                self._send_control()  # an alert
            raise
        self._send_control()
        self._empty_records = 0
        return True

    # -- reading

    def recv_into(self, view: memoryview, /) -> int:
        """Decrypt into `view` what has come; 0 at the end of the stream."""
        if self._has_ended:
            return 0
        view = view[:READ_TURN_BYTES]
        got, is_drained = 0, False
        while got < len(view):
            if not self._has_input():
                if is_drained:
                    break
                try:
                    size = self._read_ciphertext()
                except BlockingIOError:
                    if got:
                        break
                    raise
                if not size:
                    return got
                is_drained = size < PIECE_BYTES
            count = self._decrypt(view[got:])
            if count == 0:
                self._has_ended = True
                return got
            got += max(count, 0)
        self._count_empty(got)
        if self._outgoing.pending:
            self._send_control()
        if not got:
            raise BlockingIOError
        return got

    def _decrypt(self, view: memoryview) -> int:
        """Return the size of the decrypted data; 0 at the end of the stream, -1 when a record is incomplete."""
        try:
            return int(self.tls.read(len(view), view))
        except ssl.SSLWantReadError:
            return -1
        except ssl.SSLZeroReturnError:
            return 0
        except ssl.SSLError:
            with suppress(OSError):
                self._send_control()  # an alert
            raise

    def _has_input(self) -> bool:
        return bool(self._incoming.pending or self.tls.pending())

    def _read_ciphertext(self) -> int:
        """Move a piece from the socket to OpenSSL. Its size; 0 at the end, when that is between two records."""
        scratch = self._scratch.ciphertext
        size = self._socket.recv_into(scratch)
        if not size:
            if not self._records.is_between:
                raise ConnectionResetError("end of stream inside a TLS record")
            return 0
        piece = scratch[:size]
        self._empty_records += self._records.count(piece)
        self.handshake_bytes += size
        self._incoming.write(piece)
        return size

    def _count_empty(self, got: int) -> None:
        """A record carries a byte at least. Raises ConnectionAbortedError for too many that did not."""
        self._empty_records = max(0, self._empty_records - got)
        if self._empty_records > MAX_EMPTY_RECORDS:
            raise ConnectionAbortedError(f"more than {MAX_EMPTY_RECORDS} TLS records without data")

    # -- watching

    def add_reader(self, loop: asyncio.AbstractEventLoop, on_readable: Callable[[], None], /) -> None:
        self._loop, self._on_readable = loop, on_readable
        loop.add_reader(self._socket, self._read)
        self._look_again()

    def remove_reader(self, loop: asyncio.AbstractEventLoop, /) -> None:
        self._on_readable = None
        loop.remove_reader(self._socket)

    def _read(self) -> None:
        if self._on_readable is not None:
            self._on_readable()
            self._look_again()

    def _look_again(self) -> None:
        """Call the reader in the next iteration for data inside OpenSSL: the socket does not report them."""
        if self._on_readable is not None and not self._is_looking and (self._has_input() or self._has_ended):
            assert self._loop is not None
            self._is_looking = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._is_looking = False
        self._read()

    def add_writer(self, loop: asyncio.AbstractEventLoop, on_writable: Callable[[], None], /) -> None:
        loop.add_writer(self._socket, on_writable)

    def remove_writer(self, loop: asyncio.AbstractEventLoop, /) -> None:
        loop.remove_writer(self._socket)

    # -- sending

    def send(self, data: Bytes, flags: int = 0, /) -> int:
        sent = self._settle()
        assert sent <= len(data), "the bytes that were not sent come first"
        view = memoryview(data)[: sent + TURN_BYTES]
        while sent < len(view):
            piece = view[sent : sent + PIECE_BYTES]
            if not self._encrypt(piece, flags if sent + len(piece) == len(data) else socket.MSG_MORE):
                break
            sent += len(piece)
        return self._progress(sent)

    def send_file(self, file: HasFileno, position: int, size: int, /) -> int:
        sent = self._settle()
        while sent < size:
            room = self._scratch.plaintext[: size - sent]
            count = os.preadv(file.fileno(), [room], position + sent)
            if not count:  # the file ends
                return sent
            if not self._encrypt(room[:count], 0):
                break
            sent += count
        return self._progress(sent)

    @property
    def has_unsent(self) -> bool:
        """Whether there is ciphertext that the socket did not take."""
        return bool(self._unsent)

    def flush(self) -> None:
        """Send the ciphertext that is left. Raises BlockingIOError when some still is."""
        if self._unsent:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
            if self._unsent:
                raise BlockingIOError

    def _settle(self) -> int:
        """Send the rest of the last piece; return how many bytes of plaintext have left with it."""
        self.flush()
        owed, self._owed_bytes = self._owed_bytes, 0
        return owed

    def _progress(self, sent: int) -> int:
        if not sent and self._unsent:
            raise BlockingIOError
        return sent

    def _encrypt(self, piece: memoryview, flags: int) -> bool:
        """Send a piece; return whether all of it has left. If not, it is owed."""
        try:
            written = self.tls.write(piece)
        except ssl.SSLError as error:
            raise ConnectionAbortedError(f"TLS: {error.reason or error}") from None
        assert written == len(piece), "memory takes everything"
        self._send_ciphertext(flags)
        if self._unsent:
            self._owed_bytes = written
        return not self._unsent

    def _send_ciphertext(self, flags: int) -> None:
        """Send what OpenSSL has given out, and nothing else: the only way to the socket beside `flush`."""
        assert not self._unsent
        ciphertext = self._outgoing.read()
        assert ciphertext[0] in RECORD_TYPES, "clear text on its way to a TLS socket"
        sent = 0
        with suppress(BlockingIOError):
            sent = self._socket.send(ciphertext, flags)
        if sent != len(ciphertext):
            self._unsent = memoryview(ciphertext)[sent:]

    def _send_control(self) -> None:
        """Send what OpenSSL says by itself. What the peer does not take waits for the next piece, within limits."""
        with suppress(BlockingIOError):
            self.flush()
        if not self._outgoing.pending:
            return
        if not self._unsent:
            self._send_ciphertext(0)
        elif self._outgoing.pending > MAX_CONTROL_BYTES:
            raise ConnectionAbortedError("the peer does not take the answers to its TLS messages")

    # -- ends

    def duplicate(self) -> socket.socket:
        raise AssertionError("no thread and no other code gets the descriptor of a TLS channel")

    def has_ended_unread(self) -> bool:
        return has_ended_unread(self._socket) and not self._has_input()

    def peer_has_gone(self) -> bool:
        return peer_has_gone(self._socket)

    def half_close(self, room: memoryview, /) -> None:
        self._notify_close()
        half_close(self._socket, room)

    def close(self) -> None:
        """Close, with a close_notify if it can leave at once."""
        self._on_readable = None
        self._notify_close()
        self._socket.close()

    def _notify_close(self) -> None:
        """Say that no more comes. The peer's own is not waited for."""
        with suppress(OSError):  # OpenSSL wants the peer's; or the handshake has failed, or the peer is gone
            self.tls.unwrap()
        with suppress(OSError):
            self._send_control()

    def local_address(self) -> tuple[str, int]:
        return local_address(self._socket)


class RecordCounter:
    """A counter of the records in a stream of ciphertext by their heads."""

    __slots__ = ("_head", "_left_bytes")

    def __init__(self) -> None:
        self._head = b""  # of a record, incomplete
        self._left_bytes = 0  # of the record that has begun

    @property
    def is_between(self) -> bool:
        """Whether the stream is between two records."""
        return not self._left_bytes and not self._head

    def count(self, data: memoryview) -> int:
        """Return how many records begin in `data`, or with the bytes before it."""
        if self._head:
            data, self._head = memoryview(self._head + data), b""
        position, size, records = self._left_bytes, len(data), 0
        while position + RECORD_HEAD_BYTES <= size:
            position += RECORD_HEAD_BYTES + (data[position + 3] << 8 | data[position + 4])
            records += 1
        if position < size:
            self._head = bytes(data[position:])
            position = size
        self._left_bytes = position - size
        return records
