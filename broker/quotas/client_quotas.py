"""The quotas of a node's clients in use: which hold for a client, and what the client has used.

A `Meter` has the measures that count for one user and client id; users and clients share `Sensor`s as `entities` says.
There is one `ClientQuotas`, made when the first quota is set; without it no request is measured.

Bounded: at most `MOST_SENSORS` of each kind are kept, those used last; a sensor that was not used for an hour goes,
too. Client ids are chosen by clients, so there may be any number of them. Meters are quickly made: they are forgotten,
all of them, when a sensor was dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from klamm.broker.quotas.entities import FETCH, MUTATION, PRODUCE, REQUEST, Quotas, SensorKey, find
from klamm.broker.quotas.measure import Windows
from klamm.broker.quotas.sensor import NO_SENSOR, MutationSensor, Sensor

MOST_SENSORS: Final = 10_000
IDLE_S: Final = 3600.0
PERCENT: Final = 100.0
UNLIMITED: Final = NO_SENSOR


class AnySensor(Protocol):
    placed_s: float
    used_s: float

    def change_bound(self, bound: float, /) -> None: ...

    def drop(self) -> None: ...


S = TypeVar("S", bound=AnySensor)


class Sensors(Generic[S]):
    """The sensors of one kind, by the clients that share them; the least recently used are first, or nearly."""

    def __init__(self, make: Callable[[float, Windows], S], windows: Windows, on_drop: Callable[[], None]) -> None:
        self._make = make
        self._on_drop = on_drop
        self._windows = windows
        self._by_key: dict[SensorKey, S] = {}

    def get(self, key: SensorKey, bound: float, now_s: float) -> S:
        """The sensor of this key, with this bound, made at need."""
        sensors = self._by_key
        sensor = sensors.pop(key, None)
        if sensor is None:
            sensor = self._make(bound, self._windows)
        else:
            sensor.change_bound(bound)
        sensor.used_s = sensor.placed_s = now_s
        sensors[key] = sensor
        self._drop(now_s)
        return sensor

    def _drop(self, now_s: float) -> None:
        """Drop idle and surplus sensors from the front; a sensor used since it was placed there moves to the end."""
        sensors = self._by_key
        while sensors:
            key, sensor = next(iter(sensors.items()))
            if sensor.used_s > sensor.placed_s:
                sensor.placed_s = sensor.used_s
                sensors[key] = sensors.pop(key)
                continue
            if len(sensors) <= MOST_SENSORS and now_s - sensor.used_s < IDLE_S:
                return
            sensor.drop()
            del sensors[key]
            self._on_drop()

    def __len__(self) -> int:
        return len(self._by_key)

    def items(self) -> Iterator[tuple[SensorKey, S]]:
        yield from list(self._by_key.items())


class Meter:
    """The sensors of one user and client id. `UNLIMITED` stands for a kind without a quota."""

    __slots__ = ("fetch", "mutation", "produce", "request")

    def __init__(self, produce: Sensor, fetch: Sensor, request: Sensor, mutation: MutationSensor | None) -> None:
        self.produce = produce
        self.fetch = fetch
        self.request = request
        self.mutation = mutation


NOTHING: Final = Meter(UNLIMITED, UNLIMITED, UNLIMITED, None)


class ClientQuotas:
    """See the head of the module. `mutation_windows` are those of partitions made and deleted; `now` gives seconds of
    a monotonic clock."""

    def __init__(
        self,
        windows: Windows,
        mutation_windows: Windows | None = None,
        *,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.windows = windows
        self.now = now
        self.throttled_count = dict.fromkeys((PRODUCE, FETCH, REQUEST, MUTATION), 0)
        self.throttled_ms = dict.fromkeys(self.throttled_count, 0)
        self.produce = Sensors(Sensor, windows, self._forget_meters)
        self.fetch = Sensors(Sensor, windows, self._forget_meters)
        self.request = Sensors(Sensor, windows, self._forget_meters)
        self.mutations = Sensors(MutationSensor, mutation_windows or windows, self._forget_meters)
        self._quotas: Quotas = {}
        self._meters: dict[tuple[str, str | None], Meter] = {}

    def change(self, quotas: Quotas) -> None:
        """Apply other quotas from the next request on; the measured rates stay."""
        self._quotas = quotas
        self._forget_meters()

    def _forget_meters(self) -> None:
        self._meters = {}

    def meter(self, principal: str, client_id: str | None) -> Meter:
        """Return the sensors of this client; `NOTHING` when no quota applies to it."""
        meter = self._meters.get((principal, client_id))
        if meter is None:
            meter = self._make(principal.partition(":")[2], client_id or "")
            if len(self._meters) >= MOST_SENSORS:
                self._forget_meters()
            self._meters[principal, client_id] = meter
        return meter

    def note_throttled(self, kind: str, throttle_ms: int) -> None:
        """A request was throttled, for this kind of quota."""
        self.throttled_count[kind] += 1
        self.throttled_ms[kind] += throttle_ms

    def _make(self, user: str, client: str) -> Meter:
        quotas, now_s = self._quotas, self.now()
        produce = find(quotas, PRODUCE, user, client)
        fetch = find(quotas, FETCH, user, client)
        request = find(quotas, REQUEST, user, client)
        mutation = find(quotas, MUTATION, user, client)
        if produce is None and fetch is None and request is None and mutation is None:
            return NOTHING
        return Meter(
            UNLIMITED if produce is None else self.produce.get(*produce, now_s),
            UNLIMITED if fetch is None else self.fetch.get(*fetch, now_s),
            UNLIMITED if request is None else self.request.get(request[0], request[1] / PERCENT, now_s),
            None if mutation is None else self.mutations.get(*mutation, now_s),
        )
