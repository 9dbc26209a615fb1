"""What modules share: a Spark session on two cores, with everything it writes in a temporary directory; two brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from klamm.pipeline.kafka.cluster import Cluster
from tests.support.broker_process import BrokerProcess
from tests.support.jars import jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with the data sources `klamm` and, to compare, Spark's own `kafka`. Tests mark themselves `spark`."""
    from klamm.pipeline.spark.session import session

    directory: Path = tmp_path_factory.mktemp("spark")
    conf = {
        "spark.jars": ",".join(str(path) for path in jars("spark")),
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
    }
    session_ = session("tests", "local[2]", conf)
    yield session_
    session_.stop()


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Cluster]]:
    """Two brokers of ours: a source and a target. Tests mark themselves `clients`."""
    directory = tmp_path_factory.mktemp("klamm")
    with (
        BrokerProcess(directory / "a") as a,
        BrokerProcess(directory / "b") as b,
        Cluster(a.address) as source,
        Cluster(b.address) as target,
    ):
        yield source, target
