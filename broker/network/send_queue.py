"""The sending half of a connection: sends bytes and file pieces in order, with few system calls.

Data that do not fit into the socket stay queued until the socket is writable again (`add_writer`). File pieces are sent
with `sendfile`. A thread sends a large piece (the loop sends its first bytes if no thread is busy), unless only large
pieces are sent on this node. The loop sends other pieces, at most `TURN_BYTES` a turn so that other connections get
their turns. A small piece is copied after the bytes before it, which is faster. Nothing here blocks: see `file_pieces`.
`send` raises errors of the socket and short files; later ones are passed to `on_failed`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from klamm.broker.network.channel import Channel
from klamm.broker.network.file_pieces import (
    COPY_BYTES,
    MSG_MORE,
    WINDOW_BYTES,
    FilePiece,
    FileThreads,
    Memory,
    Part,
    ShortFile,
)
from klamm.broker.network.response import Response

TURN_BYTES = WINDOW_BYTES + 64 * 1024  # a window, and the heads around it
FIRST_BYTES = 128 * 1024  # of a piece that a thread sends
JOIN_PARTS = 64  # the most parts of memory joined into one send
JOIN_BYTES = 256 * 1024


def _ignore(*_: object) -> None:
    """Do nothing: the connection this result was for has closed."""


class SendQueue:
    """The unsent data of a connection. `unsent_bytes` includes regions. `copies` is a buffer for one response, shared
    by all connections.
    """

    __slots__ = (
        "_channel",
        "_copies",
        "_failed",
        "_loop",
        "_note_other_traffic",
        "_parts",
        "_progressed",
        "_send",
        "_threaded",
        "_threads",
        "_writing",
        "unsent_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        channel: Channel,
        threads: FileThreads,
        copies: memoryview,
        on_progress: Callable[[], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        self._loop = loop
        self._channel = channel
        self._send = channel.send  # looked up once
        self._threads = threads
        self._note_other_traffic = threads.note_other_traffic  # looked up once
        self._copies = copies
        self._progressed = on_progress
        self._failed = on_failed
        self._parts: deque[Part] = deque()
        self._writing = False  # add_writer is active
        self._threaded = False  # a thread works on the head of the queue
        self.unsent_bytes = 0

    def send(self, responses: list[Response]) -> None:
        """Send the responses, in order, after the queued data. Raises OSError, ShortFile."""
        data: Memory | None = None
        if len(responses) == 1:
            data = self._copied(responses[0]) if responses[0].regions else responses[0].head
        if data is None:
            parts: list[Part] = []
            for response in responses:
                if response.regions:
                    _splice(parts, response)
                else:
                    parts.append(response.head)
            memory = [part for part in parts if not isinstance(part, FilePiece)]
            if len(memory) < len(parts) or len(parts) > JOIN_PARTS:
                self._queue(parts)
                return
            data = b"".join(memory)
        self._note_other_traffic()
        if self._parts:
            self._parts.append(data)
            self.unsent_bytes += len(data)
            return
        try:
            sent = self._send(data)
        except BlockingIOError:
            sent = 0
        if sent != len(data):
            rest = memoryview(data)[sent:]
            self._parts.append(rest.tobytes() if rest.obj is self._copies.obj else rest)
            self.unsent_bytes += len(data) - sent
            self._wait_writable()

    def _copied(self, response: Response) -> memoryview | None:
        """Return the response in the shared buffer, valid until the next one, if its only region is small and in
        memory; else None.
        """
        regions, head, copies = response.regions, response.head, self._copies
        assert regions is not None
        at, region = regions[0]
        end = at + region.size
        size = len(head) + region.size
        if len(regions) > 1 or self._parts or not region.size or region.size > COPY_BYTES or size > len(copies):
            return None
        if not FilePiece(region).copy_into(copies[at:end]):
            return None
        copies[:at] = head[:at]
        copies[end:size] = head[at:]
        return copies[:size]

    def close(self) -> None:
        """Drop unsent data, and forget the owner, which closes the socket (a cycle with it would wait for a
        collection).
        """
        self._stop_waiting()
        self._parts.clear()
        self.unsent_bytes = 0
        self._progressed = self._failed = _ignore

    def _queue(self, parts: list[Part]) -> None:
        idle = not self._parts
        self._parts.extend(parts)
        self.unsent_bytes += sum([part.size if isinstance(part, FilePiece) else len(part) for part in parts])
        if idle:
            self._push()

    def _on_writable(self) -> None:
        self._go_on(self.unsent_bytes)

    def _go_on(self, before: int) -> None:
        """Push, and report progress if fewer bytes are unsent than `before`."""
        try:
            self._push()
        except (OSError, ShortFile) as error:
            self._failed(error)
            return
        if self.unsent_bytes != before:
            self._progressed()

    def _push(self) -> None:
        """Send from the head of the queue until it is empty, the socket is full, or the turn is over."""
        parts = self._parts
        turn = TURN_BYTES
        try:
            while parts and turn > 0:
                head = parts[0]
                if not isinstance(head, FilePiece):
                    sent = self._push_memory()
                elif head.by_thread and self._channel.sends_by_thread and self._threads.take_thread_turn():
                    if not self._threads.busy and head.is_warm(FIRST_BYTES):  # while a thread wakes up
                        sent = self._channel.send_file(head.file, head.position, FIRST_BYTES)
                        head.advance(sent)
                        self.unsent_bytes -= sent
                    self._leave_to_thread()
                    self._threads.send(self._channel.duplicate, tuple(parts), self._sent_by_thread)
                    return
                elif ready := head.warm_bytes():
                    sent = self._channel.send_file(head.file, head.position, min(ready, turn))
                    if not sent:
                        raise ShortFile(f"file ends at or before position {head.position}")
                    head.advance(sent)
                    if not head.by_thread:
                        self._note_other_traffic()
                    if not head.size:
                        parts.popleft()
                else:
                    self._leave_to_thread()
                    self._threads.read(head, self._read_by_thread)
                    return
                turn -= sent
                self.unsent_bytes -= sent
        except BlockingIOError:
            pass
        if parts:
            self._wait_writable()
        else:
            self._stop_waiting()

    def _push_memory(self) -> int:
        """Send the memory parts at the head of the queue together; unsent bytes stay there as one part."""
        parts = self._parts
        memory: list[Memory] = []
        size = 0
        while parts and size < JOIN_BYTES and len(memory) < JOIN_PARTS:
            part = parts[0]
            if isinstance(part, FilePiece):
                break
            parts.popleft()
            memory.append(part)
            size += len(part)
        data = memory[0] if len(memory) == 1 else b"".join(memory)
        sent = 0
        try:
            sent = self._send(data, MSG_MORE if parts else 0)
        finally:
            if sent != size:
                parts.appendleft(memoryview(data)[sent:])
        return sent

    def _leave_to_thread(self) -> None:
        self._stop_waiting()
        self._threaded = True

    def _takes_over(self, error: BaseException | None) -> bool:
        """Take the head of the queue back from a thread. Return whether there is something to continue with."""
        self._threaded = False
        if not self._parts:
            return False  # closed meanwhile
        if error is not None:
            self._failed(error)
        return error is None

    def _sent_by_thread(self, sent: int, error: BaseException | None) -> None:
        """Continue after a thread has sent `sent` bytes from the head of the queue. The rest waits for the peer."""
        if not self._takes_over(error):
            return
        before = self.unsent_bytes
        self.unsent_bytes -= sent
        self._advance(sent)
        if self._parts and isinstance(head := self._parts[0], FilePiece):
            head.by_thread = False
        self._go_on(before)

    def _advance(self, sent: int) -> None:
        parts = self._parts
        while parts:
            head = parts[0]
            size = head.size if isinstance(head, FilePiece) else len(head)
            if sent < size:
                if isinstance(head, FilePiece):
                    head.advance(sent)
                else:
                    parts[0] = memoryview(head)[sent:]
                return
            sent -= size
            parts.popleft()

    def _read_by_thread(self, error: BaseException | None) -> None:
        """Continue after a thread has read the next window of the piece at the head."""
        if self._takes_over(error):
            self._go_on(self.unsent_bytes)

    def _wait_writable(self) -> None:
        if not self._writing and not self._threaded:
            self._writing = True
            self._channel.add_writer(self._loop, self._on_writable)

    def _stop_waiting(self) -> None:
        if self._writing:
            self._writing = False
            self._channel.remove_writer(self._loop)


def _splice(parts: list[Part], response: Response) -> None:
    """Append the parts of a response with regions; small regions that are in memory become bytes."""
    head = memoryview(response.head)
    position = 0
    assert response.regions is not None
    for at, region in response.regions:
        parts.append(head[position:at])
        position = at
        if region.size:
            piece = FilePiece(region)
            data = bytearray(region.size if region.size <= COPY_BYTES else 0)
            parts.append(data if data and piece.copy_into(data) else piece)
    if position < len(head):
        parts.append(head[position:])
