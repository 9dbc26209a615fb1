"""A connection to a listener with TLS until its handshake is over: then it becomes a `Connection`, or is closed.

A handshake costs up to a millisecond of computing, so only so many steps are taken in each turn of the loop
(`klamm.handshakes.per.turn`), whoever waits. It is a login: it has the time that a login has, and one that fails keeps
its connection for `connection.failed.authentication.delay.ms`, so that nobody tries as fast as he can.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import TYPE_CHECKING, Final

from klamm.broker.network.tls_channel import TlsChannel, TlsScratch
from klamm.broker.network.warnings import describe_junk
from klamm.broker.security.tls.peer import Refused

if TYPE_CHECKING:
    import socket

    from klamm.broker.network.listener import Listener
    from klamm.broker.network.network import Network
    from klamm.broker.security.tls.endpoint import TlsEndpoint

HANDSHAKE_RECORD: Final = 22
FAILED: Final = "tls_failed"
_ADVICE: Final = (
    ("UNSUPPORTED_PROTOCOL", "the client has no protocol of ssl.enabled.protocols"),
    ("VERSION_TOO_LOW", "the client has no protocol of ssl.enabled.protocols"),
    ("NO_SHARED_CIPHER", "the client has no cipher suite that is allowed here"),
    ("NO_SUITABLE_SIGNATURE_ALGORITHM", "the client cannot verify a key of our kind"),
    ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "the client shows no certificate, and ssl.client.auth is required"),
    ("UNKNOWN_CA", "the client does not trust our certificate: its truststore needs the authority that signed it"),
    ("ALERT_CERTIFICATE_UNKNOWN", "the client does not trust our certificate, or it is not for the name it dialled"),
    ("ALERT_BAD_CERTIFICATE", "the client refuses our certificate"),
    ("ALERT_CERTIFICATE_EXPIRED", "the client finds our certificate expired"),
)


class Handshakes:
    """The handshakes of a network."""

    def __init__(self, network: Network) -> None:
        self.scratch = TlsScratch()
        self._network = network
        self._open: set[TlsHandshake] = set()
        self._ready: deque[TlsHandshake] = deque()

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, connected: socket.socket, peer: tuple[str, int], listener: Listener, tls: TlsEndpoint) -> None:
        network = self._network
        channel = TlsChannel(connected, tls.context, self.scratch)
        handshake = TlsHandshake(channel, peer, network, listener, tls, self)
        self._open.add(handshake)
        network.counters.accepted += 1
        network.unauthenticated.add(handshake, network.clock.monotonic())
        handshake.listen()

    def put(self, handshake: TlsHandshake) -> None:
        """Let it take a step when it is its turn."""
        if not self._ready:
            self._network.loop.call_soon(self._take_turn)
        self._ready.append(handshake)

    def discard(self, handshake: TlsHandshake) -> None:
        self._open.discard(handshake)

    def close(self) -> None:
        for handshake in list(self._open):
            handshake.close("shutting down", "drain")

    def _take_turn(self) -> None:
        for _ in range(min(len(self._ready), self._network.limits.handshakes_per_turn)):
            self._ready.popleft().step()
        if self._ready:
            self._network.loop.call_soon(self._take_turn)


class TlsHandshake:
    """One handshake. Closed by a failure, by the deadline for logins, or by the end of the network."""

    __slots__ = ("_channel", "_delay", "_handshakes", "_is_writing", "_listener", "_network", "_tls", "closed", "peer")

    def __init__(
        self,
        channel: TlsChannel,
        peer: tuple[str, int],
        network: Network,
        listener: Listener,
        tls: TlsEndpoint,
        handshakes: Handshakes,
    ) -> None:
        self.peer = peer
        self.closed = False
        self._channel = channel
        self._network = network
        self._listener = listener
        self._tls = tls
        self._handshakes = handshakes
        self._delay: asyncio.TimerHandle | None = None
        self._is_writing = False

    def listen(self) -> None:
        self._channel.add_reader(self._network.loop, self._on_event)

    def _on_event(self) -> None:
        self._stop_watching()
        self._handshakes.put(self)

    def step(self) -> None:
        """Take a step with what has come."""
        if self.closed:
            return
        try:
            if self._channel.has_unsent:
                self._channel.flush()
            elif self._channel.handshake() and not self._channel.has_unsent:
                self._finish()
                return
        except BlockingIOError:
            pass
        except (OSError, Refused) as error:
            self._fail(error)
            return
        if self._channel.has_unsent:
            self._is_writing = True
            self._channel.add_writer(self._network.loop, self._on_event)
        else:
            self.listen()

    def _finish(self) -> None:
        principal = self._tls.principal(self._channel.tls)
        network = self._network
        self.closed = True
        self._handshakes.discard(self)
        network.counters.count_handshake(self._channel.tls)
        self._listener.connected(self._channel, self.peer, principal, self)

    def _fail(self, error: Exception) -> None:
        """Say why, and close after the delay."""
        network = self._network
        kind = f"{FAILED} {type(error).__name__} {getattr(error, 'reason', '')}"
        network.warn(kind, "%s: TLS handshake failed: %s", self, describe_failure(error, self._channel.first_bytes))
        if not network.unauthenticated.begin_delay(self.peer[0], network.clock.monotonic()):
            self.close("the handshake failed", FAILED)
            return
        delay_s = network.unauthenticated.limits.failure_delay_ms / 1000
        self._delay = network.loop.call_later(delay_s, self.close, "the handshake failed", FAILED)

    def close(self, reason: str, kind: str) -> None:
        if self.closed:
            return
        self.closed = True
        if self._delay is not None:
            self._delay.cancel()
            self._network.unauthenticated.end_delay()
        self._stop_watching()
        self._channel.close()
        self._handshakes.discard(self)
        self._listener.forget(self, kind)

    def _stop_watching(self) -> None:
        self._channel.remove_reader(self._network.loop)
        if self._is_writing:
            self._is_writing = False
            self._channel.remove_writer(self._network.loop)

    def __repr__(self) -> str:
        return f"{self._listener.name} {self.peer[0]}:{self.peer[1]}"


def describe_failure(error: Exception, first_bytes: bytes) -> str:
    """What went wrong in a handshake that began with these bytes, and what would be right."""
    if first_bytes and first_bytes[0] != HANDSHAKE_RECORD:
        return f"{describe_junk(first_bytes)}; this listener is for TLS"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    if not isinstance(error, ssl.SSLError):
        return str(error)
    reason = error.reason or str(error)
    return next((advice for word, advice in _ADVICE if word in reason), reason.replace("_", " ").lower())
