"""Batches in Spark: rows and columns are those of the stock connector, which reads from Klamm beside ours."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from klamm.pipeline.errors import BadOption, PipelineError, PoisonedBatch, UnknownTopic
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.ranges import nested
from klamm.pipeline.spark.session import unwrapped
from tests.pipeline.spark.source.filling import START_MS, fill
from tests.support.apache_kafka import apache_kafka
from tests.support.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.clients]
RECORDS = 200


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("klamm") / "data") as process, Cluster(process.address) as cluster:
        fill(cluster, "air.one", records=RECORDS)
        fill(cluster, "air.two", partitions=1, records=RECORDS, seed=8)
        yield process


def loaded(spark: SparkSession, form: str, address: str, options: Mapping[str, object]) -> DataFrame:
    reader = spark.read.format(form).option("kafka.bootstrap.servers", address)
    reader = reader.option("kafka.isolation.level", "read_committed")
    for name, value in options.items():
        reader = reader.option(name, value if isinstance(value, str) else json.dumps(value))
    return reader.load()


def rows(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))


def check(spark: SparkSession, address: str, options: Mapping[str, object], *, least: int = 1) -> None:
    with unwrapped():
        ours = loaded(spark, "klamm", address, options)
        theirs = loaded(spark, "kafka", address, options)
        assert ours.schema == theirs.schema
        found = rows(ours)
        assert found == rows(theirs)
    assert len(found) >= least


CASES: dict[str, dict[str, Any]] = {
    "topics": {"subscribe": "air.one,air.two", "includeHeaders": True},
    "offsets": {
        "subscribePattern": "air.*",
        "startingOffsets": {"air.one": {"0": 30, "1": -2}, "air.two": {"0": 50}},
        "endingOffsets": {"air.one": {"0": -1, "1": 120}, "air.two": {"0": 50}},
        "minPartitions": "7",
    },
    "time": {
        "assign": {"air.one": [1], "air.two": [0]},
        "startingTimestamp": str(START_MS + 40),
        "endingTimestamp": str(START_MS + 150),
        "maxRecordsPerPartition": "60",
    },
    "times": {
        "subscribe": "air.one",
        "startingOffsetsByTimestamp": {"air.one": {"0": START_MS + 40, "1": START_MS + 10**9}},
        "startingOffsetsByTimestampStrategy": "latest",
        "endingOffsetsByTimestamp": {"air.one": {"0": START_MS + 10**9, "1": START_MS + 10**9}},
    },
}


@pytest.mark.parametrize("case", CASES)
def test_rows_are_those_of_the_stock_connector(spark: SparkSession, broker: BrokerProcess, case: str) -> None:
    check(spark, broker.address, CASES[case], least=50)


@pytest.mark.java
def test_rows_are_those_of_the_stock_connector_at_apache_kafka(spark: SparkSession, tmp_path: Path) -> None:
    with apache_kafka(tmp_path) as kafka:
        with Cluster(kafka.address) as cluster:
            fill(cluster, "air.one", records=RECORDS)
        check(spark, kafka.address, {**CASES["topics"], "subscribe": "air.one"}, least=100)
        check(spark, kafka.address, CASES["times"], least=50)


def test_uncommitted_records_are_read_when_asked_for(spark: SparkSession, broker: BrokerProcess) -> None:
    committed = loaded(spark, "klamm", broker.address, {"subscribe": "air.two"})
    every = committed_or_not(spark, broker)
    assert every.count() == RECORDS > committed.count()


def committed_or_not(spark: SparkSession, broker: BrokerProcess) -> DataFrame:
    return loaded(spark, "klamm", broker.address, {"subscribe": "air.two", "kafka.isolation.level": "read_uncommitted"})


def test_filters_that_are_pushed_leave_the_same_rows_of_fewer_tasks(spark: SparkSession, broker: BrokerProcess) -> None:
    everything = loaded(spark, "klamm", broker.address, {"subscribePattern": "air.*"})
    condition = (
        f"topic = 'air.one' and partition >= 1 and offset between 20 and 90 and value is not null"
        f" and timestamp > timestamp_millis({START_MS + 30}) and timestamp <= timestamp_millis({START_MS + 70})"
    )
    expected = [
        row
        for row in rows(everything)
        if (row.topic, row.partition) == ("air.one", 1)
        and 20 <= row.offset <= 90
        and row.value is not None
        and START_MS + 30 < round(row.timestamp.timestamp() * 1000) <= START_MS + 70
    ]
    pushing = loaded(spark, "klamm", broker.address, {"subscribePattern": "air.*", "pushFilters": True}).where(
        condition
    )
    assert rows(pushing) == expected != []
    assert pushing.rdd.getNumPartitions() == 1
    assert rows(everything.where(condition)) == expected
    assert everything.where(condition).rdd.getNumPartitions() == 3


def test_filters_work_when_pushing_is_switched_off(spark: SparkSession, broker: BrokerProcess) -> None:
    name = "spark.sql.python.filterPushdown.enabled"
    assert spark.conf.get(name) == "true"
    spark.conf.set(name, "false")
    try:
        frame = loaded(spark, "klamm", broker.address, {"subscribe": "air.one", "pushFilters": True})
        found = rows(frame.where("partition = 1 and offset < 20"))
        assert found and all(row.partition == 1 and row.offset < 20 for row in found)
    finally:
        spark.conf.set(name, "true")


@pytest.mark.parametrize(
    ("options", "kind", "line"),
    [
        ({"subscribe": "nosuch"}, UnknownTopic, r"topic nosuch does not exist on 127.0.0.1:\d+"),
        ({"subscribePattern": "sea.*"}, UnknownTopic, r"no topic on 127.0.0.1:\d+ matches subscribePattern sea\.\*"),
        ({"subscribePattern": "air("}, BadOption, r"subscribePattern air\( is not a regular expression: .*"),
        ({"assign": {"air.one": [7]}}, UnknownTopic, "assign: topic air.one has no partition 7"),
        ({"subscribe": "air.one", "startingTimestamp": "noon"}, BadOption, "startingTimestamp is a number, not noon"),
        (
            {"subscribe": "air.two", "startingTimestamp": str(START_MS * 2)},
            BadOption,
            rf"startingTimestamp: air.two-0 has no record at or after {START_MS * 2}; .*",
        ),
        (
            {"subscribe": "air.one", "startingOffsets": {"air.one": {"0": 1}}},
            BadOption,
            "startingOffsets has nothing for air.one-1: it must name every partition that is read",
        ),
        (
            {"subscribe": "air.two", "endingOffsets": {"air.two": {"0": 99999}}},
            BadOption,
            r"endingOffsets: air.two-0 ends at \d+, there is no 99999",
        ),
        ({"subscribe": "air.one", "fetchSize": "5"}, BadOption, "option fetchsize: it is not known here"),
    ],
)
def test_a_mistake_is_one_clear_line(
    spark: SparkSession, broker: BrokerProcess, options: dict[str, object], kind: type[PipelineError], line: str
) -> None:
    with pytest.raises(kind, match=f"^{line}$"), unwrapped():
        loaded(spark, "klamm", broker.address, options).collect()


def test_a_damaged_batch_stops_the_task_in_one_line(spark: SparkSession, broker: BrokerProcess) -> None:
    with Cluster(broker.address) as cluster:
        fill(cluster, "bad", partitions=1, records=30)
    segment = broker.data / "bad-0" / f"{0:020}.log"
    damaged = bytearray(segment.read_bytes())
    damaged[70] ^= 1
    segment.write_bytes(damaged)
    with pytest.raises(PoisonedBatch, match=rf"^bad-0 offset 0 from {broker.address}: its CRC is .*$"), unwrapped():
        loaded(spark, "klamm", broker.address, {"subscribe": "bad"}).collect()


def test_the_columns_cannot_be_chosen(spark: SparkSession, broker: BrokerProcess) -> None:
    reader = spark.read.format("klamm").options(**{"kafka.bootstrap.servers": broker.address, "subscribe": "air.one"})
    with (
        pytest.raises(BadOption, match=r"^the columns are struct<key:binary,.*not struct<value:string>$"),
        unwrapped(),
    ):
        reader.schema("value string").load().collect()


def test_log_directories_give_the_same_rows_with_a_broker_and_without(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"subscribePattern": "air.*", "includeHeaders": True, "logDirs": str(broker.data)}
    expected = rows(loaded(spark, "klamm", broker.address, {name: options[name] for name in list(options)[:2]}))
    assert rows(loaded(spark, "klamm", broker.address, options)) == expected != []
    shutil.copytree(broker.data, tmp_path / "copy")
    reader = spark.read.format("klamm").options(**{**options, "logDirs": str(tmp_path / "copy")})
    assert rows(reader.load()) == expected
    since = reader.option("startingTimestamp", START_MS + 150).option("maxRecordsPerPartition", 40).load()
    late = [row for row in expected if round(row.timestamp.timestamp() * 1000) >= START_MS + 150]
    assert rows(since) == late != []


def test_an_empty_topic_has_no_rows(spark: SparkSession, broker: BrokerProcess) -> None:
    with Cluster(broker.address) as cluster:
        fill(cluster, "empty", records=0)
        assert nested(cluster.latest(cluster.topics(["empty"])["empty"].topic_partitions)) == {
            "empty": {"0": 0, "1": 0}
        }
    assert loaded(spark, "klamm", broker.address, {"subscribe": "empty"}).collect() == []
