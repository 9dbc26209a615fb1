"""Where records are: a cluster, log directories, or both. Chosen by the options, the same for drivers and tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from klamm.pipeline.ranges import OffsetRange
from klamm.pipeline.source.options import SourceOptions
from klamm.pipeline.source.planning import Logs
from klamm.pipeline.wire import read_wire
from klamm.protocol.records.columnar import Columns


@contextmanager
def opened(options: SourceOptions) -> Iterator[Logs]:
    """For planning."""
    assert options.connection is not None
    with options.connection.cluster() as cluster:
        yield cluster


def columns_of(options: SourceOptions, wanted: OffsetRange) -> Iterator[Columns]:
    """The records of one task."""
    assert options.connection is not None
    with options.connection.cluster() as cluster:
        yield from read_wire(
            cluster,
            wanted,
            isolation=options.isolation,
            fail_on_data_loss=options.fail_on_data_loss,
            fetch_bytes=options.fetch_bytes,
        )
