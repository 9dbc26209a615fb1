"""What a task of `load` does: read a range of offsets, make rows of the records, write files. The driver commits them.

Records that do not parse stop the task, or go to the dead letter topic. Letters are acknowledged before the task ends,
so before the commit: killed in between, or tried again by Spark, a letter is there twice. Its headers name topic,
partition and offset of the record, by which doubles are told.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from klamm.pipeline.errors import BadRecord, PipelineError
from klamm.pipeline.load.rows import Rows
from klamm.pipeline.ranges import OffsetRange
from klamm.pipeline.source.options import SourceOptions
from klamm.pipeline.table import DataFile, FilesWriter, Location

if TYPE_CHECKING:
    import pyarrow as pa

    from klamm.pipeline.values import Bad


@dataclass(frozen=True, slots=True)
class Recipe:
    """The same for all tasks of a job."""

    source: SourceOptions
    location: Location
    rows: Rows
    compression: str
    dead_letters: str | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a task has written. `dead` are the offsets of its dead letters, ascending."""

    wanted: OffsetRange
    files: tuple[DataFile, ...]
    records: int
    size_bytes: int
    dead: tuple[int, ...] = ()


def load_range(recipe: Recipe, wanted: OffsetRange) -> Loaded:
    """Raises PipelineError; files that are there by then are nobody's, until `vacuum` deletes them."""
    from klamm.pipeline.source.batch import arrow_batches

    writer = FilesWriter(recipe.location, wanted.topic, wanted.partition, compression=recipe.compression)
    records = size_bytes = 0
    dead: list[int] = []
    with ExitStack() as stack:
        letters = _Letters(recipe, wanted, stack)
        for batch in arrow_batches(recipe.source, wanted):
            rows, bad = recipe.rows.convert(batch)
            if bad:
                dead += letters.take(batch, bad)
            _write(writer, rows, wanted)
            records += len(rows)
            size_bytes += batch.nbytes
        letters.finish()
        files = tuple(writer.close())
    return Loaded(wanted, files, records, size_bytes, tuple(sorted(set(dead))))


def _write(writer: FilesWriter, rows: pa.RecordBatch, wanted: OffsetRange) -> None:
    try:
        writer.write(rows)
    except PipelineError as error:
        raise type(error)(f"{wanted.topic_partition} {error}") from None
    except OSError as error:
        raise PipelineError(f"{wanted.topic_partition}: cannot be written: {error}") from None


class _Letters:
    """The records that do not parse."""

    def __init__(self, recipe: Recipe, wanted: OffsetRange, stack: ExitStack) -> None:
        self._wanted = wanted

    def take(self, batch: pa.RecordBatch, bad: list[Bad]) -> list[int]:
        """Their offsets. Raises BadRecord where there is no dead letter topic."""
        offset = batch["offset"][bad[0].row].as_py()
        raise BadRecord(f"{self._wanted.topic_partition} offset {offset} does not parse: {bad[0].reason}")

    def finish(self) -> None:
        """All are acknowledged."""
