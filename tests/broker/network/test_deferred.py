"""A promise tells at once, and is otherwise a future."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from klamm.broker.network.deferred import Deferred


@pytest.mark.parametrize(
    "complete",
    [lambda p: p.set_result(1), lambda p: p.set_exception(ValueError("no")), lambda p: p.cancel()],
    ids=["result", "exception", "cancel"],
)
def test_callbacks_are_called_at_once_and_in_order(complete: Callable[[Deferred[int]], Any]) -> None:
    async def go() -> None:
        deferred: Deferred[int] = Deferred()
        called: list[tuple[str, bool]] = []
        for name in "abc":
            deferred.add_done_callback(lambda p, name=name: called.append((name, p.done())))
        removed = lambda _: called.append(("removed", True))  # noqa: E731
        deferred.add_done_callback(removed)
        assert deferred.remove_done_callback(removed) == 1
        complete(deferred)
        assert called == [("a", True), ("b", True), ("c", True)]
        assert not deferred.cancel()
        deferred.add_done_callback(lambda _: called.append(("late", True)))
        assert len(called) == 3
        await asyncio.sleep(0)
        assert called[3:] == [("late", True)]
        deferred.cancelled() or deferred.exception()

    asyncio.run(go())


def test_tasks_may_wait_for_it() -> None:
    async def go() -> None:
        deferred: Deferred[int] = Deferred()

        async def wait() -> int:
            return await deferred

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        deferred.set_result(7)
        assert not task.done()
        assert await task == 7
        other: Deferred[int] = Deferred()
        task = asyncio.ensure_future(asyncio.wait_for(asyncio.shield(other), 5))
        await asyncio.sleep(0)
        other.set_result(8)
        assert await task == 8

    asyncio.run(go())


def test_a_callback_that_fails_does_not_stop_the_others() -> None:
    async def go() -> None:
        problems: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        deferred: Deferred[int] = Deferred()
        called: list[int] = []

        def fails(_: object) -> None:
            raise ValueError("bug")

        deferred.add_done_callback(fails)
        deferred.add_done_callback(lambda p: called.append(p.result()))
        deferred.set_result(3)
        assert called == [3]
        assert [str(problem["exception"]) for problem in problems] == ["bug"]

    asyncio.run(go())
