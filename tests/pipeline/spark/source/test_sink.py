"""The sink without Spark: what a task writes is seen when the driver commits it, once, however often it was tried."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka.partitioner.default import murmur2  # type: ignore[import-untyped]
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from klamm.pipeline.arrow import record_batches
from klamm.pipeline.errors import BadOption, NotWritten, UnknownTopic
from klamm.pipeline.kafka.cluster import READ_UNCOMMITTED, Cluster
from klamm.pipeline.kafka.fetcher import fetch_columns
from klamm.pipeline.kafka.topics import create_topic
from klamm.pipeline.kafka.two_phase_commit import abort_all, commit_all
from klamm.pipeline.ranges import OffsetRange
from klamm.pipeline.spark.source import sink as sink_module
from klamm.pipeline.spark.source.options import BATCH, STREAM, Connection
from klamm.pipeline.spark.source.rows import check_columns
from klamm.pipeline.spark.source.sink import BatchWriter, Place, Written, written
from klamm.pipeline.spark.source.sink_options import SinkOptions, parse_sink
from tests.pipeline.spark.source.filling import KEPT, START_MS
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with BrokerProcess(tmp_path_factory.mktemp("klamm") / "data") as broker, Cluster(broker.address) as cluster:
        yield cluster


def sink(cluster: Cluster, **more: str) -> SinkOptions:
    return parse_sink({"kafka.bootstrap.servers": cluster.bootstrap_servers, **more}, BATCH)


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def write(options: SinkOptions, *batches: pa.RecordBatch) -> Written:
    return written(options, iter(batches), now_ms=lambda: START_MS)


def transactions(*messages: Written) -> list[Any]:
    return [item.transaction for item in messages if item.transaction is not None]


def seen(cluster: Cluster, topic: str) -> list[tuple[Any, ...]]:
    """Committed rows, in order of partition and offset."""
    found = cluster.topics([topic])[topic]
    ends = cluster.latest(found.topic_partitions, READ_UNCOMMITTED)
    rows: list[tuple[Any, ...]] = []
    for one, end in ends.items():
        for part in record_batches(
            fetch_columns(cluster, OffsetRange(*one, 0, end)), topic, one.partition, headers=True
        ):
            for row in part.to_pylist():
                headers = [(item["key"], item["value"]) for item in row["headers"] or ()]
                millis = round(row["timestamp"].timestamp() * 1000)
                rows.append((one.partition, row["key"], row["value"], millis - START_MS, headers))
    return rows


def test_rows_are_seen_once_the_driver_commits(cluster: Cluster) -> None:
    create_topic(cluster, "plain", configs=KEPT)
    options = sink(cluster, topic="plain")
    message = write(options, batch(value=["a", None]), batch(value=[b"", b"b"], key=["k", None]))
    commit_all(cluster, transactions(message))
    assert seen(cluster, "plain") == [
        (0, None, b"a", 0, []),
        (0, None, None, 0, []),
        (0, b"k", b"", 0, []),
        (0, None, b"b", 0, []),
    ]


def test_columns_choose_topic_partition_time_and_headers(cluster: Cluster) -> None:
    for name in ("one", "two"):
        create_topic(cluster, name, partitions=3, configs=KEPT)
    headers = pa.array(
        [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None, []],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(["one", "two", "one"]),
            pa.array([2, None, 0], pa.int32()),
            pa.array([b"k", b"k", b"k"]),
            pa.array([b"1", b"2", b"3"]),
            pa.array([(START_MS + 5) * 1000, None, (START_MS - 5) * 1000], pa.timestamp("us", "UTC")),
            headers,
            pa.array([7, 8, 9]),
        ],
        names=["topic", "partition", "key", "value", "timestamp", "headers", "offset"],
    )
    commit_all(cluster, transactions(write(sink(cluster, **{"kafka.compression.type": "zstd"}), rows)))
    assert seen(cluster, "one") == [(0, b"k", b"3", -5, []), (2, b"k", b"1", 5, [("a", b"1"), ("b", None)])]
    ((partition, *rest),) = seen(cluster, "two")
    assert partition == (murmur2(b"k") & 0x7FFFFFFF) % 3
    assert rest == [b"k", b"2", 0, []]


def test_an_attempt_that_fails_leaves_nothing(cluster: Cluster) -> None:
    create_topic(cluster, "failing", configs=KEPT)
    options = sink(cluster, topic="failing")

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch(value=["lost"])
        raise ValueError("the query failed")

    with pytest.raises(ValueError, match="the query failed"):
        written(options, rows())
    commit_all(cluster, transactions(write(options, batch(value=["kept"]))))
    assert [row[2] for row in seen(cluster, "failing")] == [b"kept"]


def test_an_attempt_with_a_lost_result_is_replaced_by_the_next(cluster: Cluster) -> None:
    create_topic(cluster, "retried", configs=KEPT)
    options = sink(cluster, topic="retried")
    first = write(options, batch(value=["twice?"]))
    second = write(options, batch(value=["twice?"]))
    with pytest.raises(NotWritten, match=r"nothing was written$"):
        commit_all(cluster, transactions(first))
    commit_all(cluster, transactions(second))
    assert [row[2] for row in seen(cluster, "retried")] == [b"twice?"]


def test_a_job_that_is_aborted_leaves_nothing(cluster: Cluster) -> None:
    create_topic(cluster, "aborted", configs=KEPT)
    message = write(sink(cluster, topic="aborted"), batch(value=["lost"]))
    abort_all(cluster, transactions(message))
    assert seen(cluster, "aborted") == []
    with pytest.raises(NotWritten, match=r"nothing was written$"):
        commit_all(cluster, transactions(message))


def test_a_job_that_is_aborted_ends_what_tasks_without_a_result_have_written(cluster: Cluster) -> None:
    create_topic(cluster, "silent", configs=KEPT)
    options = sink(cluster, topic="silent")
    outcome = written(options, iter([batch(value=["lost"])]), place=Place(0))
    silent = written(options, iter([batch(value=["killed"])]), place=Place(1))
    schema = StructType([StructField("value", StringType())])
    BatchWriter(options, schema, overwrite=False).abort([outcome, None, None])
    (partition,) = cluster.topics(["silent"])["silent"].topic_partitions
    assert cluster.latest([partition]) == cluster.latest([partition], READ_UNCOMMITTED)
    with pytest.raises(NotWritten):
        commit_all(cluster, transactions(silent))
    assert seen(cluster, "silent") == []


def test_a_job_that_is_aborted_fences_with_a_timeout_that_the_cluster_takes(tmp_path: Path) -> None:
    short = {"transaction.max.timeout.ms": "30000"}
    with BrokerProcess(tmp_path / "data", short) as broker, Cluster(broker.address) as cluster:
        create_topic(cluster, "short", configs=KEPT)
        options = sink(cluster, topic="short", **{"kafka.transaction.timeout.ms": "20000"})
        silent = written(options, iter([batch(value=["killed"])]), place=Place(0))
        schema = StructType([StructField("value", StringType())])
        BatchWriter(options, schema, overwrite=False).abort([None])
        with pytest.raises(NotWritten):
            commit_all(cluster, transactions(silent))


def test_a_batch_that_is_written_within_a_stream_is_a_job_of_its_own(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Write as `foreachBatch` does: the tasks see the properties of the stream."""
    monkeypatch.setattr(sink_module, "_place", lambda: Place(0, "query", 3))
    schema = StructType([StructField("value", StringType())])
    for topic in ("mirrored", "again"):
        create_topic(cluster, topic, configs=KEPT)
        writer = BatchWriter(sink(cluster, topic=topic), schema, overwrite=False)
        writer.commit([writer.write(iter([batch(value=["same"])]))])
        assert [value for _, _, value, _, _ in seen(cluster, topic)] == [b"same"]


