"""What one request is charged with, from its dispatch to its answer."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any

from klamm.protocol.errors import ThrottlingQuotaExceeded

if TYPE_CHECKING:
    from klamm.broker.quotas.client_quotas import ClientQuotas, Meter
    from klamm.broker.quotas.sensor import MutationSensor


class Charge:
    """`spent_s` is the time that the loop has spent on a request that `has_waited`. `take_back` undoes what a fetch has
    noted as sent, for an empty response; it returns the id of the session. `is_failed`: an error stands for all of the
    request. `throttle_ms` is how long the client was throttled in the end."""

    __slots__ = ("has_waited", "is_failed", "meter", "mutations", "quotas", "spent_s", "take_back", "throttle_ms")

    def __init__(self, meter: Meter, quotas: ClientQuotas) -> None:
        self.meter = meter
        self.quotas = quotas
        self.has_waited = False
        self.is_failed = False
        self.spent_s = 0.0
        self.throttle_ms = 0
        self.mutations: Mutations | None = None
        self.take_back: Callable[[], int] | None = None

    def waits(self, spent_s: float) -> None:
        """The loop goes on with others; so much was spent before."""
        self.has_waited = True
        self.spent_s += spent_s

    def timed(self, coroutine: Coroutine[Any, Any, Any]) -> Timed:
        """The coroutine, with the time of its steps spent on this request."""
        self.has_waited = True
        return Timed(coroutine, self)

    def count_mutations(self, *, strict: bool) -> Callable[[int], None] | None:
        """What counts the partitions that the request makes or deletes; None when no quota is for them. It raises
        ThrottlingQuotaExceeded if it is `strict`."""
        sensor = self.meter.mutation
        if sensor is None:
            return None
        self.mutations = Mutations(sensor, strict=strict, now=self.quotas.now)
        return self.mutations.take


class Mutations:
    """The partitions that one request makes and deletes. `strict` refuses what begins when the quota is used up, as
    new versions of the APIs do; else everything is done, and waited for afterwards."""

    __slots__ = ("_now", "_sensor", "_strict", "_throttled_until_s")

    def __init__(self, sensor: MutationSensor, *, strict: bool, now: Callable[[], float]) -> None:
        self._sensor = sensor
        self._strict = strict
        self._now = now
        self._throttled_until_s = 0.0

    def take(self, count: int) -> None:
        """Count so many partitions. Raises ThrottlingQuotaExceeded, with nothing counted."""
        now_s = self._now()
        if self._strict and self._note(now_s):
            raise ThrottlingQuotaExceeded("the throttling quota of the user or client id has been exceeded")
        self._sensor.take(count, now_s)
        if not self._strict:
            self._note(now_s)

    def _note(self, now_s: float) -> bool:
        throttle_ms = self._sensor.throttle_ms(now_s)
        if throttle_ms:
            self._throttled_until_s = now_s + throttle_ms / 1000
        return throttle_ms > 0

    def throttle_ms(self) -> int:
        """Return how long the client is to be throttled from now on."""
        return max(0, round((self._throttled_until_s - self._now()) * 1000)) if self._throttled_until_s else 0


class Timed(Coroutine[Any, Any, Any]):
    """A coroutine of which each step is added to `charge.spent_s`."""

    def __init__(self, inner: Coroutine[Any, Any, Any], charge: Charge) -> None:
        self._inner = inner
        self._charge = charge

    def send(self, value: Any, /) -> Any:
        started = perf_counter()
        try:
            return self._inner.send(value)
        finally:
            self._charge.spent_s += perf_counter() - started

    def throw(self, kind: Any, value: Any = None, trace: TracebackType | None = None, /) -> Any:
        return self._inner.throw(kind) if value is None else self._inner.throw(kind, value, trace)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()
