"""The TLS channel between memories: at every split of the bytes, with a peer that takes little, and one that cheats."""

from __future__ import annotations

import random
import ssl
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.broker.network.tls_channel import (
    MAX_EMPTY_RECORDS,
    MAX_HANDSHAKE_BYTES,
    PIECE_BYTES,
    TURN_BYTES,
    RecordCounter,
    TlsChannel,
    TlsScratch,
)
from tests.broker.network.test_tls_connection import AUTHORITY, endpoint
from tests.support.tls_records import APPLICATION_DATA, KEY_UPDATE_REQUESTED, RecordWriter, client_secret

VERSIONS = ["TLSv1.2", "TLSv1.3"]
SCRATCH = TlsScratch()
VIEW = memoryview(bytearray(1 << 20))


class Wire:
    """A non-blocking socket to nowhere: gives the pieces of `coming` one by one, takes `room` bytes."""

    def __init__(self) -> None:
        self.coming: list[bytes] = []
        self.gone = bytearray()
        self.room: int | None = None
        self.has_ended = False

    def recv_into(self, view: memoryview) -> int:
        if not self.coming:
            if self.has_ended:
                return 0
            raise BlockingIOError
        piece = self.coming.pop(0)
        view[: len(piece)] = piece
        assert len(piece) <= len(view)
        return len(piece)

    def send(self, data: memoryview, flags: int = 0) -> int:
        taken = len(data) if self.room is None else min(self.room, len(data))
        if not taken:
            raise BlockingIOError
        if self.room is not None:
            self.room -= taken
        self.gone += data[:taken]
        return taken

    def shutdown(self, how: int) -> None: ...

    def close(self) -> None:
        self.has_ended = True