def test_one_transaction_that_is_gone_stops_all(cluster: Cluster) -> None:
    create_topic(cluster, "together", configs=KEPT)
    first, second = (write(sink(cluster, topic="together"), batch(value=["lost"])) for _ in range(2))
    abort_all(cluster, transactions(second))
    with pytest.raises(NotWritten, match=r"nothing was written$"):
        commit_all(cluster, transactions(first, second))
    assert seen(cluster, "together") == []


def test_a_later_run_with_the_same_id_ends_what_a_killed_one_left(cluster: Cluster) -> None:
    create_topic(cluster, "killed", configs=KEPT)
    options = sink(cluster, topic="killed", transactionalId="nightly")
    write(options, batch(value=["of the killed run"]))
    commit_all(cluster, transactions(write(options, batch(value=["of the next run"]))))
    (partition,) = cluster.topics(["killed"])["killed"].topic_partitions
    assert cluster.latest([partition]) == cluster.latest([partition], READ_UNCOMMITTED)
    assert [row[2] for row in seen(cluster, "killed")] == [b"of the next run"]


def test_a_micro_batch_that_is_repeated_is_written_once(cluster: Cluster) -> None:
    create_topic(cluster, "repeated", configs=KEPT)

    def run(batch_id: int, *values: str) -> Written:
        options = parse_sink({"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "repeated"}, STREAM)
        parts = iter([batch(value=list(values[:1])), batch(value=list(values[1:]))])
        return written(options, parts, place=Place(0, "query", batch_id))

    run(0, "a", "b")  # killed before the commit
    commit_all(cluster, transactions(run(0, "a", "b")))
    assert run(0, "a", "b").transaction is None  # killed after the commit
    commit_all(cluster, transactions(run(1, "a", "b")))
    with pytest.raises(NotWritten, match=r"^micro-batch 1 of .*query.0 has been written with other rows \(2 rows, .*"):
        run(1, "a", "c")
    with pytest.raises(NotWritten, match=r"^micro-batch 0 of .* has been written with other rows"):
        run(0, "a", "b")
    assert [row[2] for row in seen(cluster, "repeated")] == [b"a", b"b"] * 2


def test_no_rows_need_no_transaction(cluster: Cluster) -> None:
    options = sink(cluster, topic="nosuch")
    assert write(options).transaction is None
    assert write(options, batch(value=pa.array([], pa.binary()))).transaction is None


def test_rows_that_cannot_be_written_are_one_line(cluster: Cluster) -> None:
    create_topic(cluster, "narrow", configs={**KEPT, "max.message.bytes": "1000"})
    with pytest.raises(UnknownTopic, match=r"^topic nosuch does not exist on"):
        write(sink(cluster, topic="nosuch"), batch(value=["v"]))
    with pytest.raises(NotWritten, match=r"^a row has no topic"):
        write(sink(cluster), batch(value=["v"], topic=pa.array([None], pa.string())))
    with pytest.raises(NotWritten, match=r"^topic narrow has partitions 0 to 0, not 3$"):
        write(sink(cluster, topic="narrow"), batch(value=["v"], partition=pa.array([3], pa.int32())))
    with pytest.raises(NotWritten, match=r"narrow-0.*MESSAGE_TOO_LARGE"):
        write(sink(cluster, topic="narrow"), batch(value=["v" * 2000]))
    assert seen(cluster, "narrow") == []


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ("key string", "the column value is missing"),
        ("value string", "no topic is given, neither by the option topic nor by a column topic"),
        ("value int, topic string", "the column value is int: it must be binary or string"),
        ("value string, topic string, headers string", "the column headers is string: it must be array<struct<"),
    ],
)
def test_columns_that_cannot_be_written_are_one_line(columns: str, line: str) -> None:
    options = SinkOptions(Connection("a:1"), None, None, "job", 60.0, parse_sink(BASE, BATCH).codec, 1000)
    with pytest.raises(BadOption, match=f"^{line}"):
        check_columns(schema_of(columns), options)


