"""How many connections may be made in a second: on the node, on a listener, and by an address.

Over the rate of the node or of a listener (`max.connection.creation.rate`) a new connection waits, and nothing else is
accepted meanwhile; over that of its address (`connection_creation_rate`) it is refused, and does not count. A wait is a
sample of the quota's at most. Times are seconds of a monotonic clock.
"""

from __future__ import annotations

from typing import Final

from klamm.broker.quotas.client_quotas import Sensors
from klamm.broker.quotas.entities import NO_QUOTAS, Quotas, address_bound
from klamm.broker.quotas.measure import Windows
from klamm.broker.quotas.sensor import Sensor

NODE: Final = ""  # no listener has this name


class ConnectionRates:
    """`change_limits` and `change_quotas` hold from the next connection on; the measured rates stay."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._limits: dict[str, Sensor] = {}
        self._quotas: Quotas = NO_QUOTAS
        self._addresses = Sensors(Sensor, windows, lambda: None)

    def change_limits(self, limits: dict[str, int]) -> None:
        """The connections per second of those listeners that have a limit, and of the node under `NODE`."""
        known, self._limits = self._limits, {}
        for name, rate in limits.items():
            sensor = self._limits[name] = known.get(name) or Sensor(rate, self._windows)
            sensor.change_bound(rate)

    def change_quotas(self, quotas: Quotas) -> None:
        """The quotas of addresses."""
        self._quotas = quotas

    def wait_ms(self, listener: str, now_s: float, *, is_exempt: bool) -> int:
        """Count a connection on this listener; how long it and the others must wait. One that `is_exempt` does not
        count for the node."""
        names = (listener,) if is_exempt else (NODE, listener)
        return max(self._record(self._limits.get(name), now_s) for name in names)

    def refused_ms(self, address: str, now_s: float) -> int:
        """Count a connection of this address; for how long it is refused if the address has made too many."""
        bound = address_bound(self._quotas, address)
        if bound is None:
            return 0
        sensor = self._addresses.get((None, address), bound, now_s)
        throttle_ms = self._record(sensor, now_s)
        if throttle_ms:
            sensor.take_back(1, now_s)
        return throttle_ms

    def _record(self, sensor: Sensor | None, now_s: float) -> int:
        if sensor is None:
            return 0
        if not sensor.bound:
            return self._windows.size_ms
        return min(sensor.record(1, now_s), self._windows.size_ms)
