"""Run work on many logs at once: mostly waiting for syncs, which the kernel combines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

MANY: Final = 32
SYNC_THREADS: Final = 16


def for_each(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return the result for each item. Many items are processed in threads."""
    known = list(items)
    if len(known) < MANY:
        return [work(item) for item in known]
    with ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="klamm-sync") as threads:
        return list(threads.map(work, known))
