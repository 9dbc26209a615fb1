"""The task of `load`: read a range of offsets, make rows of the records, write files. The driver commits them.

Records that do not parse stop the task, or go to the dead letter topic. Letters are acknowledged before the task ends,
so before the commit. If the task is killed in between, or Spark retries it, a letter is written twice. Its headers name
topic, partition and offset of the record, which identify duplicates.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from klamm.pipeline.errors import BadRecord, PipelineError
from klamm.pipeline.jobs.load.rows import Rows
from klamm.pipeline.spark.source.options import SourceOptions
from klamm.pipeline.table import DataFile, FilesWriter, Location

if TYPE_CHECKING:
    import pyarrow as pa

    from klamm.pipeline.jobs.dead_letters import DeadLetters
    from klamm.pipeline.spark.source.logs import Task
    from klamm.pipeline.values import Bad


@dataclass(frozen=True, slots=True)
class Recipe:
    """The settings that all tasks of a job share."""

    source: SourceOptions
    location: Location
    rows: Rows
    compression: str
    dead_letters: str | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of a task. `dead` are the offsets of its dead letters, ascending."""

    wanted: Task
    files: tuple[DataFile, ...]
    records: int
    size_bytes: int
    dead: tuple[int, ...] = ()


def load_range(recipe: Recipe, wanted: Task) -> Loaded:
    """Load a range. Raises PipelineError; files written by then belong to no commit, until `vacuum` deletes them."""
    from klamm.pipeline.spark.source.batch import arrow_batches

    writer = FilesWriter(recipe.location, wanted.topic, wanted.partition, compression=recipe.compression)
    records = size_bytes = 0
    dead: list[int] = []
    with ExitStack() as stack:
        letters = _Letters(recipe, wanted, stack)
        for batch in arrow_batches(recipe.source, wanted):
            rows, bad = recipe.rows.convert(batch)
            if bad:
                dead += letters.take(batch, bad)
            with _write_errors_named(wanted):
                writer.write(rows)
            records += len(rows)
            size_bytes += batch.nbytes
        letters.finish()
        with _write_errors_named(wanted):
            files = tuple(writer.close())
    return Loaded(wanted, files, records, size_bytes, tuple(sorted(set(dead))))


@contextmanager
def _write_errors_named(wanted: Task) -> Iterator[None]:
    """Turn a write error (a full disk, a store that refuses) into one line."""
    try:
        yield
    except OSError as error:
        raise PipelineError(f"{wanted.topic_partition}: its file cannot be written: {error}") from None


class _Letters:
    """The dead letters of a task."""

    def __init__(self, recipe: Recipe, wanted: Task, stack: ExitStack) -> None:
        self._topic = recipe.dead_letters
        self._connection = recipe.source.connection
        self._wanted = wanted
        self._stack = stack
        self._letters: DeadLetters | None = None

    def take(self, batch: pa.RecordBatch, bad: list[Bad]) -> list[int]:
        """Send the records that do not parse; return their offsets. Raises BadRecord without a dead letter topic."""
        reasons: dict[int, str] = {}
        for item in bad:
            reasons[item.row] = f"{reasons[item.row]}; {item.reason}" if item.row in reasons else item.reason
        rows = sorted(reasons)
        offsets: list[int] = batch["offset"].take(rows).to_pylist()
        if self._topic is None:
            partition = self._wanted.topic_partition
            raise BadRecord(
                f"{partition} offset {offsets[0]} does not parse: {reasons[rows[0]]}; nothing was committed"
            )
        self._started(self._topic).put(batch, reasons)
        return offsets

    def finish(self) -> None:
        """Wait until all letters are acknowledged."""
        if self._letters is not None:
            self._letters.flush()

    def _started(self, topic: str) -> DeadLetters:
        from klamm.pipeline.jobs.dead_letters import DeadLetters

        if self._letters is None:
            assert self._connection is not None
            cluster = self._stack.enter_context(self._connection.cluster())
            self._letters = DeadLetters(cluster, topic, job="load", task=str(self._wanted.topic_partition))
            self._stack.callback(self._letters.close)
        return self._letters
