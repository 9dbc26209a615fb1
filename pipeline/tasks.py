"""Work that is cut into items, done by Spark's tasks, or here: what a job needs of Spark when it needs no DataFrame.

A function and its items are sent to the tasks, and what they return comes back to the driver in the order of the items.
A task that fails is tried again by Spark, so the function must bear that; only what the last attempt returned counts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from klamm.pipeline.report import Progress
from klamm.pipeline.session import unwrapped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S: Final = 0.2


class Result(Protocol):
    """What a task returns tells how much it did."""

    @property
    def records(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...


T = TypeVar("T")
R = TypeVar("R", bound=Result)


class Tasks(Protocol):
    """Where work is done; `parallelism` is how many items at once."""

    @property
    def parallelism(self) -> int: ...

    def run(self, work: Callable[[T], R], items: Sequence[T], progress: Progress) -> list[R]: ...


class LocalTasks:
    """One after the other, in this process: for small jobs and for tests."""

    parallelism = 1

    def run(self, work: Callable[[T], R], items: Sequence[T], progress: Progress) -> list[R]:
        found = []
        for item in items:
            found.append(work(item))
            progress.advance(found[-1].records, size_bytes=found[-1].size_bytes)
        return found


class SparkTasks:
    """A task of Spark per item."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext

    @property
    def parallelism(self) -> int:
        return self._context.defaultParallelism

    def run(self, work: Callable[[T], R], items: Sequence[T], progress: Progress) -> list[R]:
        """Raises PipelineError as the task has raised it."""
        if not items:
            return []
        records, size_bytes = self._context.accumulator(0), self._context.accumulator(0)

        def one(item: T) -> R:
            result = work(item)
            records.add(result.records)
            size_bytes.add(result.size_bytes)
            return result

        rows = self._context.parallelize(items, len(items)).map(one)
        action = _Action(rows.collect)
        told = (0, 0)
        while True:
            ended = action.wait(POLL_S)
            seen = (records.value, size_bytes.value)
            if seen[0] > told[0] or ended:
                progress.advance(seen[0] - told[0], size_bytes=seen[1] - told[1])
                told = seen
            if ended:
                return list(action.result())


class _Action:
    """One action in a thread of its own, so that progress is told meanwhile."""

    def __init__(self, action: Callable[[], Any]) -> None:
        from pyspark import InheritableThread

        self._action = action
        self._found: Any = None
        self._error: BaseException | None = None
        self._ended = threading.Event()
        InheritableThread(target=self._run, daemon=True).start()

    def wait(self, timeout_s: float) -> bool:
        return self._ended.wait(timeout_s)

    def result(self) -> Any:
        if self._error is not None:
            with unwrapped():
                raise self._error
        return self._found

    def _run(self) -> None:
        try:
            self._found = self._action()
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()
