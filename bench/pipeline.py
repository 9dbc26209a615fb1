"""Measure the pipeline beside Spark's own Kafka connector, and its jobs; writes docs/performance.md.

    python -m bench pipeline [--mb 1000] [--rounds 3] [--quick]

Topics of 1 KB records (and of 100 B ones with headers), plain, lz4 and zstd, on one broker of ours. Read by
`format("kafka")` and by `format("klamm")`, over the wire and from the segment files, into Spark's `noop` sink, with one
task and with two; and with the records spread over 1, 100 and 1,000 topics. Then `klamm-pipeline load` into a Delta
table, beside Spark's connector writing the same rows as Parquet, and `klamm-pipeline mirror` to a second broker: these
are processes of their own, with the start of Spark. MB are those of the records' values.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measure import Table, Target, create_topic, machine
from bench.page import write_section
from klamm.client.blocking import NodeClient
from klamm.pipeline.spark.session import session
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.protocol.records.batch import Record, encode_batch
from klamm.protocol.records.compression import Codec
from tests.support.broker_process import BrokerProcess
from tests.support.jars import jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {"klamm": "klamm", "files": "klamm, from files", "kafka": "Spark's connector"}
KLAMM_PIPELINE = (sys.executable, "-m", "klamm.pipeline")
QUIET = ("--progress", "none", "--master", "local[2]")
PARTITIONS = 4
IN_FLIGHT = 8
FEW = 100


def fill(
    client: NodeClient, topic: str, partitions: int, megabytes: float, size: int, codec: Codec, *, headers: bool = False
) -> int:
    """Send batches of about 64 KB of values that compress to a third; return the number of records."""
    pick = random.Random(topic)
    per_batch = max(1, 65536 // size)
    tail = [("trace", b"0123456789abcdef"), ("source", None)] if headers else ()
    values = [(pick.randbytes(size // 3) + bytes(size))[:size] for _ in range(per_batch)]
    now_ms = int(time.time() * 1000)
    batch = bytes(
        encode_batch(
            [Record(index, now_ms, b"key-%d" % index, value, tail) for index, value in enumerate(values)], codec=codec
        )
    )
    count = max(partitions, int(megabytes * 1e6 / (per_batch * size)))
    waiting = 0
    for number in range(count):
        data = [PartitionProduceData(index=number % partitions, records=batch)]
        topics = [TopicProduceData(name=topic, partition_data=data)]
        if waiting == IN_FLIGHT:
            checked(client.receive())
            waiting -= 1
        client.send(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics), 9)
        waiting += 1
    for _ in range(waiting):
        checked(client.receive())
    return count * per_batch


def checked(answer: object) -> None:
    assert answer.responses[0].partition_responses[0].error_code == 0, answer  # type: ignore[attr-defined]


@contextmanager
def spark_session(tasks: int) -> Iterator[SparkSession]:
    conf = {"spark.jars": ",".join(str(path) for path in jars("spark")), "spark.driver.memory": "2g"}
    spark = session("bench", f"local[{tasks}]", conf)
    try:
        yield spark
    finally:
        spark.stop()


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


class Read:
    """A read of one topic, or of a pattern of topics, into Spark's `noop` sink."""

    def __init__(self, spark: SparkSession, broker: BrokerProcess, name: str, *, headers: bool, pattern: bool) -> None:
        self._spark = spark
        self._broker = broker
        self._subscription = ("subscribePattern" if pattern else "subscribe", name)
        self._headers = headers

    def __call__(self, reader: str) -> float:
        frame = (
            self._spark.read.format("kafka" if reader == "kafka" else "klamm")
            .option("kafka.bootstrap.servers", self._broker.address)
            .option(*self._subscription)
            .option("includeHeaders", str(self._headers).lower())
        )
        if reader == "files":
            frame = frame.option("logDirs", str(self._broker.data))
        return timed(lambda: frame.load().write.format("noop").mode("overwrite").save())


def reads(table: Table, broker: BrokerProcess, client: NodeClient, options: argparse.Namespace) -> None:
    target = Target("", broker.host, broker.port, broker.pid)
    loads: list[tuple[str, str, int, float, bool]] = []
    for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
        name = f"plain-{codec.name.lower()}"
        create_topic(target, name, PARTITIONS)
        count = fill(client, name, PARTITIONS, options.mb, 1000, codec)
        loads.append((f"1 KB records, {codec.name.lower()}", name, count, count / 1e3, False))
    create_topic(target, "small", PARTITIONS)
    count = fill(client, "small", PARTITIONS, options.mb / 4, 100, Codec.NONE)
    loads.append(("100 B records", "small", count, count / 1e4, False))
    create_topic(target, "headers", PARTITIONS)
    count = fill(client, "headers", PARTITIONS, options.mb / 4, 100, Codec.NONE, headers=True)
    loads.append(("100 B records, two headers", "headers", count, count / 1e4, True))
    for tasks in (1, 2):
        with spark_session(tasks) as spark:
            for row, topic, count, megabytes, headers in loads:
                read = Read(spark, broker, topic, headers=headers, pattern=False)
                measured(table, f"{row}, {tasks} task(s)", read, count, megabytes, options.rounds)


