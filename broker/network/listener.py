"""A listening socket: accepts within limits, and makes connections.

At `max.connections` of the node or of the listener accepting pauses until a connection closes. Over a rate an accepted
connection waits, and no other is accepted meanwhile. A peer over its address's limit is closed right after the accept,
one over its address's rate a little later. The last descriptors below the process's limit are reserved for the log,
which needs them for new segments: a peer that would take one is closed, and accepting pauses for `PAUSE_S`. If all
descriptors are used nevertheless, a reserve descriptor is freed for a moment to accept and close one waiting peer.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket
import sys
from typing import TYPE_CHECKING, Any

from klamm.broker.network.channel import PlainChannel
from klamm.broker.network.connection import Connection
from klamm.broker.network.limits import ListenerLimits, idle_limit_s, plain_address

if TYPE_CHECKING:
    from klamm.broker.network.channel import Channel
    from klamm.broker.network.login import LoginGate
    from klamm.broker.network.network import Network
    from klamm.broker.network.tls_handshake import TlsHandshake
    from klamm.broker.security.tls.endpoint import TlsEndpoint

ACCEPTS_PER_TURN = 16
PAUSE_S = 1.0
LEAST_RESERVED = 32
OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Listener:
    """A listener; bound when it is created (raises OSError), accepting from `start` on."""

    def __init__(self, name: str, host: str, port: int, limits: ListenerLimits, network: Network) -> None:
        self.name = name
        self.limits = limits
        self.connection_count = 0
        self.gate: LoginGate | None = None
        """The gate at which connections log in; None: without login."""
        self.tls: TlsEndpoint | None = None
        """The TLS endpoint of new connections; None: plain text."""
        self._network = network
        self._accepting = False
        self._started = False
        self._pause: asyncio.TimerHandle | None = None
        self._held: tuple[socket.socket, str, int] | None = None  # accepted, and waits for the rate
        self._socket: socket.socket | None = bind(host, port, network)
        self._reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._descriptor_bound = descriptor_bound()
        self.address: tuple[str, int] = self._socket.getsockname()[:2]

    def idle_limit_s(self, of_node_s: float) -> float:
        """Return the listener's own limit, or that of the node."""
        limit = self.limits.max_idle_ms
        return of_node_s if limit is None else idle_limit_s(limit)

    def start(self) -> None:
        self._started = True
        self.resume()

    def resume(self) -> None:
        """Accept again, if no limit or pause prevents it."""
        if self._accepting or not self._started or self._socket is None or self._pause is not None or self._full():
            return
        self._accepting = True
        self._network.loop.add_reader(self._socket, self._on_readable)

    def close(self) -> None:
        """Stop accepting; connections stay."""
        if self._socket is None:
            return
        self._stop_accepting()
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        self._socket.close()
        self._socket = None
        if self._held is not None:
            self._held[0].close()
            self._held = None
        if self._reserve >= 0:
            os.close(self._reserve)
            self._reserve = -1

    def connected(self, channel: Channel, peer: tuple[str, int], principal: str, handshake: TlsHandshake) -> None:
        """Make a connection after the TLS handshake, which has identified `principal`."""
        connection = Connection(channel, peer, self._network, self)
        connection.principal = principal
        self._network.connections.add(connection)
        if self.gate is None:
            self._network.unauthenticated.remove(handshake)
        else:
            self.gate.guard(connection, handshake)

    def use_tls(self, tls: TlsEndpoint) -> None:
        """Use this TLS endpoint for the handshakes of later connections."""
        if self._network.handshakes is None:
            from klamm.broker.network.tls_handshake import Handshakes  # needed only with TLS

            self._network.handshakes = Handshakes(self._network)
        self.tls = tls

    def forget(self, connection: Connection | TlsHandshake, kind: str) -> None:
        """Remove a closed connection from the counts."""
        self.connection_count -= 1
        self._network.forget(connection, kind)
        if not self._accepting:
            self.resume()

    def __repr__(self) -> str:
        return f"{self.name} {self.address[0]}:{self.address[1]}"

    @property
    def _is_protected(self) -> bool:
        """Whether the limits of the node are not for this listener: brokers reach each other here."""
        network = self._network
        return len(network.listeners) > 1 and self.name == network.limits.inter_broker_listener

    def _full(self) -> bool:
        is_full = self.connection_count >= self.limits.max_connections
        return is_full or (self._network.quota.node_is_full and not self._is_protected)

    def _stop_accepting(self) -> None:
        if self._accepting and self._socket is not None:
            self._accepting = False
            self._network.loop.remove_reader(self._socket)

    def _on_readable(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if self._socket is None:
                return
            if self._full():
                self._stop_accepting()
                self._network.warn(
                    "full", "%r: %d connections, accepting none until one closes", self, self.connection_count
                )
                return
            try:
                channel, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in OUT_OF_DESCRIPTORS:
                    self._on_out_of_descriptors(error)
                    return
                continue  # ECONNABORTED and the like: that peer has closed
            if channel.fileno() >= self._descriptor_bound:
                channel.close()
                self._pause_accepting("the last descriptors are for the log")
                return
            address, port = plain_address(peer[0]), peer[1]
            rates = self._network.rates
            if rates is not None:
                wait_ms = rates.wait_ms(self.name, self._network.clock.monotonic(), is_exempt=self._is_protected)
                if wait_ms:
                    self._hold(channel, address, port, wait_ms)
                    return
            self._open(channel, address, port)

    def _hold(self, channel: socket.socket, address: str, port: int, wait_ms: int) -> None:
        """Accept nothing until the time is over, then open this connection."""
        self._held = channel, address, port
        self._stop_accepting()
        self._pause = self._network.loop.call_later(wait_ms / 1000, self._end_hold)

    def _end_hold(self) -> None:
        self._pause = None
        held, self._held = self._held, None
        if held is not None:
            self._open(*held)
        self.resume()

    def _open(self, channel: socket.socket, address: str, port: int) -> None:
        network = self._network
        if (self.tls is not None or self.gate is not None) and not network.unauthenticated.admits(address):
            network.counters.refused += 1
            network.warn("logins", "%r: %s refused, too many connections have not logged in yet", self, address)
            channel.close()
            return
        if network.rates is not None:
            refused_ms = network.rates.refused_ms(network.quota.counted_by(address), network.clock.monotonic())
            if refused_ms:
                network.counters.refused += 1
                network.warn("ip_rate", "%r: %s makes connections too fast, refused", self, address)
                network.close_later(channel, refused_ms)
                return
        if not network.quota.admit(address):
            network.counters.refused += 1
            network.warn("per_ip", "%r: %s has too many connections, refused (max.connections.per.ip)", self, address)
            channel.close()
            return
        channel.setblocking(False)
        self.connection_count += 1
        if self.tls is None:
            connection = Connection(PlainChannel(channel), (address, port), network, self)
            network.opened(connection)
            if self.gate is not None:
                self.gate.guard(connection)
        else:
            assert network.handshakes is not None
            network.handshakes.begin(channel, (address, port), self, self.tls)
        if network.quota.total > network.limits.max_connections:
            network.close_idlest(self)

    def _on_out_of_descriptors(self, error: OSError) -> None:
        """Accept and close one waiting peer with the reserve descriptor, then pause."""
        self._pause_accepting(error)
        if self._reserve < 0 or self._socket is None:
            return
        os.close(self._reserve)
        self._reserve = -1
        with contextlib.suppress(OSError):
            self._socket.accept()[0].close()
        self._take_reserve()

    def _pause_accepting(self, why: object) -> None:
        network = self._network
        network.counters.accept_errors += 1
        network.warn("descriptors", "%r: cannot accept, pausing for %.0f s: %s", self, PAUSE_S, why)
        self._stop_accepting()
        self._pause = network.loop.call_later(PAUSE_S, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        self._take_reserve()
        self.resume()

    def _take_reserve(self) -> None:
        if self._reserve < 0:
            with contextlib.suppress(OSError):  # else the next pause tries again
                self._reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def descriptor_bound() -> int:
    """Return the upper bound of descriptors for connections; new descriptors are the lowest free ones."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit - max(LEAST_RESERVED, limit // 16)


def bind(host: str, port: int, network: Network) -> socket.socket:
    """Bind a listening socket to the first address of `host`; for an empty host, to all addresses of both families."""
    if host:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return _bind(family, address, network, dual_stack=False)
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # IPv6 may be compiled in and switched off; a taken port fails again below
            return _bind(socket.AF_INET6, ("::", port), network, dual_stack=True)
    return _bind(socket.AF_INET, ("0.0.0.0", port), network, dual_stack=False)


def _bind(family: int, address: tuple[Any, ...], network: Network, *, dual_stack: bool) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual_stack else 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit all of these.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        limits = network.limits
        if limits.send_buffer_bytes > 0:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
        if limits.receive_buffer_bytes > 0:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer_bytes)
        listening.bind(address)
        listening.listen(limits.backlog)
    except BaseException:
        listening.close()
        raise
    return listening
