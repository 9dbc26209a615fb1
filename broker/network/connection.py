"""One client connection: reads frames, dispatches them in order, sends the responses in the same order.

The connection owns its channel, plain or TLS; `receiver` watches it, `send_queue` sends. A readable event reads once,
dispatches the complete frames, and sends their responses with one system call. Short responses are sent when all
connections that were readable together have been served, since each send may wake a peer; a connection that is alone
sends at once. A turn is bounded (`TURN_FRAMES`, `TURN_BYTES`): the rest waits for the turns of other connections.

Order. A pending response says which requests may pass it (Produce after Produce), `max_inflight` of them at most; any
other request stays in the buffer until all earlier responses are known. Responses leave in the order of requests.

Back-pressure is muting: while any bit of `_muted` is set, nothing is read from the socket. The reader is removed only
when bytes arrive meanwhile, so a client that waits for its response costs no system call. A client over a quota is
throttled: for a while nothing is read or dispatched, and the connection does not count as idle.

Ends. After a half close, malformed input or shutdown, every accepted request gets its response; then the socket is
closed. If the peer has closed, a response is not awaited for longer than a frame may take. Errors of the socket and
deadlines close it at once. Time comes from the sweep of the `Network`; there are no timers per request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from klamm.broker.network.channel import Channel
from klamm.broker.network.close_reason import CLOSED_BY_PEER, HALF_FRAME, CloseReason
from klamm.broker.network.deadlines import Deadlines
from klamm.broker.network.file_pieces import ShortFile
from klamm.broker.network.receiver import Receiver
from klamm.broker.network.response import CloseConnection, Dispatcher, RequestMemo, Response
from klamm.broker.network.response_queue import ResponseQueue
from klamm.broker.network.send_queue import SendQueue
from klamm.broker.network.warnings import describe_junk
from klamm.broker.stop_signal import StopRequested
from klamm.protocol.framing import FrameBuffer, FrameError

if TYPE_CHECKING:
    from klamm.broker.network.listener import Listener
    from klamm.broker.network.network import Network

logger = logging.getLogger(__name__)

TURN_FRAMES = 32
TURN_BYTES = 256 * 1024
SEND_NOW_BYTES = 128 * 1024  # a turn with more bytes of responses sends at once, without waiting for other connections

# The reasons for muting. Those in NOT_SERVING also keep buffered frames from being dispatched.
WAITING = 1  # for responses that must be sent first
UNSENT = 2  # the peer does not read its responses
TURN_OVER = 4  # the rest of the buffer is scheduled
NO_BUDGET = 8  # queued.max.request.bytes
ENDING = 16  # no more requests are accepted
THROTTLED = 32  # over a quota
NOT_SERVING = WAITING | UNSENT | TURN_OVER | THROTTLED


class Connection:
    """See the module docstring. `principal` to `memo` are kept for the layers above."""

    __slots__ = (
        "__weakref__", "_active", "_channel", "_dispatch", "_end", "_frames", "_listener", "_local_address", "_muted",
        "_network", "_pending", "_ready", "_receive", "_receiver", "_send_queue", "_share",
        "_throttle", "_waits", "client_software", "closed", "deadlines", "is_token_login", "listener", "memo", "peer",
        "principal",
    )  # fmt: skip

    def __init__(self, channel: Channel, peer: tuple[str, int], network: Network, listener: Listener) -> None:
        self.peer = peer
        self.listener = listener.name
        self.principal = "User:ANONYMOUS"
        self.is_token_login = False
        self.client_software: tuple[str, str] = ("", "")
        self.memo: RequestMemo | None = None
        self.closed = False
        self._channel = channel
        self._network = network
        self._listener = listener
        self._dispatch = network.dispatcher.__call__  # looked up once
        self._receive = channel.recv_into
        self._frames = FrameBuffer(network.scratch, network.limits.max_request_bytes)
        self._send_queue = SendQueue(
            network.loop, channel, network.file_threads, network.copies, self._on_sent, self._on_send_failed
        )
        self._pending = ResponseQueue(self._on_answer)
        self._share = network.budget.share(self._on_budget) if network.budget is not None else None
        self._muted = 0
        self._throttle: asyncio.TimerHandle | None = None
        self._end: CloseReason | None = None
        self._waits: set[asyncio.Future[Any]] = set()
        self._local_address: tuple[str, int] | None = None
        self._active = True
        self.deadlines = Deadlines(network.now)
        self._ready: list[Response] = []
        self._receiver = Receiver(network.loop, channel, self._on_readable)
        self._receiver.resume()

    # -- for the layers above

    @property
    def local_address(self) -> tuple[str, int]:
        """The address that the client connected to, as far as this machine knows."""
        if self._local_address is None:
            self._local_address = self._channel.local_address()
        return self._local_address

    def keep_frame(self) -> bool:
        """Return whether views of the frame outlive the dispatcher's call. If not, copy needed parts: it is small."""
        return self._frames.keep()

    @contextmanager
    def cancelled_on_close(self, wait: asyncio.Future[Any]) -> Iterator[None]:
        """Cancel `wait`, which a task awaits for this connection, if the connection closes inside this context."""
        if self.closed:
            wait.cancel()
        self._waits.add(wait)
        try:
            yield
        finally:
            self._waits.discard(wait)

    def close(self, reason: str, kind: str = "server") -> None:
        """Close now, dropping unanswered requests and unsent bytes. `kind` is the label in the metrics."""
        if self.closed:
            return
        self.closed = True
        logger.debug("%s: closed, %s", self, reason)
        self._muted |= ENDING
        self._receiver.close()
        self._send_queue.close()
        self._frames.discard()
        self._pending.close()
        self._ready = []
        if self._share is not None:
            self._share.give_back()
        if self._throttle is not None:
            self._throttle.cancel()
        self._channel.close()
        self._listener.forget(self, kind)
        for wait in list(self._waits):
            wait.cancel()

    def hand_to(self, dispatch: Dispatcher, max_frame_bytes: int) -> None:
        """Dispatch later frames with `dispatch`, and close the connection at a frame larger than `max_frame_bytes`."""
        self._dispatch = dispatch
        self._frames.max_frame_bytes = max_frame_bytes

    def throttle(self, delay_ms: int) -> None:
        """Read and dispatch nothing for `delay_ms`. Responses are still sent."""
        if self._muted & ENDING:
            return
        loop, end = self._network.loop, delay_ms / 1000
        if self._throttle is not None:
            end = max(end, self._throttle.when() - loop.time())
            self._throttle.cancel()
        self._muted |= THROTTLED
        self._throttle = loop.call_later(end, self._end_throttle)

    def _end_throttle(self) -> None:
        if self._throttle is not None:
            self._throttle.cancel()
            self._throttle = None
            self._active = True
            self._muted &= ~THROTTLED
            self._go_on()

    def drain(self) -> None:
        """Answer the requests that were read, send the responses, then close."""
        self._end_with(CloseReason("drain", "shutting down"))

    def __repr__(self) -> str:
        return f"{self._listener.name} {self.peer[0]}:{self.peer[1]}"

    # -- reading

    def _on_readable(self) -> None:
        if self._muted & UNSENT:
            self._network.file_threads.settle()  # a thread may have sent everything without the loop's notice
        frames = self._frames
        try:
            if self._muted:
                if self._muted == TURN_OVER or self.closed:
                    return
                if self._receiver.leave_unread() and self._muted & THROTTLED:
                    self._end_with(CloseReason("eof", "closed by the peer"))
                return
            size = self._receive(frames.writable())
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(f"read: {error}", "error")
            return
        self._active = True
        if not size:
            self._on_end_of_stream()
            return
        self._serve(frames.received_frame(size))

    def _serve(self, frame: memoryview | None = None) -> None:
        """Run one turn: dispatch complete frames, send the ready responses. `frame`, if given, is all that was read."""
        frames = self._frames
        is_all = frame is not None
        pending = self._pending
        responses = pending.responses
        ready = self._ready
        has_waited = bool(ready)
        count = TURN_FRAMES
        left_bytes = TURN_BYTES
        try:
            while frame is not None or (frame := frames.next_frame()) is not None:
                if responses and not pending.lets_pass(frame, self._network.limits.max_inflight):
                    frames.push_back(frame)
                    is_all = False
                    self._muted |= WAITING
                    break
                size = len(frame)
                answer = self._dispatch(self, frame)
                if isinstance(answer, Response):
                    if responses:
                        responses.append((answer, 0))
                    else:
                        self._ready.append(answer)
                        left_bytes -= len(answer.head)
                        if answer.regions:
                            left_bytes -= sum([region.size for _, region in answer.regions])
                elif answer is not None:
                    pending.put(answer, size)
                    if not pending.is_open(self._network.limits.max_inflight):
                        self._muted |= WAITING
                        break
                left_bytes -= size
                if is_all:
                    break
                count -= 1
                if count <= 0 or left_bytes <= 0:
                    if frames.has_frame():
                        self._muted |= TURN_OVER
                        self._network.loop.call_soon(self._next_turn)
                    break
                frame = None
        except FrameError as error:
            self.refuse(CloseReason("bad_frame", f"{error}: {describe_junk(error.prefix)}"))
        except CloseConnection as error:
            self.refuse(CloseReason("refused", error.reason))
        except (Exception, StopRequested):
            logger.exception("%s: the dispatcher failed", self)
            frames.discard()
            self._mark_ending(CloseReason("bug", "internal error"))
        if not is_all:
            frames.settle()
        if self._ready:
            if self._muted & ENDING or left_bytes < TURN_BYTES - SEND_NOW_BYTES:
                self.send_ready()
            elif not has_waited or self._ready is not ready:
                self._network.send_soon(self)  # may send at once
        if self._share is not None:
            self._charge()
        if self._muted & ENDING:
            self._close_if_done()

    def _next_turn(self) -> None:
        self._muted &= ~TURN_OVER
        self._go_on()

    def _go_on(self) -> None:
        """Serve the buffer and read again, after a bit of `_muted` was cleared."""
        if self.closed:
            return
        if not self._muted & NOT_SERVING and self._frames.has_frame():
            self._serve()
        elif self._muted & ENDING:
            self._close_if_done()
        if not self._muted and not self._receiver.is_watching:
            self._receiver.resume()

    def _on_answer(self, _: asyncio.Future[Response | None]) -> None:
        """Send every response that has no unanswered request before it, after one of them has become known."""
        if self.closed:  # by the dispatcher, which then returned a future
            self._pending.abandon()
            return
        self._active = True
        responses, failure = self._pending.take_ready()
        if failure is not None:
            self.refuse(failure)
        self._ready += responses
        self.send_ready()
        self._charge()
        if self._pending.is_open(self._network.limits.max_inflight):
            self._muted &= ~WAITING
            self._go_on()

    # -- sending

    def send_ready(self) -> None:
        """Send the ready responses."""
        ready = self._ready
        if not ready:
            return
        self._ready = []
        if self.closed:
            return
        send_queue = self._send_queue
        try:
            send_queue.send(ready)
        except (OSError, ShortFile) as error:
            self._on_send_failed(error)
            return
        if send_queue.unsent_bytes > self._network.limits.unsent_high_water_bytes:
            self._muted |= UNSENT
        if self._muted & ENDING:
            self._close_if_done()

    def _on_sent(self) -> None:
        self._active = True
        if self._muted & UNSENT and self._send_queue.unsent_bytes <= self._network.limits.unsent_high_water_bytes // 2:
            self._muted &= ~UNSENT
            self._go_on()
        elif self._muted & ENDING:
            self._close_if_done()

    def _on_send_failed(self, error: BaseException) -> None:
        if isinstance(error, (ConnectionError, TimeoutError)):
            self.close(f"write: {error}", "error")
            return
        logger.error("%s: a response cannot be completed, the connection is closed: %s", self, error)
        self.close(str(error), "file")

    # -- limits and ends

    def _charge(self) -> None:
        frames, share = self._frames, self._share
        if share is not None:
            held = max(frames.needed_bytes, frames.buffered_bytes) + self._pending.bytes
            if not share.hold(held, is_refused=bool(self._muted & NO_BUDGET)):
                self._muted |= NO_BUDGET

    def _on_budget(self) -> None:
        if self.closed:
            return
        self._muted &= ~NO_BUDGET
        self._charge()
        self._go_on()

    def sweep(self, now: float, idle_s: float, frame_s: float) -> None:
        """Enforce the deadlines, and free memory that a quiet connection does not need. Called from time to time."""
        frames, deadlines = self._frames, self.deadlines
        overdue = None
        if self._active:
            self._active = False
            deadlines.note_active(now)
        else:
            frames.trim()
            if not self._pending.responses and not self._muted & THROTTLED:
                idle_s = self._listener.idle_limit_s(idle_s)
                overdue = deadlines.check_quiet(now, idle_s, frame_s, is_ending=bool(self._muted & ENDING))
            elif deadlines.is_quiet(now, frame_s) and self._receiver.peer_has_gone():
                overdue = CloseReason("eof", "the peer has closed")
        if overdue is None:
            size = 0 if self._muted else frames.buffered_bytes
            overdue = deadlines.check_frame(now, frame_s, frames.frames_seen, size)
            if overdue is not None:
                self._network.warn(overdue.kind, "%s: closed: %s", self, overdue.text)
        if overdue is not None:
            self.close(overdue.text, overdue.kind)

    def refuse(self, reason: CloseReason) -> None:
        """Warn, drop unread input, and close when every earlier request has its response."""
        self._network.warn(reason.kind, "%s: closed: %s", self, reason.text)
        self._frames.discard()
        self._mark_ending(reason)

    def _on_end_of_stream(self) -> None:
        is_half = self._frames.buffered_bytes and not self._frames.has_frame()
        self._end_with(HALF_FRAME if is_half else CLOSED_BY_PEER)

    def _end_with(self, reason: CloseReason) -> None:
        self._mark_ending(reason)
        self._end_throttle()
        self._close_if_done()

    def _mark_ending(self, reason: CloseReason) -> None:
        self._muted |= ENDING
        self._end = self._end or reason
        self._receiver.pause()

    def _close_if_done(self) -> None:
        """Close when every accepted request has been answered and its response sent."""
        is_busy = self._pending.responses or self._send_queue.unsent_bytes or self._muted & TURN_OVER or self._ready
        if self.closed or is_busy or self._frames.has_frame():
            return
        assert self._end is not None
        self._receiver.shut_down(self._network.scratch.view)
        self.close(self._end.text, self._end.kind)
