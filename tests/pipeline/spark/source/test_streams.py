"""Streams and writes in Spark: ours and the stock connector's, against Klamm, with the same rows in the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from klamm.pipeline.errors import NotWritten, PipelineError, UnknownTopic
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.kafka.topics import create_topic
from klamm.pipeline.spark.session import pipeline_error, session, unwrapped
from tests.pipeline.spark.source.filling import KEPT, fill
from tests.pipeline.spark.source.streaming import FORMATS, KILLED_IN, TOPIC, started
from tests.support.broker_process import BrokerProcess
from tests.support.jars import jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.clients]
ROOT = Path(__file__).parents[4]
JARS = ",".join(str(path) for path in jars("spark"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("klamm") / "data") as process, Cluster(process.address) as cluster:
        fill(cluster, TOPIC, records=150)
        yield process


@pytest.fixture(scope="module")
def killed(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of queries after their process was killed within the third micro-batch."""
    directory = tmp_path_factory.mktemp("streams")
    script = [sys.executable, "-m", "tests.pipeline.spark.source.streaming", broker.address, str(directory), JARS]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr[-4000:]
    return directory


@pytest.fixture(scope="module")
def spark(killed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Tasks are tried twice. Not beside the process that is killed, for the memory of both."""
    directory = tmp_path_factory.mktemp("spark")
    conf = {
        "spark.jars": JARS,
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
    }
    session_ = session("tests", "local[2,2]", conf)
    yield session_
    session_.stop()


def read(spark: SparkSession, address: str, topic: str, form: str = "klamm") -> DataFrame:
    options = {"kafka.bootstrap.servers": address, "kafka.isolation.level": "read_committed"}
    return spark.read.format(form).options(**options, subscribe=topic, includeHeaders=True).load()


def rows(frame: DataFrame, *columns: str) -> list[Row]:
    found = frame.select(*columns) if columns else frame
    return sorted(found.collect(), key=str)


@pytest.mark.parametrize("form", FORMATS)
def test_a_stream_that_was_killed_goes_on_with_every_record_once(
    spark: SparkSession, broker: BrokerProcess, killed: Path, form: str
) -> None:
    assert max(os.listdir(killed / f"{form}.checkpoint" / "commits")) == str(KILLED_IN - 1)
    started(spark, form, broker.address, killed).awaitTermination(120)
    found = spark.read.parquet(str(killed / form)).drop("batch")
    assert len(os.listdir(killed / form)) > KILLED_IN
    assert rows(found) == rows(read(spark, broker.address, TOPIC)) != []


WRITTEN = ("key", "value", "partition", "headers")


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_written_is_read(spark: SparkSession, broker: BrokerProcess, form: str) -> None:
    name = f"written.{form}"
    with Cluster(broker.address) as cluster:
        create_topic(cluster, name, partitions=2, configs=KEPT)
    frame = read(spark, broker.address, TOPIC)
    write(frame.drop("topic"), form, broker.address, name).mode("append").save()
    columns = [*WRITTEN, "timestamp"] if form == "klamm" else WRITTEN
    assert rows(read(spark, broker.address, name), *columns) == rows(frame, *columns) != []
    assert rows(read(spark, broker.address, name, "kafka"), *columns) == rows(frame, *columns)


def test_keys_choose_the_partitions_that_the_stock_connector_chooses(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    names = {form: f"keyed.{form}" for form in FORMATS}
    frame = spark.range(200).selectExpr("concat('key', id) as key", "cast(id as string) as value")
    for form, name in names.items():
        with Cluster(broker.address) as cluster:
            create_topic(cluster, name, partitions=5, configs=KEPT)
        write(frame, form, broker.address, name).mode("append").save()
    ours, theirs = (rows(read(spark, broker.address, names[form]), "key", "value", "partition") for form in FORMATS)
    assert ours == theirs
    assert len({row.partition for row in ours}) == 5


@pytest.mark.parametrize("form", FORMATS)
def test_a_stream_is_written_as_a_stream(spark: SparkSession, broker: BrokerProcess, tmp_path: Path, form: str) -> None:
    name = f"streamed.{form}"
    with Cluster(broker.address) as cluster:
        create_topic(cluster, name, partitions=2, configs=KEPT)
    copied(spark, broker.address, name, form, tmp_path)
    expected = rows(read(spark, broker.address, TOPIC), *WRITTEN)
    assert rows(read(spark, broker.address, name), *WRITTEN) == expected
    if form == "klamm":  # killed between the commit of the last micro-batch and Spark's note of it
        commits = tmp_path / "commits"
        last = max(int(entry.name) for entry in commits.iterdir() if entry.name.isdigit())
        for entry in (commits / str(last), commits / f".{last}.crc"):
            entry.unlink()
        copied(spark, broker.address, name, form, tmp_path)
        assert (commits / str(last)).exists()
        assert rows(read(spark, broker.address, name), *WRITTEN) == expected


def copied(spark: SparkSession, address: str, topic: str, form: str, checkpoint: Path) -> None:
    """Run a query that copies the available rows."""
    source = {"kafka.bootstrap.servers": address, "kafka.isolation.level": "read_committed", "subscribe": TOPIC}
    source |= {"startingOffsets": "earliest", "includeHeaders": "true", "maxOffsetsPerTrigger": "150"}
    target = {"kafka.bootstrap.servers": address, "topic": topic, "checkpointLocation": str(checkpoint)}
    frame = spark.readStream.format(form).options(**source).load().drop("topic")
    query = frame.writeStream.format(form).options(**target).trigger(availableNow=True).start()
    with unwrapped():
        assert query.awaitTermination(120)


def test_a_task_that_fails_once_writes_its_rows_once(spark: SparkSession, broker: BrokerProcess) -> None:
    with Cluster(broker.address) as cluster:
        create_topic(cluster, "retried", configs=KEPT)
    write(failing(spark, attempts=1), "klamm", broker.address, "retried").mode("append").save()
    found = read(spark, broker.address, "retried").selectExpr("cast(value as string) as value")
    assert rows(found) == rows(failing(spark, attempts=0)) != []


def test_a_job_of_which_a_task_fails_writes_nothing(spark: SparkSession, broker: BrokerProcess) -> None:
    with Cluster(broker.address) as cluster:
        create_topic(cluster, "failing", configs=KEPT)
    with pytest.raises(Exception, match="lost on purpose"):
        write(failing(spark, attempts=9), "klamm", broker.address, "failing").option(
            "kafka.transaction.timeout.ms", "10000"
        ).mode("append").save()
    assert read(spark, broker.address, "failing").collect() == []
    with Cluster(broker.address) as cluster:
        (partition,) = cluster.topics(["failing"])["failing"].topic_partitions
        retries = cluster.retries(60)  # a task that began when the job had failed has its timeout
        while cluster.latest([partition], 1) != cluster.latest([partition], 0):
            retries.again("a transaction is left open")


def failing(spark: SparkSession, *, attempts: int) -> DataFrame:
    """1000 rows by two tasks, one of which fails after its rows so many times."""

    def rows_then_failure(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1 and context.attemptNumber() < attempts:
            raise ValueError("lost on purpose")

    frame = spark.range(0, 1000, 1, 2).selectExpr("cast(id as string) as value")
    return frame.mapInArrow(rows_then_failure, "value string")


def write(frame: DataFrame, form: str, address: str, topic: str) -> Any:
    return frame.write.format(form).option("kafka.bootstrap.servers", address).option("topic", topic)


def test_a_mistake_is_one_clear_line(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    frame = spark.range(3).selectExpr("cast(id as string) as value")
    with pytest.raises(UnknownTopic, match=r"^topic nosuch does not exist on [\d.:]+$"), unwrapped():
        write(frame, "klamm", broker.address, "nosuch").mode("append").save()
    with pytest.raises(PipelineError, match=r"^the column value is missing$"), unwrapped():
        write(frame.withColumnRenamed("value", "v"), "klamm", broker.address, TOPIC).mode("append").save()
    with pytest.raises(PipelineError, match=r"^a topic cannot be overwritten: use mode append$"), unwrapped():
        write(frame, "klamm", broker.address, TOPIC).mode("overwrite").save()
    with pytest.raises(NotWritten, match=rf"^topic {TOPIC} has partitions 0 to 1, not 7$"), unwrapped():
        write(frame.selectExpr("value", "7 as partition"), "klamm", broker.address, TOPIC).mode("append").save()
    source = {"kafka.bootstrap.servers": broker.address, "subscribe": "nosuch"}
    query = (
        spark.readStream.format("klamm")
        .options(**source)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    with pytest.raises(UnknownTopic, match=r"^topic nosuch does not exist on [\d.:]+$"), unwrapped():
        query.awaitTermination(60)
    assert isinstance(pipeline_error(query.exception()), UnknownTopic)
