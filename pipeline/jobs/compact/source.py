"""The sources of `compact`: a topic, or a table that `load` has made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from klamm.pipeline.errors import BadRecord, NotATable, SourceReplaced, UnknownTopic
from klamm.pipeline.jobs.load.plan import Plan
from klamm.pipeline.jobs.load.rows import Rows
from klamm.pipeline.jobs.verify.commit_history import current_files, read_commit_history
from klamm.pipeline.ranges import OffsetRange, TopicPartition
from klamm.pipeline.spark.source.options import SourceOptions
from klamm.pipeline.table import DataFile, Location, Table
from klamm.pipeline.table.files import MIXED
from klamm.pipeline.table.table import PARTITION_BY as LOADED_BY

if TYPE_CHECKING:
    import re

    import pyarrow as pa

    from klamm.pipeline.jobs.compact.task import Work

NOT_KEPT: Final = ("topic", "partition", "date")
ROWS: Final = 65_536


class Reader(Protocol):
    """The reader of the source; it is sent to tasks."""

    def read(self, work: Work) -> Iterator[pa.RecordBatch]:
        """Yield rows with the columns of the table, without those in its paths."""
        ...


@dataclass(frozen=True, slots=True)
class TopicReader:
    """A reader of topics. A record that does not parse stops the task."""

    source: SourceOptions
    rows: Rows

    def read(self, work: Work) -> Iterator[pa.RecordBatch]:
        from klamm.pipeline.spark.source.batch import arrow_batches
        from klamm.pipeline.spark.source.logs import planned

        pieces = planned(self.source, [work.wanted])
        for batch in (batch for piece in pieces for batch in arrow_batches(self.source, piece)):
            rows, bad = self.rows.convert(batch)
            if bad:
                offset = batch["offset"][bad[0].row].as_py()
                raise BadRecord(f"{work.wanted.topic_partition} offset {offset} does not parse: {bad[0].reason}")
            yield rows.select([name for name in rows.schema.names if name not in NOT_KEPT])


@dataclass(frozen=True, slots=True)
class TableReader:
    """A reader of the files that the driver has chosen."""

    location: Location

    def read(self, work: Work) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        filesystem = self.location.filesystem()
        for file in work.loaded:
            with filesystem.open_input_file(file.path) as stream:
                for batch in pq.ParquetFile(stream).iter_batches(ROWS):
                    offsets, wanted = batch["offset"], work.wanted
                    inside = pc.and_(pc.greater_equal(offsets, wanted.start), pc.less(offsets, wanted.end))
                    mine = pc.and_(inside, pc.equal(batch["partition"], wanted.partition))
                    rows = batch.filter(mine)
                    yield rows.select([name for name in rows.schema.names if name not in NOT_KEPT])


class LoadedTable:
    """A table that `load` has made, as a source. `wanted` selects topics."""

    def __init__(self, location: Location, wanted: re.Pattern[str] | frozenset[str] | None) -> None:
        self.table = Table.open(location)
        self._wanted = wanted
        if self.table.partition_by != list(LOADED_BY):
            raise NotATable(f"{location} is not a table that load has made: those are partitioned by topic and date")

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of its rows."""
        return self.table.schema

    def partitions(self) -> dict[TopicPartition, int]:
        """Return the partitions with their next offsets. Raises UnknownTopic."""
        found = {item: offset for item, offset in self.table.next_offsets.items() if self._means(item.topic)}
        if isinstance(self._wanted, frozenset) and (missing := self._wanted - {item.topic for item in found}):
            raise UnknownTopic(f"{self.table.location} has no topic {min(missing)}")
        if not found:
            raise UnknownTopic(f"{self.table.location} has none of the topics asked for")
        return found

    def plan(self, target: Table | None, *, rebuild: bool) -> Plan:
        """Plan to read the new rows. Raises SourceReplaced when rows that were read before have changed since."""
        committed = target.next_offsets if target is not None else {}
        ends = self.partitions()
        if target is not None and not rebuild:
            self._check_same(target, {item: committed.get(item, 0) for item in ends})
        starts = {} if rebuild else committed
        ranges = [OffsetRange(*item, starts.get(item, 0), max(end, starts.get(item, 0))) for item, end in ends.items()]
        plan = Plan(ranges, {item: committed.get(item) for item in ends}, job="compact")
        if rebuild and target is not None:
            topics = {item.topic for item in ends}
            plan.removed = [file for file in target.files() if file.topic in topics]
        return plan

    def files_of(self, plan: Plan) -> dict[TopicPartition, tuple[DataFile, ...]]:
        """Return the files with rows of each range."""
        files = current_files(self.table, read_commit_history(self.table))
        found = {}
        for item in plan.ranges:
            mine = [file for file in files if file.topic == item.topic and file.partition in (item.partition, MIXED)]
            found[item.topic_partition] = tuple(
                file for file in mine if file.partition == MIXED or (file.last >= item.start and file.first < item.end)
            )
        return found

    def _means(self, topic: str) -> bool:
        if self._wanted is None or isinstance(self._wanted, frozenset):
            return self._wanted is None or topic in self._wanted
        return self._wanted.fullmatch(topic) is not None

    def _check_same(self, target: Table, taken: dict[TopicPartition, int]) -> None:
        seen = next(
            (facts["source_version"] for commit in target.commits() if "source_version" in (facts := commit.facts)), -1
        )
        if seen < 0:
            return
        for commit in self.table.commits():
            if commit.version <= seen:
                return
            recreated = set(commit.facts.get("recreated", ())) & {item.topic for item in taken}
            if recreated:
                raise SourceReplaced(
                    f"{self.table.location}: topic {min(recreated)} was created again; --rebuild starts over"
                )
            for topic, partitions in commit.facts.get("ranges", {}).items():
                for number, (start, _) in partitions.items():
                    if start < taken.get(TopicPartition(topic, int(number)), 0):
                        raise SourceReplaced(
                            f"{self.table.location}: {topic}-{number} was loaded again from {start} on in version "
                            f"{commit.version}; --rebuild starts over"
                        )
        raise SourceReplaced(
            f"{self.table.location}: its log does not reach back to version {seen}; --rebuild starts over"
        )
