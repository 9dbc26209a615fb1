"""The job `publish`: a Delta table back to a topic, in one transaction.

delta-rs selects the rows in SQL: a version, a part of it, or the rows that an earlier version does not have. (Each row
counts, so rewriting or compacting a table changes nothing unless rows change.) Columns have the names that Spark's
Kafka connector uses for writing:

    key         binary or string, may be missing             value     binary or string; with `as_json` anything
    topic       where no topic is given                      partition where `keep_partitions` says so, else by the key
    headers     array<struct<key: string, value: binary>>    timestamp kept where there is one (the connector drops it)

A reader of committed transactions sees all of it, or nothing. A mark of the publication is committed in the same
transaction, as the offset of the group `klamm-publish.<table id>`. So a run that is killed anywhere and repeated writes
nothing twice, and a publication is not repeated unless asked for.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from klamm.pipeline.errors import BadOption, PipelineError
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.kafka.encoding import encode_batches, header_tails
from klamm.pipeline.kafka.groups import committed
from klamm.pipeline.kafka.partitioner import NO_KEY, partitions_of
from klamm.pipeline.kafka.producer import Producer
from klamm.pipeline.ranges import TopicPartition
from klamm.pipeline.table.table import first_line
from klamm.protocol.records.compression import Codec

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from klamm.pipeline.table import Table

GATHERED_BYTES: Final = 16 << 20
TRANSACTION_TIMEOUT_S: Final = 900.0
"""The most that brokers allow by default (transaction.max.timeout.ms)."""
HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
IN_ORDER: Final = ("topic", "partition", "offset")
NUMBERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows to publish, and their form."""

    topic: str | None = None
    key: str = "key"
    value: str = "value"
    where: str | None = None
    since_version: int | None = None
    tombstones: bool = False
    as_json: bool = False
    keep_partitions: bool = False
    codec: Codec = Codec.NONE

    @property
    def fingerprint(self) -> str:
        """Return a text by which two selections of one version differ: they are two publications."""
        return f"{zlib.crc32(repr(self).encode()):08x}"


@dataclass(frozen=True, slots=True)
class Published:
    """The result. `records` is 0 and `again` is set if it was published before."""

    records: int
    size_bytes: int
    again: bool = False


