"""The login of a connection: earlier frames go to an authenticator instead of the dispatcher.

The authenticator (`klamm.broker.security`) decides without I/O; here is what its verdicts mean for the connection. A
failed login is answered after `connection.failed.authentication.delay.ms`; nothing is read meanwhile, then the
connection is closed. A session that has an end is looked at with each request from then on; others cost nothing.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from klamm.broker.network.close_reason import CloseReason
from klamm.broker.network.response import DispatchResult, PendingResponse, Response
from klamm.broker.security.sasl.authenticator import HANDSHAKE_KEY, Authenticator, Outcome, Step

if TYPE_CHECKING:
    from klamm.broker.network.connection import Connection
    from klamm.broker.network.network import Network
    from klamm.broker.network.tls_handshake import TlsHandshake

API_VERSIONS_ERROR = struct.Struct(">h")
API_VERSIONS_ERROR_POSITION = 8  # size, correlation id; the header of this response is always v0


def nothing() -> None:
    """Do nothing: there is no more to stop."""


class LoginGate:
    """What a listener does with each new connection. `stop` ends what serves the logins beside the loop."""

    def __init__(
        self,
        network: Network,
        begin: Callable[[], Authenticator],
        max_frame_bytes: int,
        *,
        stop: Callable[[], None] = nothing,
    ) -> None:
        self.stop = stop
        self._network = network
        self._begin = begin
        self._max_frame_bytes = max_frame_bytes

    def guard(self, connection: Connection, handshake: TlsHandshake | None = None) -> None:
        """Make the connection log in first, in the time that its TLS handshake has left."""
        network = self._network
        if handshake is None:
            network.unauthenticated.add(connection, network.clock.monotonic())
        else:
            network.unauthenticated.replace(handshake, connection)
        connection.hand_to(Login(network, self._begin(), self._max_frame_bytes).step, self._max_frame_bytes)


class Login:
    """The login of one connection, and its session. `step` and `in_session` stand in for the dispatcher."""

    __slots__ = ("_authenticator", "_dispatch", "_max_frame_bytes", "_network")

    def __init__(self, network: Network, authenticator: Authenticator, max_frame_bytes: int) -> None:
        self._network = network
        self._authenticator = authenticator
        self._max_frame_bytes = max_frame_bytes
        self._dispatch = network.dispatcher.__call__

    def step(self, connection: Connection, frame: memoryview) -> DispatchResult:
        """Take a frame of a login or a re-authentication."""
        step = self._authenticator.receive(frame, self._now_ms())
        match step.outcome:
            case Outcome.PASS_ON:
                return self._pass_on(connection, frame)
            case Outcome.FAILED:
                return self._fail(connection, step)
            case Outcome.CLOSE:
                connection.refuse(CloseReason("login_refused", f"no login: {step.reason}"))
                return None
            case Outcome.DONE:
                self._begin_session(connection)
        return Response(step.reply) if step.reply is not None else None

    def in_session(self, connection: Connection, frame: memoryview) -> DispatchResult:
        """Take a request of a session that has an end."""
        now_ms = self._now_ms()
        authenticator = self._authenticator
        if frame[: len(HANDSHAKE_KEY)] == HANDSHAKE_KEY and authenticator.begin_renewal(now_ms):
            connection.hand_to(self.step, self._max_frame_bytes)
            return self.step(connection, frame)
        if now_ms >= authenticator.session_end_ms:
            connection.refuse(CloseReason("session_expired", "the session has ended, and there was no new login"))
            return None
        return self._dispatch(connection, frame)

    def _pass_on(self, connection: Connection, frame: memoryview) -> DispatchResult:
        answer = self._dispatch(connection, frame)
        assert isinstance(answer, Response), "ApiVersions is answered at once"
        (error_code,) = API_VERSIONS_ERROR.unpack_from(answer.head, API_VERSIONS_ERROR_POSITION)
        self._authenticator.passed_on(error_code)
        return answer

    def _begin_session(self, connection: Connection) -> None:
        network, authenticator = self._network, self._authenticator
        connection.principal = f"User:{authenticator.user}"
        connection.is_token_login = authenticator.is_token_login
        network.unauthenticated.remove(connection)
        network.counters.count_login(authenticator.mechanism)
        dispatch = self._dispatch if authenticator.is_endless else self.in_session
        connection.hand_to(dispatch, network.limits.max_request_bytes)

    def _fail(self, connection: Connection, step: Step) -> DispatchResult:
        """Close after a delay and the response; at once when too many wait already."""
        network = self._network
        connection.refuse(CloseReason("login_failed", f"login failed: {step.reason}"))
        waiting = network.unauthenticated
        if not waiting.begin_delay(connection.peer[0], network.clock.monotonic()):
            return None
        reply = Response(step.reply) if step.reply is not None else None
        answer: asyncio.Future[Response | None] = network.loop.create_future()
        timer = network.loop.call_later(waiting.limits.failure_delay_ms / 1000, answer.set_result, reply)

        def done(_: asyncio.Future[Response | None]) -> None:
            timer.cancel()  # the connection may have closed first
            waiting.end_delay()

        answer.add_done_callback(done)
        return PendingResponse(answer, lets_pass=None, is_wait=True)

    def _now_ms(self) -> float:
        return self._network.clock.monotonic() * 1000