BASE = {"kafka.bootstrap.servers": "a:1"}


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"kafka.acks": "1"}, "kafka.acks is 1: transactions need all"),
        ({"kafka.enable.idempotence": "false"}, "kafka.enable.idempotence is false: transactions need true"),
        ({"kafka.compression.type": "brotli"}, "kafka.compression.type is none or gzip or snappy or lz4 or zstd, not"),
        ({"kafka.linger.ms": "5"}, "option kafka.linger.ms: it is not known here"),
        ({"checkpointLocation": "/tmp"}, "option checkpointlocation: it is not known here"),
    ],
)
def test_a_wrong_option_is_one_line(given: dict[str, str], line: str) -> None:
    with pytest.raises(BadOption, match=f"^{line}"):
        parse_sink({**BASE, **given}, BATCH)


def test_streams_have_a_short_transaction_and_options_of_the_query() -> None:
    assert parse_sink({**BASE, "checkpointLocation": "/tmp"}, STREAM).transaction_timeout_s == 60
    assert parse_sink({**BASE, "kafka.transaction.timeout.ms": "5000"}, STREAM).transaction_timeout_s == 5
    with pytest.raises(BadOption, match=r"^transactionalId is for batches"):
        parse_sink({**BASE, "transactionalId": "x"}, STREAM)


def schema_of(text: str) -> StructType:
    """Return the schema of a DDL, without a session."""
    types = {"string": StringType(), "int": IntegerType()}
    pairs = (item.split(" ") for item in text.split(", "))
    return StructType([StructField(name, types[kind]) for name, kind in pairs])
