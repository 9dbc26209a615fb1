"""A mirror killed with -9 inside its transactions, and run again: every committed record is there once and in order.

Between two Klamms, and with Apache Kafka on either side: each point of death once, `KLAMM_FAULTS=long` twenty times.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from klamm.pipeline.kafka.cluster import Cluster
from tests.faults.campaign import scaled, seeded
from tests.faults.mirror_kills import POINTS, Kills
from tests.support.apache_kafka import apache_kafka
from tests.support.broker_process import BrokerProcess

pytestmark = [pytest.mark.faults, pytest.mark.clients, pytest.mark.java, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Cluster]]:
    with ExitStack() as stack:
        found = {}
        for name in ("klamm", "second klamm"):
            broker = stack.enter_context(BrokerProcess(tmp_path_factory.mktemp("klamm") / "data"))
            found[name] = stack.enter_context(Cluster(broker.address))
        kafka = stack.enter_context(apache_kafka(tmp_path_factory.mktemp("kafka")))
        found["kafka"] = stack.enter_context(Cluster(kafka.address))
        yield found


@pytest.mark.parametrize(("source", "target"), [("klamm", "second klamm"), ("klamm", "kafka"), ("kafka", "klamm")])
def test_every_committed_record_is_there_once(clusters: dict[str, Cluster], source: str, target: str) -> None:
    rng = seeded(f"mirror killed, {source} to {target}")
    kills = Kills(clusters[source], clusters[target], f"{source[0]}-{target[:2]}", rng)
    for _ in range(scaled(1, 20)):
        for point in rng.sample(sorted(POINTS), len(POINTS)):
            kills.write()
            kills.run(point)
    kills.run()
    print(f"{kills.check()} records, killed {dict(kills.killed)}")
    assert all(kills.killed[point] for point in POINTS)


@pytest.mark.spark
@pytest.mark.campaign
def test_the_whole_command_killed_at_any_time(clusters: dict[str, Cluster]) -> None:
    """Spark's driver, its JVM and all workers at once, at a moment after the plan is made."""
    rng = seeded("mirror in Spark killed")
    kills = Kills(clusters["klamm"], clusters["second klamm"], "spark", rng)
    for _ in range(scaled(2, 20)):
        kills.write()
        kills.run_in_spark(rng.uniform(0, 3))
    kills.run()
    print(f"{kills.check()} records, killed {dict(kills.killed)}")
    assert kills.killed["spark"]
