"""`load` and `compact`, killed with -9 at each of their steps and run again: every committed record is there once.

The table is read by delta-rs, by DuckDB and by Spark (the files of the log's last version), and compared with what a
reader of committed transactions gets from the broker. Between the rounds more is produced, every third transaction is
aborted. `make faults` does twenty rounds on Spark; `make test` each step once, the tasks in the job's own process.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.kafka.producer import Producer
from klamm.pipeline.kafka.topics import create_topic
from klamm.pipeline.ranges import TopicPartition
from klamm.pipeline.spark.session import session
from klamm.pipeline.table import Location, Table, dataframe
from klamm.protocol.records.batch import Record, encode_batch
from tests.faults.campaign import LONG, scaled, seeded
from tests.faults.loading import STEPS
from tests.pipeline.jobs.load.loading import KEPT, START_MS, Row, duckdb_rows, log_rows, rows_of
from tests.support.broker_process import BrokerProcess

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.timeout(3600)]
TOPICS = {"orders": 2, "payments": 1}
DAY_MS = 86_400_000
ROOT = Path(__file__).parents[2]


def run(step: str, command: str, table: Path, *arguments: str) -> int:
    """Run the job; return its exit status, negative when it was killed."""
    line = [sys.executable, "-m", "tests.faults.loading", step, "spark" if LONG else "here", command, *arguments]
    line += ["--pattern", "orders|payments", "--table", str(table), "--master", "local[2]", "--progress", "none"]
    done = subprocess.run(line, check=False, cwd=ROOT, env=os.environ, capture_output=True, timeout=300)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode


def produce(cluster: Cluster, rng: random.Random, number: int) -> None:
    """A few transactions into each topic partition, over two dates; every third is aborted."""
    with Producer(cluster, transactional_id="kills") as producer:
        for index in range(rng.randint(3, 9)):
            producer.begin()
            for topic, partitions in TOPICS.items():
                at_ms = START_MS + rng.randrange(2) * DAY_MS
                text = f"{number}.{index}.{topic}".encode()
                values = [None if rng.random() < 0.2 else text for _ in range(rng.randint(1, 40))]
                records = [Record(one, at_ms, b"k%d" % one, value, ()) for one, value in enumerate(values)]
                producer.send(TopicPartition(topic, rng.randrange(partitions)), encode_batch(records))
            if index % 3 == 2:
                producer.abort()
            else:
                producer.commit()


def spark_rows(path: Path) -> dict[str, list[Row]]:
    """Return the rows that Spark reads, by topic."""
    spark = session("kills", "local[1]")
    try:
        found = dataframe(spark, str(path)).select("topic", "partition", "offset", "key", "value").collect()
    finally:
        spark.stop()
    rows = [(row[0], (row[1], row[2], bytes(row[3]), row[4] and bytes(row[4]))) for row in found]
    return {topic: sorted((row for name, row in rows if name == topic), key=lambda row: row[:2]) for topic in TOPICS}


def test_every_committed_record_is_in_the_table_once(tmp_path: Path) -> None:
    rng = seeded("load kills")
    rounds = list(STEPS) if not LONG else [rng.choice(STEPS) for _ in range(scaled(4, 20))]
    table, written = tmp_path / "table", 0
    with BrokerProcess(tmp_path / "data") as broker, Cluster(broker.address) as cluster:
        where = ["--bootstrap-servers", broker.address]
        for topic, partitions in TOPICS.items():
            create_topic(cluster, topic, partitions=partitions, configs=KEPT)
        for number, step in enumerate(rounds):
            produce(cluster, rng, number)
            before = next_version(table)
            assert run(step, "load", table, *where) == -signal.SIGKILL
            written = next_version(table)
            assert (written > before) == (step == "after the commit" or before == 0), step
        assert run("never", "load", table, *where) == 0
        expected = sorted((row for topic in TOPICS for row in log_rows(cluster, topic)), key=str)
        assert len(expected) > 10 * len(rounds)
        assert sorted(rows_of(table), key=str) == sorted(duckdb_rows(table), key=str) == expected
        for step in STEPS[2:]:  # replacing everything in one commit is no different
            again = ["--rerun-from", "2020-01-01", *where]
            assert run(step, "load", table, *again) == -signal.SIGKILL
            assert sorted(rows_of(table), key=str) == expected
        assert spark_rows(table) == {topic: log_rows(cluster, topic) for topic in TOPICS}
        assert run("never", "load", table, *where) == 0
    orphans = {path.name for path in table.rglob("*.parquet")} - {
        Path(file.path).name for file in Table.open(Location.of(str(table))).files()
    }
    assert len(orphans) >= sum(step in STEPS[1:3] for step in rounds)
    print(f"rounds={len(rounds)} records={len(expected)} orphans={len(orphans)}")


def test_the_latest_value_of_each_key_is_in_the_table_once(tmp_path: Path) -> None:
    rng = seeded("compact kills")
    rounds = list(STEPS) if not LONG else [rng.choice(STEPS) for _ in range(scaled(4, 20))]
    table = tmp_path / "latest"
    with BrokerProcess(tmp_path / "data") as broker, Cluster(broker.address) as cluster:
        where = ["--bootstrap-servers", broker.address, "--buckets", "2"]
        for topic, partitions in TOPICS.items():
            create_topic(cluster, topic, partitions=partitions, configs=KEPT)
        for number, step in enumerate(rounds):
            produce(cluster, rng, number)
            assert run(step, "compact", table, *where) == -signal.SIGKILL
        assert run("never", "compact", table, *where) == 0
        latest: dict[tuple[str, int, bytes | None], Row] = {}
        for topic in TOPICS:
            latest |= {(topic, row[0], row[2]): row for row in log_rows(cluster, topic)}
        expected = sorted((row for row in latest.values() if row[3] is not None), key=str)
        assert 0 < len(expected) < len(latest)
        assert sorted(rows_of(table), key=str) == sorted(duckdb_rows(table), key=str) == expected
    print(f"rounds={len(rounds)} keys={len(expected)}")


def next_version(table: Path) -> int:
    found = Table.open_if_there(Location.of(str(table)))
    return 0 if found is None else found.version + 1
