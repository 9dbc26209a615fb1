"""Retries after files changed during a read; and disk errors as one line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from klamm.pipeline.errors import DataLoss, PipelineError, UnknownTopic
from klamm.pipeline.segments.files import Vanished

T = TypeVar("T")

ATTEMPTS: Final = 60
PAUSE_S: Final = 0.05
"""The time between two listings of a changing directory: a partition that moves has none for a moment."""


def retried(work: Callable[[], T], what: str) -> T:
    """Return the result of the first attempt in which nothing vanished.

    A partition may be without a directory for a moment. Raises DataLoss when files keep vanishing, UnknownTopic when
    the partition stays away, PipelineError when the disk refuses.
    """
    for attempt in range(ATTEMPTS):
        try:
            with refusals_named(what):
                return work()
        except Vanished as error:
            vanished = error
        except UnknownTopic:
            if attempt >= ATTEMPTS // 10:
                raise
        time.sleep(PAUSE_S if attempt else 0)
    raise DataLoss(f"{what}: {vanished}")


@contextmanager
def refusals_named(what: str) -> Iterator[None]:
    """Turn an OSError (no permission, a bad disk) into a PipelineError that names the file."""
    try:
        yield
    except OSError as error:
        place = f"{error.filename}: " if error.filename is not None else ""
        raise PipelineError(f"{what}: {place}{error.strerror or error}") from None