class Peer:
    """A client over memory, and the channel that it speaks to."""

    def __init__(self, version: str = "TLSv1.3", key_log: Path | None = None) -> None:
        self.wire = Wire()
        context = endpoint(ssl_enabled_protocols=version).context
        self.channel = TlsChannel(self.wire, context, SCRATCH)  # type: ignore[arg-type]
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = AUTHORITY.client_context()
        if key_log is not None:
            client.keylog_filename = str(key_log)
        self.tls = client.wrap_bio(self._in, self._out, server_hostname="localhost")

    def shake(self, size: int = 1 << 16) -> None:
        """Shake hands; the client's bytes arrive in pieces of this size."""
        is_done = False
        while not is_done:
            with suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
            data = self._out.read()
            for start in range(0, len(data), size):
                self.wire.coming = [data[start : start + size]]
                is_done = self.channel.handshake()
            self._take()
        self.wire.coming = []

    def encrypt(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self._out.read()

    def said(self) -> bytes:
        """What the channel has sent, decrypted."""
        self._take()
        found = bytearray()
        with suppress(ssl.SSLWantReadError):
            while piece := self.tls.read(1 << 16):
                found += piece
        return bytes(found)

    def _take(self) -> None:
        self._in.write(bytes(self.wire.gone))
        self.wire.gone.clear()


def read_all(peer: Peer) -> bytes:
    """All that has come, decrypted."""
    found = bytearray()
    is_over = False
    while not is_over:
        is_over = not peer.wire.coming
        with suppress(BlockingIOError):
            while size := peer.channel.recv_into(VIEW):
                found += VIEW[:size]
            return bytes(found)  # the end
    return bytes(found)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_a_handshake_in_pieces(version: str, size: int) -> None:
    peer = Peer(version)
    peer.shake(size)
    assert peer.channel.tls.version() == version
    peer.wire.coming = [peer.encrypt(b"hello")]
    assert read_all(peer) == b"hello"


@pytest.mark.parametrize("version", VERSIONS)
def test_every_split_of_two_records_gives_the_same_bytes(version: str) -> None:
    peer = Peer(version)
    peer.shake()
    size = len(peer.encrypt(b"first")) + len(peer.encrypt(b"second!"))
    peer = Peer(version)
    peer.shake()
    for split in range(1, size):
        data = peer.encrypt(b"first") + peer.encrypt(b"second!")
        peer.wire.coming = [data[:split], data[split:]]
        assert read_all(peer) == b"firstsecond!"
    data = peer.encrypt(b"first") + peer.encrypt(b"second!")
    peer.wire.coming = [bytes([byte]) for byte in data]
    assert read_all(peer) == b"firstsecond!"


@pytest.mark.parametrize("version", VERSIONS)
def test_large_data_in_random_pieces_and_into_small_views(version: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed={seed}")
    numbers = random.Random(seed)
    peer = Peer(version)
    peer.shake()
    data = numbers.randbytes(700_000)
    ciphertext, found = peer.encrypt(data), bytearray()
    position = 0
    while position < len(ciphertext):
        size = numbers.choice((1, 5, 1400, 16_000, PIECE_BYTES))
        peer.wire.coming.append(ciphertext[position : position + size])
        position += size
    view = memoryview(bytearray(50_000))
    while len(found) < len(data):
        try:
            size = peer.channel.recv_into(view[: numbers.choice((1, 100, 50_000))])
        except BlockingIOError:
            continue
        found += view[:size]
    assert found == data


@pytest.mark.parametrize("version", VERSIONS)
def test_data_leaves_whole_and_in_order_however_little_the_socket_takes(version: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed={seed}")
    numbers = random.Random(seed)
    peer = Peer(version)
    peer.shake()
    with tempfile.TemporaryFile() as file:
        content = numbers.randbytes(300_000)
        file.write(content)
        file.flush()
        wanted, got = bytearray(), bytearray()
        for _ in range(6):
            data = numbers.randbytes(numbers.choice((1, 100, PIECE_BYTES, PIECE_BYTES + 1, 200_000)))
            wanted += data + content
            got += _send_all(peer, numbers, data, None) + _send_all(peer, numbers, None, (file, len(content)))
    assert got == wanted


def _send_all(peer: Peer, numbers: random.Random, data: bytes | None, file: tuple[BinaryIO, int] | None) -> bytes:
    """Send as a send queue does: each call begins with the first unsent byte."""
    size, sent, got = len(data) if data is not None else file[1], 0, b""  # type: ignore[index]
    while sent < size:
        peer.wire.room = numbers.choice((0, 1, 10, 1000, 30_000, 90_000))
        with suppress(BlockingIOError):
            if data is not None:
                sent += peer.channel.send(memoryview(data)[sent:])
            else:
                assert file is not None
                sent += peer.channel.send_file(file[0], sent, size - sent)
        got += peer.said()
    peer.wire.room = None
    assert not peer.channel.has_unsent
    return got + peer.said()


def test_what_left_while_something_was_read_is_not_sent_again() -> None:
    peer = Peer()
    peer.shake()
    peer.wire.room = 5
    with pytest.raises(BlockingIOError):
        peer.channel.send(b"hello")
    peer.wire.room = None
    peer.channel._send_control()  # as reading does
    assert not peer.channel.has_unsent
    assert peer.channel.send(b"hello, world") == len("hello, world")
    assert peer.said() == b"hello, world"


def test_one_send_is_a_turn_at_most() -> None:
    peer = Peer()
    peer.shake()
    assert peer.channel.send(bytes(3 * TURN_BYTES)) == TURN_BYTES


def test_a_file_that_ends_gives_nothing() -> None:
    peer = Peer()
    peer.shake()
    with tempfile.TemporaryFile() as file:
        file.write(b"abc")
        file.flush()
        assert peer.channel.send_file(file, 0, 10) == 3
        assert peer.channel.send_file(file, 3, 7) == 0
    assert peer.said() == b"abc"


# -- ends


def test_a_close_notify_is_the_end_after_the_data_before_it() -> None:
    peer = Peer()
    peer.shake()
    data = peer.encrypt(b"last words")
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.unwrap()
    peer.wire.coming = [data + peer._out.read()]
    assert peer.channel.recv_into(VIEW) == len(b"last words")
    assert peer.channel.recv_into(VIEW) == 0
    assert peer.channel.recv_into(VIEW) == 0


def test_the_end_of_the_stream_between_records_is_the_end() -> None:
    peer = Peer()
    peer.shake()
    peer.wire.coming, peer.wire.has_ended = [peer.encrypt(b"data")], True
    assert peer.channel.recv_into(VIEW) == 4
    assert peer.channel.recv_into(VIEW) == 0


def test_the_end_of_the_stream_inside_a_record_is_an_error() -> None:
    for cut in (1, 4, 5, 6, -1):
        peer = _shaken()
        peer.wire.coming, peer.wire.has_ended = [peer.encrypt(b"data")[:cut]], True
        with pytest.raises(BlockingIOError):
            peer.channel.recv_into(VIEW)
        with pytest.raises(ConnectionResetError, match="inside a TLS record"):
            peer.channel.recv_into(VIEW)


def _shaken() -> Peer:
    peer = Peer()
    peer.shake()
    return peer


def test_closing_says_so_to_the_peer() -> None:
    peer = _shaken()
    peer.channel.half_close(VIEW)
    peer.channel.close()
    assert peer.said() == b""
    assert peer.tls.read(10) == b""  # close_notify; else it would want to read


# -- cheats


def test_damaged_records_end_the_connection() -> None:
    peer = _shaken()
    data = bytearray(peer.encrypt(b"data"))
    data[-1] ^= 1
    peer.wire.coming = [bytes(data)]
    with pytest.raises(ssl.SSLError):
        peer.channel.recv_into(VIEW)
    with pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC"):
        peer.said()  # the alert


@pytest.mark.parametrize(
    "hello", [b"\x00\x00\x00\x14" + bytes(20), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(100)]
)
def test_what_is_no_hello(hello: bytes) -> None:
    peer = Peer()
    peer.wire.coming = [hello]
    with pytest.raises(ssl.SSLError):
        peer.channel.handshake()
    assert peer.channel.first_bytes == hello[:8]


def test_a_handshake_has_a_bound() -> None:
    peer = Peer()
    hello = b"\x16\x03\x01\x40\x00" + b"\x01\x01\xff\x00" + b"\x03\x03" + bytes(16378)
    with pytest.raises((ssl.SSLError, ConnectionAbortedError)):
        for _ in range(MAX_HANDSHAKE_BYTES // len(hello) + 2):
            peer.wire.coming = [hello]
            peer.channel.handshake()


def test_records_without_data_are_bounded(tmp_path: Path) -> None:
    for message in (KEY_UPDATE_REQUESTED, b"\x18\x00\x00\x01\x00"):
        peer = Peer(key_log=tmp_path / "log")
        peer.shake()
        writer = RecordWriter(client_secret(tmp_path / "log"))
        for _ in range(3 * MAX_EMPTY_RECORDS):  # beside data
            peer.wire.coming = [writer.key_update(message) + writer.record(APPLICATION_DATA, b"abc")]
            assert read_all(peer) == b"abc"
        peer.wire.coming = [writer.key_update(message) for _ in range(MAX_EMPTY_RECORDS)]
        assert read_all(peer) == b""
        peer.wire.coming = [writer.key_update(message)]
        with pytest.raises(ConnectionAbortedError, match="without data"):
            read_all(peer)


def test_key_updates_in_one_piece_with_a_little_data_are_counted(tmp_path: Path) -> None:
    peer = Peer(key_log=tmp_path / "log")
    peer.shake()
    writer = RecordWriter(client_secret(tmp_path / "log"))
    peer.wire.coming = [b"".join(writer.key_update() for _ in range(1000)) + writer.record(APPLICATION_DATA, b"abc")]
    with pytest.raises(ConnectionAbortedError, match="without data"):
        read_all(peer)


def test_answers_that_the_peer_does_not_take_are_bounded(tmp_path: Path) -> None:
    peer = Peer(key_log=tmp_path / "log")
    peer.shake()
    writer = RecordWriter(client_secret(tmp_path / "log"))
    peer.wire.room = 0
    with pytest.raises(ConnectionAbortedError, match="does not take"):
        for _ in range(10_000):
            peer.wire.coming = [writer.key_update(KEY_UPDATE_REQUESTED) + writer.record(APPLICATION_DATA, b"abc")]
            read_all(peer)


def test_clear_text_does_not_get_to_the_socket() -> None:
    peer = _shaken()
    peer.channel._outgoing.write(b"\0\0\0\x05hello")  # as if OpenSSL had given it out
    with pytest.raises(AssertionError, match="clear text"):
        peer.channel._send_control()
    with pytest.raises(AssertionError, match="descriptor"):
        peer.channel.duplicate()
    assert not hasattr(peer.channel, "fileno")
    assert peer.wire.gone == b""


@given(st.lists(st.integers(0, 300), max_size=8), st.data())
def test_records_are_counted_at_every_split(sizes: list[int], data: Any) -> None:
    stream = b"".join(b"\x17\x03\x03" + size.to_bytes(2, "big") + bytes(size) for size in sizes)
    counter, counted, position = RecordCounter(), 0, 0
    while position < len(stream):
        size = data.draw(st.integers(1, max(1, len(stream) // 3)))
        counted += counter.count(memoryview(stream)[position : position + size])
        position += size
    assert counted == len(sizes) and counter.is_between
    if sizes and sizes[0]:
        counter.count(memoryview(stream)[:3])
        assert not counter.is_between
