"""File regions between memory, at every size and at every speed of the peer; the disk never holds up the loop."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import BinaryIO

import pytest

from klamm.broker.network import file_pieces
from klamm.broker.network.channel import PlainChannel
from klamm.broker.network.file_pieces import (
    COPY_BYTES,
    THREAD_BYTES,
    WINDOW_BYTES,
    FilePiece,
    FileThreads,
    Part,
)
from klamm.broker.network.response import Response
from klamm.broker.network.send_queue import FIRST_BYTES, TURN_BYTES, SendQueue
from klamm.protocol.regions import FileRegion
from tests.broker.network.harness import Client, Node, node, run, spin, until

CONTENT = bytes(range(256)) * 12_000 + b"tail"


@pytest.fixture
def log() -> Iterator[BinaryIO]:
    with tempfile.TemporaryFile() as file:
        file.write(CONTENT)
        file.flush()
        yield file


async def fetch_all(one: Node, sizes: Sequence[int]) -> None:
    client = await one.connect()
    requests = [request for size in sizes for request in (b"region 7 %d" % size, b"echo between %d" % size)]
    client.send(*requests)
    for size in sizes:
        assert await client.receive() == b"<" + CONTENT[7 : 7 + size] + b">"
        assert await client.receive() == b"echo between %d" % size


SIZES = [0, 1, 100, COPY_BYTES, COPY_BYTES + 1, 100_000, WINDOW_BYTES, WINDOW_BYTES + 1, 3_000_000]


def test_regions_and_memory_leave_in_order(log: BinaryIO) -> None:
    async def main() -> None:
        async with node() as one:
            one.file = log
            await fetch_all(one, SIZES * 3)

    run(main())


def test_large_pieces_need_no_thread_when_nothing_else_is_sent(log: BinaryIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_pieces, "THREAD_TURNS", 8)

    async def main() -> None:
        async with node() as one:
            one.file = log
            threads = one.network.file_threads
            given: list[int] = []
            send = threads.send
            threads.send = lambda *what: (given.append(1), send(*what))  # type: ignore[method-assign]
            client, other = await one.connect(), await one.connect()

            async def by_thread(asks: Client) -> bool:
                before = len(given)
                assert await asks.ask(b"region 7 400000") == b"<" + CONTENT[7:400_007] + b">"
                return len(given) > before

            async def later() -> None:
                other.send(b"wait later")
                await until(lambda: "later" in one.waiting)
                one.answer("later")
                await other.receive()

            company: list[Callable[[], Awaitable[object]]] = [
                lambda: other.ask(b"echo small"),
                lambda: other.ask(b"region 7 1000"),
                lambda: other.ask(b"region 7 200000"),
                later,
            ]
            for comes in (None, *company):
                if comes is not None:
                    await comes()
                kinds = [await by_thread(asks) for asks in [client, other] * 5]
                assert kinds == [True] * 8 + [False] * 2
            client.send(b"region 7 3000000")
            assert await client.receive() == b"<" + CONTENT[7:3_000_007] + b">"
            assert not await by_thread(client)

    run(main())


def test_a_turn_is_bounded_without_threads_too(log: BinaryIO, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []

    def all_taken(out: int, file: int, position: int, size: int) -> int:
        sent.append(size)
        return size

    async def main() -> None:
        loop = asyncio.get_running_loop()
        threads = FileThreads(loop)
        here, there = socket.socketpair()
        send_queue = SendQueue(
            loop, PlainChannel(here), threads, memoryview(bytearray(10)), lambda: None, lambda _: None
        )
        while threads.take_thread_turn():
            pass
        monkeypatch.setattr(os, "sendfile", all_taken)
        regions = [(4, FileRegion(log, 0, 700_000))] * 3
        with here, there:
            send_queue.send([Response(b"head", regions)])
            assert sent == [700_000, TURN_BYTES - 700_000 - 4]  # and the head
            assert send_queue.unsent_bytes == 3 * 700_000 + 4 - TURN_BYTES
            await until(lambda: not send_queue.unsent_bytes)
            sent.clear()
            send_queue.send([Response(b"head", [(4, FileRegion(log, 0, WINDOW_BYTES))])])
            assert sent == [WINDOW_BYTES] and not send_queue.unsent_bytes  # what consumers ask for is one turn
            send_queue.close()
        assert not threads.busy

    run(main())


def test_a_slow_reader_of_regions_gets_all_and_costs_no_memory(log: BinaryIO) -> None:
    async def main() -> None:
        async with node() as one:
            one.file = log
            client = await one.connect()
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            client.send(*[b"region 0 3000000"] * 30)
            await spin(300)
            assert len(one.seen) < 30  # muted
            client.writer.transport.resume_reading()  # type: ignore[attr-defined]
            for _ in range(30):
                assert await client.receive() == b"<" + CONTENT[:3_000_000] + b">"

    run(main())


def test_pages_that_are_not_in_memory_are_read_in_a_thread(log: BinaryIO, monkeypatch: pytest.MonkeyPatch) -> None:
    def cold(descriptor: int, buffers: Sequence[bytearray], position: int, flags: int = 0) -> int:
        if flags:
            raise BlockingIOError(errno.EAGAIN, "not in the page cache")
        return preadv(descriptor, buffers, position)

    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", cold)

    async def main() -> None:
        async with node() as one:
            one.file = log
            await fetch_all(one, SIZES)
            windows = sum(-(-size // WINDOW_BYTES) for size in SIZES)
            assert one.network.page_cache_misses == windows

    run(main())


def test_a_client_that_leaves_during_a_read_ahead_leaves_nothing(
    log: BinaryIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_pieces, "is_cached", lambda *_: False)

    async def main() -> None:
        async with node() as one:
            one.file = log
            client = await one.connect()
            client.send(b"region 0 3000000")
            await one.until_seen(1)
            one.connections[0].close("test")
            await spin()
            assert one.network.connections == set()

    run(main())


def test_a_filesystem_without_nowait_counts_as_cached(log: BinaryIO, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(descriptor: int, buffers: Sequence[bytearray], position: int, flags: int = 0) -> int:
        if flags:
            raise OSError(errno.EOPNOTSUPP, "not supported")
        return preadv(descriptor, buffers, position)

    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", unsupported)

    async def main() -> None:
        async with node() as one:
            one.file = log
            await fetch_all(one, SIZES)
            assert one.network.page_cache_misses == 0

    run(main())


def test_hot_positions_are_not_probed(log: BinaryIO, monkeypatch: pytest.MonkeyPatch) -> None:
    class HotFile:
        hot_position = 0

        def fileno(self) -> int:
            return log.fileno()

    def unprobed(descriptor: int, buffers: Sequence[bytearray], position: int) -> int:
        return preadv(descriptor, buffers, position)

    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", unprobed)

    async def main() -> None:
        async with node() as one:
            one.file = HotFile()  # type: ignore[assignment]
            await fetch_all(one, SIZES)

    run(main())


@pytest.mark.parametrize("size", [100, 50_000])
def test_a_file_that_is_too_short_closes_the_connection(
    log: BinaryIO, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with node() as one:
            one.file = log
            client, other = await one.connect(), await one.connect()
            client.send(b"region %d %d" % (len(CONTENT) - 10, size))
            while not await client.at_end():
                pass
            assert one.network.counters.closed == {"file": 1}
            assert await other.ask(b"echo") == b"echo"

    run(main())
    assert "cannot be completed" in caplog.text


def test_probe_is_cheap(log: BinaryIO, monkeypatch: pytest.MonkeyPatch) -> None:
    def counted(descriptor: int, buffers: Sequence[bytearray], position: int, flags: int) -> int:
        calls.append(position)
        return preadv(descriptor, buffers, position, flags)

    calls: list[int] = []
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", counted)
    assert file_pieces.is_cached(log.fileno(), 0, WINDOW_BYTES)
    assert len(calls) <= WINDOW_BYTES // file_pieces.PROBE_STRIDE + 1


def test_a_thread_sends_what_is_large_and_gives_up_on_a_peer_that_does_not_read(
    log: BinaryIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, int]] = []

    def noted(channel: socket.socket, parts: Sequence[Part]) -> tuple[int, int]:
        size = sum(part.size if isinstance(part, FilePiece) else len(part) for part in parts)
        result = send(channel, parts)
        sent.append((size, result[0]))
        return result

    send = file_pieces._send
    monkeypatch.setattr(file_pieces, "_send", noted)

    async def main() -> None:
        async with node() as one:
            one.file = log
            client = await one.connect()
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            client.send(*[b"region 0 3000000"] * 4)
            await until(lambda: bool(sent) and sent[-1][1] < sent[-1][0])
            client.writer.transport.resume_reading()  # type: ignore[attr-defined]
            for _ in range(4):
                assert await client.receive() == b"<" + CONTENT[:3_000_000] + b">"
            client.send(b"region 0 %d" % (THREAD_BYTES - 1))
            assert len(await client.receive()) == THREAD_BYTES + 1

    run(main())
    assert 1 < len(sent) <= 4  # the loop has the rest
    assert 3_000_000 - FIRST_BYTES < sent[0][0] <= 3_000_000
    assert any(count < size for size, count in sent)


def test_a_client_that_leaves_while_a_thread_sends_leaves_nothing(
    log: BinaryIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_pieces, "PEER_WAIT_MS", 10_000)

    async def main() -> None:
        async with node() as one:
            one.file = log
            client = await one.connect()
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            client.send(*[b"region 0 3000000"] * 4)
            await one.until_seen(1)
            await spin()
            client.writer.transport.abort()
            await until(lambda: not one.network.connections)

    run(main())


def test_without_a_thread_a_large_piece_fails_and_a_later_one_does_not(
    log: BinaryIO, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        async with node() as one:
            one.file = log
            client, other = await one.connect(), await one.connect()
            with monkeypatch.context() as patched:
                patched.setattr(threading.Thread, "start", refused)
                client.send(b"region 0 3000000")
                while not await client.at_end():
                    pass
            assert await other.ask(b"region 0 3000000") == b"<" + CONTENT[:3_000_000] + b">"

    run(main())
    assert "can't start new thread" in caplog.text
