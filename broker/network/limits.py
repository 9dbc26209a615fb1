"""The limits of the network layer: settings, connection counts, the budget of request bytes, descriptors.

`ConnectionQuota` counts connections of the node, of each listener and of each address. At the limit of an address the
accepted socket is closed at once. At the limit of the node or of a listener accepting stops until a connection closes
(as in Kafka), so the peers wait in the kernel's backlog. Limits per address may be given for host names: `look_up`
resolves them, in a thread; until then, and if that fails, the common limit applies.
"""

from __future__ import annotations

import ipaddress
import logging
import math
import resource
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from klamm.broker.network.unauthenticated import LoginLimits

logger = logging.getLogger(__name__)

UNLIMITED = 2**31 - 1
IPV6_BITS = 128
OVERRIDES = "max.connections.per.ip.overrides"
CREATION_RATE = "max.connection.creation.rate"


class Values(Protocol):
    """The methods used of a BrokerConfig, or of a plain dict in a test."""

    def __getitem__(self, name: str, /) -> object: ...


@runtime_checkable
class SomeSet(Protocol):
    """A config that can tell an operator's values from defaults."""

    def is_set(self, name: str, /) -> bool: ...


@dataclass(frozen=True, slots=True)
class NetworkLimits:
    """Settings of the node. Byte and time units are in the names; a negative `queued_max_request_bytes` or
    `max_idle_ms` means no limit.
    """

    max_request_bytes: int = 100 * 1024 * 1024
    max_inflight: int = 100
    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    queued_max_request_bytes: int = -1
    max_connection_creation_rate: int = UNLIMITED
    quota_windows: tuple[int, int] = (11, 1000)  # of rates: samples, and the milliseconds of one
    ipv6_prefix: int = 128
    inter_broker_listener: str = "PLAINTEXT"
    max_idle_ms: int = 600_000
    frame_timeout_ms: int = 30_000
    backlog: int = 1024
    send_buffer_bytes: int = -1  # -1: the kernel tunes it
    receive_buffer_bytes: int = -1
    unsent_high_water_bytes: int = 1024 * 1024
    handshakes_per_turn: int = 4
    logins: LoginLimits = field(default_factory=LoginLimits)

    @classmethod
    def from_config(cls, config: Values) -> NetworkLimits:
        default = cls()

        def value(name: str, default: int, *, only_if_set: bool = False) -> int:
            if only_if_set and isinstance(config, SomeSet) and not config.is_set(name):
                return default
            return _integer(config, name, default)

        return cls(
            max_request_bytes=value("socket.request.max.bytes", default.max_request_bytes),
            max_inflight=value("klamm.max.inflight.per.connection", default.max_inflight),
            max_connections=value("max.connections", UNLIMITED),
            max_connections_per_ip=value("max.connections.per.ip", UNLIMITED),
            max_connections_per_ip_overrides=parse_overrides(_get(config, OVERRIDES)),
            max_connection_creation_rate=value(CREATION_RATE, UNLIMITED),
            quota_windows=(value("quota.window.num", 11), value("quota.window.size.seconds", 1) * 1000),
            ipv6_prefix=value("klamm.connections.ipv6.prefix", default.ipv6_prefix),
            inter_broker_listener=str(
                _get(config, "inter.broker.listener.name")
                or _get(config, "security.inter.broker.protocol")
                or default.inter_broker_listener
            ).upper(),
            queued_max_request_bytes=value("queued.max.request.bytes", -1),
            max_idle_ms=value("connections.max.idle.ms", default.max_idle_ms),
            frame_timeout_ms=value("klamm.frame.timeout.ms", default.frame_timeout_ms),
            # Kafka's defaults, 100 KiB and 50, are outdated: the kernel tunes buffers better by itself.
            backlog=value("socket.listen.backlog.size", default.backlog, only_if_set=True),
            send_buffer_bytes=value("socket.send.buffer.bytes", -1, only_if_set=True),
            receive_buffer_bytes=value("socket.receive.buffer.bytes", -1, only_if_set=True),
            handshakes_per_turn=value("klamm.handshakes.per.turn", default.handshakes_per_turn),
            logins=_login_limits(config),
        )


