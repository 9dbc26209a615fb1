"""A load that kills itself with -9 at a step: python -m tests.faults.loading STEP WHERE ARGUMENTS

STEP is one of STEPS, or `never`. WHERE is `here` (tasks in this process) or `spark`; ARGUMENTS are those of
`klamm-pipeline load`. The steps are found by wrapping what the job calls; nothing in the product knows of them.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

import klamm.pipeline.commands.load as command
import klamm.pipeline.load.job
import klamm.pipeline.tasks
from klamm.pipeline.cli import main
from klamm.pipeline.load.task import Loaded, Recipe, load_range
from klamm.pipeline.source.logs import Task
from klamm.pipeline.table import FilesWriter

STEPS = ("before the write", "in the write", "before the commit", "after the commit")


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


class Killed:
    """`load_range` in a task, which may be another process: the job is killed there, a task with it at last."""

    def __init__(self, step: str) -> None:
        self.step = step
        self.pid = os.getpid()

    def __call__(self, recipe: Recipe, wanted: Task) -> Loaded:
        if self.step == "before the write":
            kill(self.pid)
        write = FilesWriter.write

        def torn(writer: FilesWriter, batch: pa.RecordBatch) -> None:
            write(writer, batch.slice(0, len(batch) // 2))
            kill(self.pid)

        if self.step == "in the write":
            FilesWriter.write = torn  # type: ignore[method-assign]
        return load_range(recipe, wanted)


def arm(step: str) -> None:
    """From now on the job dies there."""
    assert step in (*STEPS, "never")
    if step in STEPS[:2]:
        klamm.pipeline.load.job.load_range = Killed(step)  # type: ignore[attr-defined]
    create = DeltaTable.create_write_transaction

    def killed(*arguments: Any, **keywords: Any) -> None:
        if step == "after the commit":
            create(*arguments, **keywords)
        kill(os.getpid())

    if step in STEPS[2:]:
        DeltaTable.create_write_transaction = killed  # type: ignore[method-assign]


def without_spark() -> None:
    """Tasks run in this process, so that a round takes a second."""

    class Session:
        def stop(self) -> None:
            pass

    command.spark_session = lambda *arguments: Session()  # type: ignore[assignment, return-value]
    klamm.pipeline.tasks.SparkTasks = lambda *_: klamm.pipeline.tasks.LocalTasks()  # type: ignore[assignment, misc]


if __name__ == "__main__":
    arm(sys.argv[1])
    if sys.argv[2] == "here":
        without_spark()
    sys.exit(main(["load", *sys.argv[3:]]))
