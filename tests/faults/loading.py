"""A job that kills itself with -9 at a step: python -m tests.faults.loading STEP WHERE COMMAND ARGUMENTS

STEP is one of STEPS, or `never`. WHERE is `here` (tasks in this process) or `spark`; COMMAND is load or compact. The
steps are found by wrapping what the job calls; nothing in the product knows of them.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from deltalake import DeltaTable

import klamm.pipeline.commands.compact
import klamm.pipeline.commands.load
import klamm.pipeline.jobs.compact.job
import klamm.pipeline.jobs.load.job
import klamm.pipeline.spark.tasks
from klamm.pipeline.__main__ import main
from klamm.pipeline.jobs.compact.task import compact_range
from klamm.pipeline.jobs.load.task import load_range
from klamm.pipeline.table import Location

STEPS = ("before the write", "in the write", "before the commit", "after the commit")


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


class Killed:
    """The work of a task that kills the job at `step`. The task may be in another process, which dies last."""

    def __init__(self, step: str, work: Callable[[Any, Any], Any]) -> None:
        self.step = step
        self.work = work
        self.pid = os.getpid()

    def __call__(self, recipe: Any, item: Any) -> Any:
        if self.step == "before the write":
            kill(self.pid)
        new_file = Location.new_file

        @contextmanager
        def torn(location: Location, path: str) -> Iterator[Any]:
            with new_file(location, path) as file:
                file.write(b"PAR1")
                file.flush()
                kill(self.pid)
                yield file

        Location.new_file = torn  # type: ignore[method-assign]
        return self.work(recipe, item)


def arm(step: str) -> None:
    """Make the job die at `step` from now on."""
    assert step in (*STEPS, "never")
    if step in STEPS[:2]:
        klamm.pipeline.jobs.load.job.load_range = Killed(step, load_range)  # type: ignore[attr-defined]
        klamm.pipeline.jobs.compact.job.compact_range = Killed(step, compact_range)  # type: ignore[attr-defined]
    create = DeltaTable.create_write_transaction

    def killed(*arguments: Any, **keywords: Any) -> None:
        if step == "after the commit":
            create(*arguments, **keywords)
        kill(os.getpid())

    if step in STEPS[2:]:
        DeltaTable.create_write_transaction = killed  # type: ignore[method-assign]


def without_spark() -> None:
    """Run tasks in this process, so that a round takes a second."""

    class Session:
        def stop(self) -> None:
            pass

    for command in (klamm.pipeline.commands.load, klamm.pipeline.commands.compact):
        command.spark_session = lambda *_: Session()
    klamm.pipeline.spark.tasks.SparkTasks = lambda *_: klamm.pipeline.spark.tasks.LocalTasks()  # type: ignore[assignment, misc]


if __name__ == "__main__":
    arm(sys.argv[1])
    if sys.argv[2] == "here":
        without_spark()
    sys.exit(main(sys.argv[3:]))
