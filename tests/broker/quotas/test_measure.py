"""Rates and token buckets against the formula, and against Apache Kafka's own classes."""

from __future__ import annotations

import heapq
import math
import random

import pytest

from klamm.broker.quotas.measure import Rate, TokenBucket, Windows
from klamm.broker.quotas.sensor import MutationSensor, Sensor
from tests.support.jars import JAVA
from tests.support.java_process import JavaProcess

START_MS = 1_000_000


def test_the_first_record_counts_over_ten_windows() -> None:
    rate = Rate(Windows())
    rate.record(5000, START_MS)
    assert rate.measure(START_MS) == (5000, 10_000)
    assert rate.per_second(START_MS + 4000) == 500


def test_the_window_ends_with_the_current_time() -> None:
    rate = Rate(Windows())
    for second in range(12):
        rate.record(100, START_MS + second * 1000)
    assert rate.measure(START_MS + 11_000) == (1100, 10_000), "the first was emptied, a sample after its last event"
    assert rate.measure(START_MS + 11_900) == (1100, 10_900)


def test_samples_without_events_for_eleven_windows_are_emptied() -> None:
    rate = Rate(Windows())
    rate.record(7, START_MS)
    assert rate.measure(START_MS + 10_999)[0] == 7
    assert rate.measure(START_MS + 11_000) == (0, 10_000)


def test_a_burst_of_ten_seconds_is_allowed_to_an_idle_client() -> None:
    """Apache Kafka does the same: at 500 kB/s five requests of 930 kB pass, the sixth is throttled for 1.16 s."""
    sensor = Sensor(500_000, Windows())
    assert [sensor.record(930_000, 100.0) for _ in range(6)] == [0, 0, 0, 0, 0, 1160]


def test_a_bucket_begins_full_and_may_become_negative() -> None:
    """Apache Kafka does the same: one per second, topics of 6 partitions: two are made, the third has to wait."""
    sensor = MutationSensor(1.0, Windows())
    now_s = 50.0
    for _ in range(2):
        assert sensor.throttle_ms(now_s) == 0
        sensor.take(6, now_s)
    assert sensor.throttle_ms(now_s) == 1000
    assert sensor.throttle_ms(now_s + 0.029) == 971
    assert sensor.throttle_ms(now_s + 1) == 0


def test_tokens_come_back_up_to_the_burst() -> None:
    bucket = TokenBucket()
    assert bucket.take(5, 1.0, 11.0, START_MS) == 6
    assert bucket.tokens(1.0, 11.0, START_MS + 2000) == 8
    assert bucket.tokens(1.0, 11.0, START_MS + 60_000) == 11
    assert bucket.take(-100, 1.0, 11.0, START_MS + 60_000) == 11


def test_what_was_taken_from_the_allowance_counts_as_if_it_was_recorded_at_once() -> None:
    """Two sensors see the same: one records each value, the other counts down what it may and records the rest."""
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    chance = random.Random(seed)
    for _ in range(50):
        windows = Windows(chance.choice([2, 5, 11]), chance.choice([500, 1000, 2000]))
        bound = chance.choice([10.0, 1000.0, 1e6])
        exact, quick = Sensor(bound, windows), Sensor(bound, windows)
        now_s, spared = 1000.0, 0
        for _ in range(300):
            now_s += chance.choice([0, 0.001, 0.01, 0.1, 0.9, 1.5])
            value = float(round(bound * chance.choice([0.001, 0.01, 0.1, 0.5, 2])))
            throttle_ms = exact.record(value, now_s)
            if quick.left >= value > 0 and now_s < quick.until:
                quick.left -= value
                quick.used_s = now_s
                spared += 1
                assert throttle_ms == 0
            else:
                assert quick.record(value, now_s) == pytest.approx(throttle_ms, abs=1)
        assert spared


def test_another_bound_keeps_the_samples() -> None:
    sensor = Sensor(100.0, Windows())
    assert sensor.record(500, 10.0) == 0
    sensor.left -= 400
    sensor.change_bound(50.0)
    assert sensor.record(0, 10.5) == 7500  # (900 - 525) / 525 * 10.5 s


def test_taken_back() -> None:
    sensor = Sensor(100.0, Windows())
    assert sensor.record(2000, 10.0) == 10_000
    sensor.take_back(2000, 10.0)
    assert sensor.per_second(10.0) == 0
    assert sensor.record(1000, 10.0) == 0


@pytest.mark.parametrize("count", [1, 10, 50])
def test_a_quota_is_kept_over_a_minute_by_clients_that_share_it(count: int) -> None:
    """Each client sends as soon as it may, and all together keep to the quota within 10 %.

    This holds while the bytes that all send at once are few beside those allowed in ten seconds, here a twentieth.
    Each is throttled by the measure at the time of its send: with few bytes and many clients the error is larger, as
    in Apache Kafka.
    """
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    chance = random.Random(seed)
    rate, least, most = 1e6, 10**7 // count // 40, 3 * 10**7 // count // 40
    sensor = Sensor(rate, Windows())
    sent, start_s = 0, 1000.0
    due = [(start_s + number / 1000, number) for number in range(count)]
    while due[0][0] < start_s + 65:
        now_s, number = heapq.heappop(due)
        size = chance.randrange(least, most)
        sent += size if now_s >= start_s + 5 else 0  # after the burst of ten seconds' worth, which comes back
        heapq.heappush(due, (now_s + max(1, sensor.record(size, now_s)) / 1000, number))
    assert sent / 60 == pytest.approx(rate, rel=0.1)


@pytest.mark.java
def test_the_same_as_apache_kafka() -> None:
    """Random events, some of them very close, some far apart."""
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    chance = random.Random(seed)
    with JavaProcess("broker", JAVA / "quotas" / "Quotas.java") as java:
        for number in range(200):
            kind = chance.choice(["rate", "bucket"])
            windows = Windows(chance.choice([2, 3, 11]), chance.choice([100, 1000, 2000]))
            bound = chance.choice([0.5, 3.0, 100.0, 12345.6])
            now_ms, events = START_MS, []
            for _ in range(100):
                now_ms += chance.choice([0, 0, 1, 7, 100, 999, 1000, 1001, 5000, 30_000])
                events.append((now_ms, round(bound * chance.choice([0.01, 0.5, 1, 2, 30]), 3)))
            question = {"kind": kind, "bound": bound, "samples": windows.count, "window_ms": windows.size_ms}
            theirs = java.ask({**question, "events": events})["throttle_ms"]
            ours = throttled(kind, bound, windows, events)
            for place, (left, right) in enumerate(zip(ours, theirs, strict=True)):
                assert abs(left - right) <= 1, (seed, number, question, place, events[: place + 1])
            assert any(theirs) or kind == "bucket" or max(value for _, value in events) < 2 * bound


def throttled(kind: str, bound: float, windows: Windows, events: list[tuple[int, float]]) -> list[int]:
    if kind == "rate":
        sensor = Sensor(bound, windows)
        return [sensor.record(value, now_ms / 1000 + 1e-7) for now_ms, value in events]
    bucket, burst = TokenBucket(), bound * windows.burst_s
    left = [bucket.take(value, bound, burst, now_ms) for now_ms, value in events]
    return [math.floor(-tokens / bound * 1000 + 0.5) if tokens < 0 else 0 for tokens in left]