def _login_limits(config: Values) -> LoginLimits:
    default = LoginLimits()
    return LoginLimits(
        timeout_ms=_integer(config, "klamm.authentication.timeout.ms", default.timeout_ms),
        max_connections=_integer(config, "klamm.max.unauthenticated.connections", default.max_connections),
        max_connections_per_ip=_integer(
            config, "klamm.max.unauthenticated.connections.per.ip", default.max_connections_per_ip
        ),
        failure_delay_ms=_integer(config, "connection.failed.authentication.delay.ms", default.failure_delay_ms),
        max_delayed_failures=_integer(config, "klamm.max.delayed.failures", default.max_delayed_failures),
        max_failures_per_ip=_integer(config, "klamm.max.failed.logins.per.ip", default.max_failures_per_ip),
    )


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Settings with the prefix `listener.name.<listener>.`, which fall back to the node's where Kafka's do."""

    max_connections: int = UNLIMITED
    max_idle_ms: int | None = None
    max_connection_creation_rate: int = UNLIMITED

    @classmethod
    def from_config(cls, config: Values, listener: str) -> ListenerLimits:
        prefix = f"listener.name.{listener.lower()}."
        idle = _get(config, prefix + "connections.max.idle.ms")
        return cls(
            max_connections=_integer(config, prefix + "max.connections", UNLIMITED),
            max_connection_creation_rate=_integer(config, prefix + CREATION_RATE, UNLIMITED),
            max_idle_ms=None if idle is None else int(str(idle)),
        )


def _get(config: Values, name: str) -> object:
    try:
        return config[name]
    except KeyError:
        return None


def _integer(config: Values, name: str, default: int) -> int:
    value = _get(config, name)
    return default if value is None else int(str(value))


def idle_limit_s(limit_ms: int) -> float:
    """Return the seconds of quiet after which a connection is closed; infinite for a negative limit, as in Kafka."""
    return limit_ms / 1000 if limit_ms >= 0 else math.inf


def parse_overrides(value: object) -> dict[str, int]:
    """Parse `host:count` pairs, from text with commas or a list, into limits by address or host name. Raises
    ValueError.
    """
    if not value:
        return {}
    items = value.split(",") if isinstance(value, str) else list(value)  # type: ignore[call-overload]
    overrides: dict[str, int] = {}
    for item in filter(None, (str(item).strip() for item in items)):
        host, _, count = item.rpartition(":")
        if not host or not count.strip().isdigit():
            raise ValueError(f"{OVERRIDES}: {item!r} is not host:count")
        overrides[_address(host) or host.strip()] = int(count)
    return overrides


def names_in(overrides: Iterable[str]) -> list[str]:
    """Return the host names that must be resolved."""
    return [host for host in overrides if _address(host) is None]


def _address(host: str) -> str | None:
    try:
        return str(ipaddress.ip_address(host.strip().strip("[]")))
    except ValueError:
        return None


def look_up(name: str) -> list[str]:
    """Return the addresses of a host name. May block for seconds. Raises ValueError when there are none."""
    try:
        return sorted({plain_address(str(info[4][0])) for info in socket.getaddrinfo(name, None)})
    except (OSError, UnicodeError) as error:
        raise ValueError(f"{OVERRIDES}: cannot resolve {name!r}: {error}") from None


def look_up_known(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the addresses of the names that can be resolved; log a warning for each of the others. Blocks."""
    found = {}
    for name in names:
        try:
            found[name] = look_up(name)
        except ValueError as error:
            logger.warning("%s; the override is ignored", error)
    return found


def address_prefix(address: str, bits: int) -> str:
    """What the connections of an address are counted by: of IPv6 the network with so many bits."""
    if bits >= IPV6_BITS or ":" not in address:
        return address
    return str(ipaddress.ip_network(f"{address}/{bits}", strict=False))


def plain_address(address: str) -> str:
    """Return an address in plain form: `::ffff:10.0.0.1`, which a dual-stack socket reports for IPv4, becomes 10.0.0.1;
    zones are cut.
    """
    if address.startswith("::ffff:") and "." in address:
        return address[7:]
    return address.partition("%")[0]


