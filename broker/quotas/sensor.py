"""The measure of one kind of quota of one entity, with the bound that holds for it, and how long it is throttled.

A `Sensor` measures bytes or seconds with a `Rate`. To record a value costs a few microseconds, too much for the
shortest paths; these take from an allowance instead: until `until`, `left` may be counted down without a look at the
samples, with the time noted in `used_s`. The allowance cannot bring the rate above the bound even if no more time
passes, and it ends with the current sample; so an amount that is counted down and settled later
adds the same to the same sample as if it had been recorded at once.

A `MutationSensor` counts partitions that are made and deleted with a token bucket (KIP-599).

Times are seconds of a monotonic clock.
"""

from __future__ import annotations

import math
from typing import Final

from klamm.broker.quotas.measure import Rate, TokenBucket, Windows


class Sensor:
    """See above."""

    __slots__ = (
        "_lent",
        "_rate",
        "_windows",
        "bound",
        "is_gone",
        "left",
        "placed_s",
        "throttled_ms",
        "until",
        "used_s",
    )

    def __init__(self, bound: float, windows: Windows) -> None:
        self.bound = bound
        self.left = 0.0
        self.until = 0.0
        self.used_s = self.placed_s = 0.0
        self._windows = windows
        self._rate = Rate(windows)
        self._lent = 0.0

    def charge(self, value: float, now_s: float) -> int:
        """Record, and return for how many milliseconds the client is to be throttled: 0 within the bound."""
        if value < self.left and now_s < self.until:
            self.left -= value
            self.used_s = now_s
            return 0
        return self.record(value, now_s)

    def record(self, value: float, now_s: float) -> int:
        """The same with a look at the samples, and a new allowance."""
        now_ms = int(now_s * 1000)
        self._settle()
        rate = self._rate
        rate.record(value, now_ms)
        total, window_ms = rate.measure(now_ms)
        allowed = self.bound * window_ms / 1000
        throttle_ms = 0
        if total > allowed:
            throttle_ms = math.floor((total - allowed) / allowed * window_ms + 0.5) if allowed else window_ms
        self._lend(total, now_ms)
        self.used_s = now_s
        return throttle_ms

    def take_back(self, value: float, now_s: float) -> None:
        """Undo a charge of just now."""
        self._settle()
        self._rate.record(-value, int(now_s * 1000))

    def per_second(self, now_s: float) -> float:
        """The rate at this time."""
        self._settle()
        return self._rate.per_second(int(now_s * 1000))

    def change_bound(self, bound: float) -> None:
        """Set another bound; the samples stay."""
        self._settle()
        self.bound = bound

    def drop(self) -> None:
        """Allow nothing more without a look; a look then finds another sensor."""
        self._lent = self.left = self.until = 0.0

    @property
    def most_at_once(self) -> float:
        """What an idle client may use within the bound."""
        return self.bound * self._windows.least_ms / 1000

    def _lend(self, total: float, now_ms: int) -> None:
        self._lent = self.left = max(0.0, self.most_at_once - total)
        self.until = self._rate.sample_ends_ms(now_ms) / 1000

    def _settle(self) -> None:
        """Record the amount counted down, at the time of its last part. No allowance is left then."""
        taken = self._lent - self.left
        if taken:
            self._rate.record(taken, int(self.used_s * 1000))
        self._lent = self.left = 0.0


class NoSensor(Sensor):
    """The sensor of a kind without a quota: it allows everything and measures nothing."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(math.inf, Windows())
        self.left = self.until = math.inf

    def record(self, value: float, now_s: float) -> int:
        return 0

    def take_back(self, value: float, now_s: float) -> None:
        pass


NO_SENSOR: Final = NoSensor()


class MutationSensor:
    """Partitions made and deleted per second. Times are of the thread that changes the metadata, and of no other."""

    __slots__ = ("_bucket", "_windows", "bound", "placed_s", "used_s")

    def __init__(self, bound: float, windows: Windows) -> None:
        self.bound = bound
        self.used_s = self.placed_s = 0.0
        self._windows = windows
        self._bucket = TokenBucket()

    def throttle_ms(self, now_s: float) -> int:
        """How long it takes until there are tokens again; 0 when there are."""
        tokens = self._bucket.tokens(self.bound, self._burst, int(now_s * 1000))
        return math.floor(-tokens / self.bound * 1000 + 0.5) if tokens < 0 else 0

    def take(self, count: int, now_s: float) -> None:
        """Take a token for each partition; there may be fewer."""
        self.used_s = now_s
        self._bucket.take(count, self.bound, self._burst, int(now_s * 1000))

    def change_bound(self, bound: float) -> None:
        """Set another bound; the tokens stay."""
        self.bound = bound

    def drop(self) -> None:
        """Nothing to be done: see `Sensor`."""

    @property
    def _burst(self) -> float:
        return self.bound * self._windows.burst_s
