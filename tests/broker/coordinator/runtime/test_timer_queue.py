"""TimerQueue against a dict."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm.broker.coordinator.runtime.timer_queue import TimerQueue

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 5), st.integers(0, 50)),
        st.tuples(st.just("cancel"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("pass"), st.just(0), st.integers(0, 20)),
    ),
    max_size=60,
)


@given(STEPS)
def test_every_key_is_due_once_at_its_last_deadline(steps: list[tuple[str, int, int]]) -> None:
    timers: TimerQueue[tuple[str, ...]] = TimerQueue()
    model: dict[tuple[str, ...], int] = {}
    now_ms, looked_ms = 0, -1
    for what, number, ms in steps:
        key = (str(number),)
        if what == "set":
            timers.set(key, now_ms + ms)
            model[key] = max(now_ms + ms, looked_ms + 1)
        elif what == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            now_ms += ms
            looked_ms = now_ms
            due = []
            while (found := timers.pop(now_ms)) is not None:
                due.append((model.pop(found), found))
            assert [at for at, _ in due] == sorted(at for at, _ in due)
            assert all(at > now_ms for at in model.values())
        assert len(timers) == len(model)
        next_ms = timers.next_ms()
        assert (next_ms is None) == (not model)
        assert next_ms is None or next_ms <= min(model.values())


def test_what_is_set_while_others_are_due_waits_for_the_next_look() -> None:
    """Else a machine that sets a timer to now, each time it comes, never lets go."""
    timers: TimerQueue[tuple[str, ...]] = TimerQueue()
    timers.set(("a",), 5)
    timers.set(("b",), 5)
    seen = []
    while (key := timers.pop(5)) is not None:
        seen.append(key)
        assert len(seen) <= 2
        timers.set(key, 5)
        timers.set(("c",), 4)
    assert seen == [("a",), ("b",)]
    assert timers.next_ms() == 6
    assert {timers.pop(6) for _ in range(4)} == {("a",), ("b",), ("c",), None}


def test_moving_a_deadline_a_million_times_does_not_grow_the_heap() -> None:
    timers: TimerQueue[tuple[str, ...]] = TimerQueue()
    for ms in range(10_000):
        timers.set(("a",), ms)
    assert len(timers._heap) == 1


def test_cancelled_keys_do_not_stay() -> None:
    timers: TimerQueue[tuple[str, ...]] = TimerQueue()
    for number in range(10_000):
        timers.set((str(number),), 10**9)
        timers.cancel((str(number),))
    assert len(timers._heap) < 200 and len(timers._queued) < 200