class ConnectionQuota:
    """Counts of connections, without sockets."""

    def __init__(self, limits: NetworkLimits) -> None:
        self._limits = limits
        self._ipv6_prefix = limits.ipv6_prefix
        self._per_address: dict[str, int] = {}
        self._addresses: dict[str, list[str]] = {}
        self._by_name: dict[str, int] = {}
        self.total = 0

    @property
    def node_is_full(self) -> bool:
        return self.total >= self._limits.max_connections

    def admit(self, address: str) -> bool:
        """Count a connection of this address, or return False when the address has too many."""
        limits = self._limits
        counted = self.counted_by(address)
        count = self._per_address.get(counted, 0)
        limit = limits.max_connections_per_ip
        overrides = limits.max_connections_per_ip_overrides
        if overrides:
            limit = overrides.get(address, self._by_name.get(address, limit))
        if count >= limit:
            return False
        self._per_address[counted] = count + 1
        self.total += 1
        return True

    def counted_by(self, address: str) -> str:
        """The address, or the network of IPv6 that it is counted with."""
        return address_prefix(address, self._ipv6_prefix)

    def release(self, address: str) -> None:
        counted = self.counted_by(address)
        count = self._per_address[counted] - 1
        if count:
            self._per_address[counted] = count
        else:
            del self._per_address[counted]
        self.total -= 1

    def change_limits(self, limits: NetworkLimits) -> None:
        """Apply new limits to later connections; none is closed."""
        self._limits = limits
        self.set_addresses(self._addresses)

    def set_addresses(self, found: Mapping[str, list[str]]) -> None:
        """Set the addresses of the host names among the overrides."""
        self._addresses = dict(found)
        overrides = self._limits.max_connections_per_ip_overrides
        self._by_name = {
            address: overrides[name] for name, addresses in found.items() for address in addresses if name in overrides
        }


class RequestBudget:
    """`queued.max.request.bytes`: the node's bytes of requests being received or answered.

    A frame is charged with its declared size when it begins, and may begin as long as any budget is left. So the held
    bytes exceed the limit by one frame at most, and a frame that began can always end (no two half frames wait for each
    other). A connection that may not begin a frame is muted and called back.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._waiting: dict[Callable[[], None], None] = {}  # in the order of arrival

    def change(self, before: int, now: int, resume: Callable[[], None]) -> bool:
        """Change the bytes of a connection from `before` to `now`. False: refused; wait for `resume` and ask again."""
        if now > before and self.held_bytes >= self.limit_bytes:
            self._waiting[resume] = None
            return False
        self.held_bytes += now - before
        if now < before and self._waiting and self.held_bytes < self.limit_bytes:
            waiting, self._waiting = self._waiting, {}
            for callback in waiting:
                callback()
        return True

    def forget(self, resume: Callable[[], None]) -> None:
        """Remove a waiting callback: its connection has closed."""
        self._waiting.pop(resume, None)

    def share(self, resume: Callable[[], None]) -> BudgetShare:
        """The share of a connection that is called back with `resume`."""
        return BudgetShare(self, resume)

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)


class BudgetShare:
    """What one connection holds of the budget."""

    __slots__ = ("_budget", "_resume", "bytes")

    def __init__(self, budget: RequestBudget, resume: Callable[[], None]) -> None:
        self._budget = budget
        self._resume = resume
        self.bytes = 0

    def hold(self, held: int, *, is_refused: bool) -> bool:
        """Hold so many bytes from now on; False when it may not be more, and `resume` will say when to ask again. One
        that `is_refused` already asks for no more."""
        if held == self.bytes or (is_refused and held > self.bytes):
            return True
        if not self._budget.change(self.bytes, held, self._resume):
            return False
        self.bytes = held
        return True

    def give_back(self) -> None:
        """Hold nothing, and wait for nothing."""
        self._budget.forget(self._resume)
        self._budget.change(self.bytes, 0, self._resume)
        self.bytes = 0


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one. Return the limit now in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:  # a platform may refuse its own hard limit
        logger.warning("open files stay limited to %d: %s", soft, error)
        return soft
    return hard
