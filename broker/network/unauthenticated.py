"""Connections that have not logged in yet, and their limits. No I/O; callers pass in the time.

Whoever has not logged in may cost little: so many connections in all and from one address, each for a limited time. The
answer to a failed login waits for a while, and a limited number of them wait; an address that fails too often in a
second gets no answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Newcomer(Protocol):
    """A connection, or a handshake that becomes one."""

    peer: tuple[str, int]

    def close(self, reason: str, kind: str, /) -> None: ...


@dataclass(frozen=True, slots=True)
class LoginLimits:
    """Settings of the node."""

    timeout_ms: int = 10_000
    max_connections: int = 4096
    max_connections_per_ip: int = 256
    failure_delay_ms: int = 100
    max_delayed_failures: int = 1000
    max_failures_per_ip: int = 20  # in a second


class Unauthenticated:
    """The connections of a node that have not logged in."""

    def __init__(self, limits: LoginLimits) -> None:
        self.limits = limits
        self.delayed_count = 0
        self._since: dict[Newcomer, float] = {}
        self._per_address: dict[str, int] = {}
        self._failures: dict[str, int] = {}  # by address, in the second `_second`
        self._second = -1

    def __len__(self) -> int:
        return len(self._since)

    def admits(self, address: str) -> bool:
        """Return whether one more connection of this address may come."""
        limits = self.limits
        return (
            len(self._since) < limits.max_connections
            and self._per_address.get(address, 0) < limits.max_connections_per_ip
        )

    def add(self, connection: Newcomer, now: float) -> None:
        self._since[connection] = now
        address = connection.peer[0]
        self._per_address[address] = self._per_address.get(address, 0) + 1

    def replace(self, handshake: Newcomer, connection: Newcomer) -> None:
        """Replace a handshake by its connection, with the same deadline."""
        since = self._since[handshake]
        self.remove(handshake)
        self.add(connection, since)

    def remove(self, connection: Newcomer) -> None:
        """Forget a connection that has logged in or was closed; ignore others."""
        if self._since.pop(connection, None) is None:
            return
        address = connection.peer[0]
        count = self._per_address[address] - 1
        if count:
            self._per_address[address] = count
        else:
            del self._per_address[address]

    def overdue(self, now: float) -> list[Newcomer]:
        """Return the connections past their deadline."""
        limit_s = self.limits.timeout_ms / 1000
        return [newcomer for newcomer, since in self._since.items() if now - since >= limit_s]

    def begin_delay(self, address: str, now: float) -> bool:
        """Count a failed login. Return whether its response may be delayed. If so, call `end_delay` after the delay."""
        if int(now) != self._second:
            self._second = int(now)
            self._failures.clear()
        failures = self._failures[address] = self._failures.get(address, 0) + 1
        limits = self.limits
        if failures > limits.max_failures_per_ip or self.delayed_count >= limits.max_delayed_failures:
            return False
        self.delayed_count += 1
        return True

    def end_delay(self) -> None:
        self.delayed_count -= 1
