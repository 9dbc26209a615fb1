"""The place of the records: a cluster, log directories, or both. The options choose it, for drivers and tasks alike.

With both, topics and offsets come from the cluster, so that no record is read too early, and records come from the
files. A task then is a piece of a log (`klamm.pipeline.segments`), otherwise a range of offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from klamm.pipeline.kafka.cluster import READ_COMMITTED
from klamm.pipeline.kafka.fetcher import fetch_columns
from klamm.pipeline.ranges import OffsetRange
from klamm.pipeline.segments import LogDirs, Piece, read_columns
from klamm.pipeline.spark.source.directory_logs import DirectoryLogs
from klamm.pipeline.spark.source.options import SourceOptions
from klamm.pipeline.spark.source.planning import Logs, tasks
from klamm.protocol.records.columnar import Columns

Task = OffsetRange | Piece


@contextmanager
def opened(options: SourceOptions) -> Iterator[Logs]:
    """Open the logs, for planning."""
    if options.connection is None:
        yield DirectoryLogs(options.log_dirs)
        return
    with options.connection.cluster() as cluster:
        yield cluster


def planned(options: SourceOptions, ranges: Iterable[OffsetRange]) -> list[Task]:
    """Return the tasks for some ranges."""
    cut = tasks(ranges, options)
    if not options.log_dirs:
        return list(cut)
    directories = LogDirs(options.log_dirs)
    return [piece for item in cut for piece in directories.plan(item)]


def columns_of(options: SourceOptions, task: Task) -> Iterator[Columns]:
    """Yield the records of one task."""
    if isinstance(task, Piece):
        committed = options.isolation == READ_COMMITTED
        yield from read_columns(task, read_committed=committed, fail_on_data_loss=options.fail_on_data_loss)
        return
    assert options.connection is not None
    with options.connection.cluster() as cluster:
        yield from fetch_columns(
            cluster,
            task,
            isolation=options.isolation,
            fail_on_data_loss=options.fail_on_data_loss,
            fetch_bytes=options.fetch_bytes,
        )
