"""How much a client has used: a rate over samples, and a bucket of tokens. Pure; times are handed in, in milliseconds.

`Rate` is `Rate` over `SampledStat` of Apache Kafka's metrics. A sample ends when it is a window old; one in which
nothing was recorded for `count` windows is emptied. The rate is the sum of the samples over the time since the oldest
of them began, where a full window is added for each that is missing to `count` - 1: so a client that was idle may use
ten windows' worth at once, with the defaults.

`TokenBucket` is the bucket of KIP-599: it begins full, with `count` windows' worth, and may become negative.
"""

from __future__ import annotations

from dataclasses import dataclass

START, LAST, VALUE = range(3)  # of a sample: when it began, when something was recorded last, and the sum


@dataclass(frozen=True, slots=True)
class Windows:
    """`quota.window.num` samples of `quota.window.size.seconds`."""

    count: int = 11
    size_ms: int = 1000

    @property
    def least_ms(self) -> int:
        """The shortest time that a rate is taken over."""
        return (self.count - 1) * self.size_ms

    @property
    def burst_s(self) -> float:
        """A bucket holds what its rate allows in this time."""
        return self.count * self.size_ms / 1000


class Rate:
    """The recorded amounts, by sample. One sample more than `count` is kept, for the one that has just begun."""

    __slots__ = ("_current", "_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[list[float]] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Add to the sample of this time; a negative value takes back."""
        if not self._samples:
            self._samples.append([now_ms, now_ms, 0.0])
        sample = self._samples[self._current]
        if now_ms - sample[START] >= self._windows.size_ms:
            sample = self._next_sample(now_ms)
        sample[VALUE] += value
        sample[LAST] = now_ms

    def _next_sample(self, now_ms: int) -> list[float]:
        self._current = (self._current + 1) % (self._windows.count + 1)
        if self._current >= len(self._samples):
            self._samples.append([now_ms, now_ms, 0.0])
        else:
            self._samples[self._current][:] = (now_ms, now_ms, 0.0)
        return self._samples[self._current]

    def measure(self, now_ms: int) -> tuple[float, int]:
        """The sum of the samples, and the milliseconds that it is taken over."""
        windows = self._windows
        expired = now_ms - windows.count * windows.size_ms
        total, oldest = 0.0, now_ms
        for sample in self._samples:
            if sample[LAST] <= expired:
                sample[:] = (now_ms, now_ms, 0.0)
            total += sample[VALUE]
            oldest = min(oldest, int(sample[START]))
        elapsed = now_ms - oldest
        missing = windows.count - 1 - elapsed // windows.size_ms
        return total, elapsed + max(0, missing) * windows.size_ms

    def per_second(self, now_ms: int) -> float:
        """The rate at this time."""
        total, window_ms = self.measure(now_ms)
        return total / (window_ms / 1000) if window_ms else 0.0

    def sample_ends_ms(self, now_ms: int) -> int:
        """Return the time until which new amounts go to the current sample."""
        if not self._samples:
            return now_ms
        return int(self._samples[self._current][START]) + self._windows.size_ms


class TokenBucket:
    """Tokens that are taken, and come back at a rate."""

    __slots__ = ("_tokens", "_updated_ms")

    def __init__(self) -> None:
        self._tokens = 0.0
        self._updated_ms: int | None = None

    def tokens(self, rate: float, burst: float, now_ms: int) -> float:
        """How many there are; negative when more were taken than there were."""
        if self._updated_ms is None:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + rate * (now_ms - self._updated_ms) / 1000)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, count: float, rate: float, burst: float, now_ms: int) -> float:
        """Take tokens, also more than there are; return the rest, which may be negative."""
        self._tokens = min(burst, self.tokens(rate, burst, now_ms) - count)
        return self._tokens
