"""Tasks without DataFrames: work cut into items, done by Spark's tasks or in this process.

A function and its items are sent to the tasks, and the results return to the driver in the order of the items. Spark
retries a task that fails, so the function must allow that; only the result of the last attempt counts.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from klamm.pipeline.report import Progress
from klamm.pipeline.spark.session import unwrapped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S: Final = 0.2


class Result(Protocol):
    """The result of a task; it has the amount of work done."""

    @property
    def records(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...


T = TypeVar("T")
R = TypeVar("R", bound=Result)


class Tasks(Protocol):
    """A runner of work; `parallelism` is the number of items at once."""

    @property
    def parallelism(self) -> int: ...

    def run(self, work: Callable[[T], R], items: Sequence[T], progress: Progress) -> list[R]: ...


class LocalTasks:
    """A runner in this process, one item after the other: for small jobs and for tests."""

    parallelism = 1

    def run(self, work: Callable[[T], R], items: Sequence[T], progress: Progress) -> list[R]:
        found = []
        for item in items:
            found.append(work(item))
            progress.advance(found[-1].records, size_bytes=found[-1].size_bytes)
        return found


class SparkTasks:
    """A runner with a Spark task per item; or at most `most` tasks, each with several small items."""

    def __init__(self, spark: SparkSession, most: int | None = None) -> None:
        self._context = spark.sparkContext
        self._most = most

    @property
    def parallelism(self) -> int:
        return self._context.defaultParallelism

    def run(self, work: Callable[[T], R], items: Sequence[T], progress: Progress) -> list[R]:
        """Run the work. Raises PipelineError as raised by a task."""
        if not items:
            return []
        records, size_bytes = self._context.accumulator(0), self._context.accumulator(0)

        def several(group: list[tuple[int, T]]) -> list[tuple[int, R]]:
            found = []
            for index, item in group:
                result = work(item)
                records.add(result.records)
                size_bytes.add(result.size_bytes)
                found.append((index, result))
            return found

        groups = grouped(items, self._most)
        rows = self._context.parallelize(groups, len(groups)).flatMap(several)
        action = _Action(rows.collect)
        reported = (0, 0)
        while True:
            ended = action.wait(POLL_S)
            seen = (records.value, size_bytes.value)
            if seen[0] > reported[0] or ended:
                progress.advance(seen[0] - reported[0], size_bytes=seen[1] - reported[1])
                reported = seen
            if ended:
                return [result for _, result in sorted(action.result(), key=lambda pair: pair[0])]


def grouped(items: Sequence[T], most: int | None) -> list[list[tuple[int, T]]]:
    """Share items and their indexes out by their offset counts: the largest first, to the smallest group."""
    if most is None or len(items) <= most:
        return [[pair] for pair in enumerate(items)]
    groups: list[list[tuple[int, T]]] = [[] for _ in range(most)]
    heap = [(0, number) for number in range(most)]
    for index, item in sorted(enumerate(items), key=lambda pair: -_weight(pair[1])):
        weight, number = heapq.heappop(heap)
        groups[number].append((index, item))
        heapq.heappush(heap, (weight + _weight(item) + 1, number))
    return groups


def _weight(item: object) -> int:
    """Return the offsets of a range or piece; other items weigh the same."""
    return max(int(getattr(item, "end", 0)) - int(getattr(item, "start", 0)), 0)


class _Action:
    """One action in its own thread, so that progress is shown meanwhile."""

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
