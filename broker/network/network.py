"""The shared parts of all listeners of a node, and their life: `listen`, `drain`, `close`.

One sweep enforces the deadlines of all connections. Connections and this module take the time from it (`now`), so a
request never reads the clock. The order of a drain: stop accepting; let every connection answer the requests it has
read and send the responses; after the deadline close the remaining connections.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from klamm.broker.network.file_pieces import COPY_BYTES, FileThreads
from klamm.broker.network.limits import (
    UNLIMITED,
    ConnectionQuota,
    ListenerLimits,
    NetworkLimits,
    RequestBudget,
    Values,
    idle_limit_s,
    look_up_known,
    names_in,
)
from klamm.broker.network.listener import Listener
from klamm.broker.network.response import Dispatcher
from klamm.broker.network.unauthenticated import Unauthenticated
from klamm.broker.network.warnings import RateLimitedWarning
from klamm.protocol.framing import Scratch

if TYPE_CHECKING:
    import socket
    import ssl

    from klamm.broker.network.connection import Connection
    from klamm.broker.network.login import LoginGate
    from klamm.broker.network.tls_handshake import Handshakes, TlsHandshake
    from klamm.broker.quotas.connection_rates import ConnectionRates
    from klamm.broker.quotas.entities import Quotas
    from klamm.storage.clock import Clock

logger = logging.getLogger(__name__)

MAX_SWEEP_S = 3.0
MOST_CLOSING_LATER = 1000
COPIES_BYTES = COPY_BYTES + 4096  # a response with one small region
SEND_TOGETHER = 64  # the most connections with responses that wait for each other
SWEEPS_PER_TIMEOUT = 10


@dataclass(slots=True)
class NetworkCounters:
    """Counters of the network for the metrics; `closed` is by kind of reason."""

    accepted: int = 0
    refused: int = 0  # over a limit per address
    accept_errors: int = 0  # out of descriptors
    closed: dict[str, int] = field(default_factory=dict)
    logins: dict[str, int] = field(default_factory=dict)  # by mechanism, re-authentications included
    handshakes: dict[tuple[str, str], int] = field(default_factory=dict)  # of TLS, by protocol and cipher suite

    def count_login(self, mechanism: str) -> None:
        self.logins[mechanism] = self.logins.get(mechanism, 0) + 1

    def count_handshake(self, tls: ssl.SSLObject) -> None:
        suite = tls.cipher()
        kind = (tls.version() or "", suite[0] if suite is not None else "")
        self.handshakes[kind] = self.handshakes.get(kind, 0) + 1


class Network:
    """The network of a node. Create it on the loop that runs it."""

    def __init__(self, dispatcher: Dispatcher, limits: NetworkLimits, *, clock: Clock) -> None:
        self.loop = asyncio.get_running_loop()
        self.dispatcher = dispatcher
        self.limits = limits
        self.clock = clock
        self.now = clock.monotonic()
        self.scratch = Scratch()
        self.copies = memoryview(bytearray(COPIES_BYTES))
        self.file_threads = FileThreads(self.loop)
        self.quota = ConnectionQuota(limits)
        self.unauthenticated = Unauthenticated(limits.logins)
        self.handshakes: Handshakes | None = None  # made with the first listener that has TLS
        limit = limits.queued_max_request_bytes
        self.budget = RequestBudget(limit) if limit > 0 else None
        self.rates: ConnectionRates | None = None
        self._address_quotas: Quotas = {}
        self._closing_later: dict[socket.socket, asyncio.TimerHandle] = {}
        self.counters = NetworkCounters()
        self.connections: set[Connection] = set()
        self.listeners: list[Listener] = []
        self._warnings = RateLimitedWarning()
        self._ready: list[Connection] = []
        self._alone: Connection | None = None  # the last connection to be sent for, if no other was ready with it
        self._drained: asyncio.Future[None] | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._schedule_sweep()
        self.looking_up: asyncio.Future[dict[str, list[str]]] | None = None
        self._look_up(limits)

    @property
    def page_cache_misses(self) -> int:
        return self.file_threads.misses

    def listen(self, name: str, host: str, port: int, limits: ListenerLimits | None = None) -> Listener:
        """Bind and listen; connections are accepted from `Listener.start` on. Raises OSError."""
        listener = Listener(name, host, port, limits or ListenerLimits(), self)
        self.listeners.append(listener)
        self._limit_rates()
        return listener

    def ask_for_logins(self, listener: Listener, gate: LoginGate) -> None:
        """Make the connections of a listener log in first. Their deadline may be a short one."""
        listener.gate = gate
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._schedule_sweep()

    def change_limits(self, limits: NetworkLimits) -> None:
        """Apply new settings to later connections; open connections keep their frame limit."""
        if limits.max_connections_per_ip_overrides != self.limits.max_connections_per_ip_overrides:
            self._look_up(limits)
        self.limits = limits
        self.quota.change_limits(limits)
        self.unauthenticated.limits = limits.logins
        if self.budget is not None:
            self.budget.limit_bytes = limits.queued_max_request_bytes
        self._limit_rates()
        self.resume_accepting()

    def change_address_quotas(self, quotas: Quotas) -> None:
        """Apply new client quotas; only those of addresses matter here."""
        self._address_quotas = {entity: values for entity, values in quotas.items() if entity[0][0] == "ip"}
        self._limit_rates()

    def _limit_rates(self) -> None:
        """Apply limits on connection rates. Rates are measured from the first limit on."""
        wanted = {each.name: each.limits.max_connection_creation_rate for each in self.listeners}
        wanted[""] = self.limits.max_connection_creation_rate
        wanted = {name: rate for name, rate in wanted.items() if rate < UNLIMITED}
        if self.rates is None:
            if not wanted and not self._address_quotas:
                return
            from klamm.broker.quotas.connection_rates import ConnectionRates
            from klamm.broker.quotas.measure import Windows

            self.rates = ConnectionRates(Windows(*self.limits.quota_windows))
        self.rates.change_limits(wanted)
        self.rates.change_quotas(self._address_quotas)

    def close_later(self, channel: socket.socket, delay_ms: int) -> None:
        """Close a refused connection after `delay_ms`, unread: its peer waits before it tries again."""
        if len(self._closing_later) >= MOST_CLOSING_LATER:
            channel.close()
        else:
            self._closing_later[channel] = self.loop.call_later(delay_ms / 1000, self._close_now, channel)

    def _close_now(self, channel: socket.socket) -> None:
        self._closing_later.pop(channel).cancel()
        channel.close()

    def close_idlest(self, protected: Listener) -> None:
        """Make room for a connection of the `protected` listener: close the longest idle one of another listener."""
        others = [each for each in self.connections if each.listener != protected.name]
        if others:
            min(others, key=lambda each: each.deadlines.active_at).close("room for another broker", "max_connections")

    def reconfigure(self, config: Values) -> None:
        """Apply changed settings of the node and of its listeners."""
        for listener in self.listeners:
            listener.limits = ListenerLimits.from_config(config, listener.name)
        self.change_limits(NetworkLimits.from_config(config))

    def _look_up(self, limits: NetworkLimits) -> None:
        """Resolve the host names among the overrides, in a thread: that may take seconds."""
        names = names_in(limits.max_connections_per_ip_overrides)
        self.looking_up = self.loop.run_in_executor(None, look_up_known, names) if names else None
        if self.looking_up is not None:
            self.looking_up.add_done_callback(self._on_looked_up)

    def _on_looked_up(self, done: asyncio.Future[dict[str, list[str]]]) -> None:
        # else a newer lookup has begun
        if done is self.looking_up and not done.cancelled() and done.exception() is None:
            self.quota.set_addresses(done.result())

    def forget_known_requests(self) -> None:
        """Drop the request memos after a change of rights or quotas: the next requests are handled in full."""
        for connection in self.connections:
            connection.memo = None

    def resume_accepting(self) -> None:
        for listener in self.listeners:
            listener.resume()

    async def drain(self, deadline_s: float) -> int:
        """Stop accepting, answer the requests that were read, close. Return how many connections had to be cut off."""
        for listener in self.listeners:
            listener.close()
        self._drained = self.loop.create_future()
        if self.handshakes is not None:
            self.handshakes.close()
        for connection in list(self.connections):
            connection.drain()
        cut_off = 0
        if self.connections:
            await asyncio.wait([self._drained], timeout=deadline_s)
            cut_off = len(self.connections)
            if cut_off:
                logger.warning("%d connections were not drained within %.1f s", cut_off, deadline_s)
        self.close()
        return cut_off

    def close(self) -> None:
        """Close everything at once."""
        for listener in self.listeners:
            listener.close()
        if self.handshakes is not None:
            self.handshakes.close()
        for connection in list(self.connections):
            connection.close("shutting down", "drain")
        for channel in list(self._closing_later):
            self._close_now(channel)
        self.file_threads.close()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    def warn(self, kind: str, message: str, *arguments: object) -> None:
        """Log a rate-limited warning. For events that peers can cause at will."""
        self._warnings.warn(kind, self.clock.monotonic(), message, *arguments)

    # -- for listeners and connections

    def send_soon(self, connection: Connection) -> None:
        """Have the connection send after all currently readable ones have been served. If it was the only one the last
        time, it seems to be alone: then it sends at once.
        """
        ready = self._ready
        at_once = not ready and self._alone is connection
        if not ready and not at_once:
            self.loop.call_soon(self._send_ready)
        ready.append(connection)
        if at_once or len(ready) >= SEND_TOGETHER:
            self._send_ready()

    def _send_ready(self) -> None:
        ready = self._ready[:]
        self._ready.clear()
        self._alone = ready[0] if len(ready) == 1 and not ready[0].closed else None
        for connection in ready:
            try:
                connection.send_ready()
            except Exception:
                logger.exception("%s: sending failed", connection)
                connection.close("internal error", "bug")

    def opened(self, connection: Connection) -> None:
        self.connections.add(connection)
        self.counters.accepted += 1

    def forget(self, connection: Connection | TlsHandshake, kind: str) -> None:
        self.connections.discard(connection)
        self.unauthenticated.remove(connection)
        if self._alone is connection:
            self._alone = None
        was_full = self.quota.node_is_full
        self.quota.release(connection.peer[0])
        closed = self.counters.closed
        closed[kind] = closed.get(kind, 0) + 1
        if was_full:
            self.resume_accepting()
        if self._drained is not None and not self.connections and not self._drained.done():
            self._drained.set_result(None)

    def sweep(self) -> None:
        """Enforce the deadlines at the clock's time."""
        self.now = now = self.clock.monotonic()
        frame_s = self.limits.frame_timeout_ms / 1000
        idle_s = idle_limit_s(self.limits.max_idle_ms)
        for newcomer in self.unauthenticated.overdue(now):
            self.warn("login_timeout", "%s: closed: no login within klamm.authentication.timeout.ms", newcomer)
            newcomer.close("no login in time", "login_timeout")
        for connection in list(self.connections):
            connection.sweep(now, idle_s, frame_s)

    def _schedule_sweep(self) -> None:
        shortest_s = min(self.limits.frame_timeout_ms / 1000, idle_limit_s(self.limits.max_idle_ms))
        if self.handshakes is not None or any(listener.gate is not None for listener in self.listeners):
            shortest_s = min(shortest_s, self.limits.logins.timeout_ms / 1000)
        self._sweep_timer = self.loop.call_later(
            min(MAX_SWEEP_S, max(0.01, shortest_s / SWEEPS_PER_TIMEOUT)), self._on_sweep
        )

    def _on_sweep(self) -> None:
        try:
            self.sweep()
        except Exception:
            logger.exception("the sweep of connections failed")
        self._schedule_sweep()