def measured(
    table: Table, row: str, read: Read, count: int, megabytes: float, rounds: int, *, warm: bool = True
) -> None:
    for reader in COLUMNS if warm else ():
        read(reader)
    for _ in range(rounds):
        for reader in COLUMNS:
            seconds = read(reader)
            table.add(row, reader, records_s=count / seconds, mb_s=megabytes / seconds)


def many_topics(table: Table, broker: BrokerProcess, client: NodeClient, options: argparse.Namespace) -> None:
    target = Target("", broker.host, broker.port, broker.pid)
    with spark_session(2) as spark:
        for topics in (1, 100, options.topics):
            count = 0
            for number in range(topics):
                create_topic(target, f"many-{topics}-{number}", 1)
                count += fill(client, f"many-{topics}-{number}", 1, options.mb / 4 / topics, 1000, Codec.NONE)
            read = Read(spark, broker, f"many-{topics}-.*", headers=False, pattern=True)
            row = f"1 KB records in {topics:,} topic(s), 2 tasks"
            if topics > FEW:  # the connector takes minutes there, and the session is warm
                measured(table, row, read, count, count / 1e3, 1, warm=False)
            else:
                measured(table, row, read, count, count / 1e3, options.rounds)


def jobs(table: Table, broker: BrokerProcess, directory: Path, options: argparse.Namespace) -> None:
    """Measure load and mirror as commands, and the connector's rows as Parquet: each with the start of Spark."""
    with BrokerProcess(directory / "target") as second:
        for number in range(options.rounds):
            for topic in ("plain-none", "plain-zstd"):
                row = f"load of {topic} into a Delta table"
                for reader, extra in (("klamm", []), ("files", ["--log-dirs", str(broker.data)])):
                    path = directory / f"table-{topic}-{number}-{reader}"
                    load = ["load", "--bootstrap-servers", broker.address, "--topics", topic, "--compression", "lz4"]
                    seconds = ran(*KLAMM_PIPELINE, *load, "--table", str(path), *extra, *QUIET)
                    table.add(row, reader, mb_s=options.mb / seconds)
                    shutil.rmtree(path)
                path = directory / f"parquet-{topic}-{number}"
                seconds = ran(sys.executable, "-m", "bench.pipeline", "--parquet", broker.address, topic, str(path))
                table.add(row, "kafka", mb_s=options.mb / seconds)
                shutil.rmtree(path)
                mirror = ["mirror", "--source", broker.address, "--target", second.address, "--topics", topic]
                mirror += ["--rename", f"{topic}=copy-{topic}-{number}", "--group", f"bench-{topic}-{number}"]
                seconds = ran(*KLAMM_PIPELINE, *mirror, *QUIET)
                table.add(f"mirror of {topic}, batches as they are", "klamm", mb_s=options.mb / seconds)


def ran(*command: str) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def parquet(address: str, topic: str, path: str) -> None:
    """Write Parquet as a job with Spark's connector would."""
    with spark_session(2) as spark:
        frame = spark.read.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", topic)
        rows = frame.load().selectExpr("*", "to_date(timestamp) AS date")
        rows.write.partitionBy("topic", "date").option("compression", "lz4").parquet(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mb", type=float, default=1000, help="of values in each of the large topics")
    parser.add_argument("--topics", type=int, default=1000, help="the largest number of topics")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round of a fifth; writes nothing")
    parser.add_argument("--parquet", nargs=3, metavar=("ADDRESS", "TOPIC", "PATH"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.parquet:
        parquet(*options.parquet)
        return
    if options.quick:
        options.mb, options.rounds, options.topics = options.mb / 5, 1, 200
    table = Table()
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as temporary:
        path = Path(temporary)
        with BrokerProcess(path / "source") as broker, NodeClient(broker.host, broker.port) as client:
            reads(table, broker, client, options)
            many_topics(table, broker, client, options)
            jobs(table, broker, path, options)
    body = f"Measured on {machine(options.rounds)}.\n\n{table.markdown(COLUMNS)}"
    print(body)
    if not options.quick:
        write_section("pipeline", body)


if __name__ == "__main__":
    main()
