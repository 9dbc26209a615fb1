"""Connections that have not logged in yet, and how much of them a node bears; no I/O, the time is handed in.

Whoever has not logged in may cost little: so many connections in all and from one address, each for a limited time. The
answer to a failed login waits for a while, and a limited number of them wait; an address that fails too often in a
second gets no answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klamm.broker.network.connection import Connection


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
    """The connections of a node that have not logged in, in the order of their coming."""

    def __init__(self, limits: LoginLimits) -> None:
        self.limits = limits
        self.delayed_count = 0
        self._since: dict[Connection, float] = {}
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

    def add(self, connection: Connection, now: float) -> None:
        self._since[connection] = now
        address = connection.peer[0]
        self._per_address[address] = self._per_address.get(address, 0) + 1

    def remove(self, connection: Connection) -> None:
        """Forget a connection that has logged in or was closed; others are let pass."""
        if self._since.pop(connection, None) is None:
            return
        address = connection.peer[0]
        count = self._per_address[address] - 1
        if count:
            self._per_address[address] = count
        else:
            del self._per_address[address]

    def overdue(self, now: float) -> list[Connection]:
        """Return those that have had their time."""
        limit_s = self.limits.timeout_ms / 1000
        found = []
        for connection, since in self._since.items():
            if now - since < limit_s:
                break
            found.append(connection)
        return found

    def begin_delay(self, address: str, now: float) -> bool:
        """Count a failed login; return whether its answer may wait. If so, `end_delay` comes when it has."""
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