class Publication:
    """One version of a table, or its changes, for one cluster."""

    def __init__(self, table: Table, selection: Selection, before: Table | None = None) -> None:
        self.table = table
        self.selection = selection
        self._before = before
        self._names = table.schema.names
        self._check()

    # -- the records

    @property
    def mark(self) -> str:
        """Return the mark that is committed with the records."""
        return f"version {self.table.version} {self.selection.fingerprint}"

    @property
    def group(self) -> str:
        return f"klamm-publish.{self.table.delta.metadata().id}"

    def count(self) -> int:
        """Return the number of records to send."""
        rows = self._asked(f"select count(*) as n from ({self._sql(ordered=False)})")
        total = sum(batch["n"].to_pylist()[0] for batch in rows)
        if (gone := self._tombstones_sql()) is not None:
            total += sum(batch["n"].to_pylist()[0] for batch in self._asked(f"select count(*) as n from ({gone})"))
        return int(total)

    def topics(self) -> list[str]:
        """Return the topics to write to."""
        if self.selection.topic is not None:
            return [self.selection.topic]
        sql = f"select distinct topic from ({self._sql(ordered=False)})"
        found = [name for batch in self._asked(sql) for name in batch["topic"].to_pylist()]
        if None in found:
            raise PipelineError(f"{self.table.location}: there are rows without a topic; name one with --topic")
        return sorted(found)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, with columns key, value, and topic, partition, headers and timestamp if they exist."""
        yield from self._asked(self._sql(ordered=True))
        if (gone := self._tombstones_sql()) is not None:
            yield from self._asked(gone)

    # -- SQL

    def _sql(self, *, ordered: bool) -> str:
        selection = self.selection
        columns = [f"{_quoted(selection.value)} as value"]
        if selection.key in self._names:
            columns.insert(0, f"{_quoted(selection.key)} as key")
        columns += [name for name in ("topic", "partition", "headers", "timestamp") if name in self._names]
        rows = "now"
        if self._before is not None:
            rows = "(select * from now except all select * from before) as now"
        sql = f"select {', '.join(columns)} from {rows}"
        if selection.where is not None:
            sql += f" where {selection.where}"
        order = [name for name in IN_ORDER if name in self._names]
        return f"{sql} order by {', '.join(order)}" if ordered and order else sql

    def _tombstones_sql(self) -> str | None:
        """Return the SQL of the keys that were there before and are gone."""
        if not self.selection.tombstones:
            return None
        key = _quoted(self.selection.key)
        columns = f"{key} as key, null as value"
        if self.selection.topic is None:
            columns += ", topic"
        same = f"n.{key} = b.{key}" + ("" if self.selection.topic is not None else " and n.topic = b.topic")
        where = "" if self.selection.where is None else f" and {self.selection.where}"
        return (
            f"select distinct {columns} from before b where {key} is not null{where}"
            f" and not exists (select 1 from now n where {same})"
        )

    def _asked(self, sql: str) -> Iterator[pa.RecordBatch]:
        from deltalake import QueryBuilder

        builder = QueryBuilder()
        registered: list[tuple[str, DeltaTable]] = [("now", self.table.delta)]
        if self._before is not None:
            registered.append(("before", self._before.delta))
        for name, delta in registered:
            builder = builder.register(name, delta)
        try:
            yield from pa.RecordBatchReader.from_stream(builder.execute(sql))
        except PipelineError:
            raise
        except Exception as error:
            raise PipelineError(f"{self.table.location}: {first_line(error)}") from None

    def _check(self) -> None:
        """Check the options. Raises BadOption."""
        selection, names = self.selection, self._names
        if selection.value not in names:
            raise BadOption(
                f"{self.table.location} has no column {selection.value}; --value names one of {_listed(names)}"
            )
        if selection.key != "key" and selection.key not in names:
            raise BadOption(f"{self.table.location} has no column {selection.key}; --key names one of {_listed(names)}")
        if selection.topic is None and "topic" not in names:
            raise BadOption(f"{self.table.location} has no column topic: --topic names the topic")
        if selection.keep_partitions and "partition" not in names:
            raise BadOption(f"{self.table.location} has no column partition to keep")
        if selection.tombstones and (self._before is None or selection.key not in names):
            raise BadOption("--tombstones needs --since-version, and a column of keys")
        for column in {selection.key, selection.value} & set(names):
            kind = self.table.schema.field(column).type
            if not (_is_content(kind) or (column == selection.value and selection.as_json)):
                raise BadOption(
                    f"{self.table.location}: column {column} is {kind}, not binary or string"
                    + (": --json writes it as JSON" if column == selection.value else "")
                )


def publish(
    publication: Publication,
    cluster: Cluster,
    *,
    again: bool = False,
    on_progress: Callable[[int, int], None] = lambda records, size_bytes: None,
    transaction_timeout_s: float = TRANSACTION_TIMEOUT_S,
) -> Published:
    """Send all of it, or nothing. Raises ProducerFenced when another run has taken over."""
    names = publication.topics()
    if not names:
        return Published(0, 0)
    partitions = {name: len(topic.partitions) for name, topic in cluster.topics(names).items()}
    place = TopicPartition(names[0], 0)
    with Producer(cluster, transactional_id=publication.group, transaction_timeout_s=transaction_timeout_s) as producer:
        before = committed(cluster, publication.group, [place], stable=True).get(place)
        if before is not None and before.metadata == publication.mark and not again:
            return Published(0, 0, again=True)
        producer.begin()
        records = size_bytes = 0
        for batch in publication.batches():
            for partition, data, count in _encoded(batch, publication.selection, partitions):
                producer.send(partition, data)
                records += count
                size_bytes += len(data)
                on_progress(count, len(data))
        producer.send_offsets(publication.group, {place: records}, publication.mark)
        producer.commit()
    return Published(records, size_bytes)


def _encoded(
    batch: pa.RecordBatch, selection: Selection, partitions: dict[str, int]
) -> Iterator[tuple[TopicPartition, bytearray, int]]:
    """Yield the rows for each partition, in order."""
    count = len(batch)
    if not count:
        return
    keys = _content(batch["key"]) if "key" in batch.schema.names else pa.nulls(count, pa.binary())
    values = (
        _json(batch["value"])
        if selection.as_json and not _is_content(batch["value"].type)
        else _content(batch["value"])
    )
    timestamps = _timestamps(batch)
    tails = header_tails(batch["headers"].cast(HEADERS)) if "headers" in batch.schema.names else None
    for partition, rows in _places(batch, keys, selection, partitions):
        at = pa.array(rows)
        for encoded in encode_batches(
            keys.take(at),
            values.take(at),
            timestamps[rows],
            None if tails is None else tails.take(at),
            codec=selection.codec,
        ):
            yield partition, encoded.data, encoded.count


def _places(
    batch: pa.RecordBatch, keys: Any, selection: Selection, partitions: dict[str, int]
) -> Iterator[tuple[TopicPartition, Any]]:
    topics = np.zeros(len(batch), np.int64)
    names = [selection.topic or ""]
    if selection.topic is None:
        encoded = pc.dictionary_encode(batch["topic"].cast(pa.string()))
        topics, names = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary.to_pylist()
    for index, name in enumerate(names):
        rows = np.flatnonzero(topics == index)
        at = pa.array(rows)
        chosen = partitions_of(keys.take(at), partitions[name])
        if "partition" in batch.schema.names:
            given = batch["partition"].take(at).to_numpy(zero_copy_only=False).astype(np.int64)
            if selection.keep_partitions:
                chosen = given
                if len(given) and given.max() >= partitions[name]:
                    raise PipelineError(
                        f"topic {name} has {partitions[name]} partitions, and a row is for {given.max()}"
                    )
            else:
                chosen = np.where(chosen == NO_KEY, given % partitions[name], chosen)
        chosen[chosen == NO_KEY] = 0
        for partition in np.unique(chosen).tolist():
            yield TopicPartition(name, partition), rows[chosen == partition]


def _timestamps(batch: pa.RecordBatch) -> Any:
    """Return milliseconds; the current time where a row has none."""
    if "timestamp" not in batch.schema.names:
        return np.full(len(batch), _now_ms(), np.int64)
    millis = batch["timestamp"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return pc.fill_null(pc.divide(millis, 1000), _now_ms()).to_numpy(zero_copy_only=False)


def _now_ms() -> int:
    import time

    return time.time_ns() // 1_000_000


def _is_content(kind: Any) -> bool:
    return bool(
        pa.types.is_null(kind)
        or kind in (pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view(), pa.string_view())
    )


def _content(column: Any) -> Any:
    """Return the column as binary."""
    if column.type == pa.string_view():
        column = column.cast(pa.string())
    return column.cast(pa.binary())


def _json(column: Any) -> Any:
    """Return each value as JSON in UTF-8, null as null. Arbitrary types need Python work per record."""
    rows = [
        None if row is None else json.dumps(row, default=str, ensure_ascii=False).encode() for row in column.to_pylist()
    ]
    return pa.array(rows, pa.binary())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _listed(names: list[str]) -> str:
    return ", ".join(names)
