"""The class that consumers of a stock MirrorMaker 2 ask finds our checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.kafka.groups import commit
from klamm.pipeline.kafka.topics import create_topic
from klamm.pipeline.ranges import TopicPartition
from tests.pipeline.mirroring import mirror, put, some
from tests.support.broker_process import BrokerProcess
from tests.support.jars import JAVA, run_java

pytestmark = [pytest.mark.java, pytest.mark.clients]


def test_remote_cluster_utils_translates(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "a") as a,
        BrokerProcess(tmp_path / "b") as b,
        Cluster(a.address) as source,
        Cluster(b.address) as target,
    ):
        create_topic(source, "t", partitions=2)
        for number in range(2):
            for first in (0, 10):
                put(source, TopicPartition("t", number), some(10, first=first))
        assert commit(source, "movers", {TopicPartition("t", 0): 13, TopicPartition("t", 1): 20})
        aliased = (
            "--source",
            f"east={a.address}",
            "--topics",
            "t",
            "--groups",
            "movers",
            "--rename",
            "{source}.{topic}",
        )
        assert mirror(source, target, *aliased) == 0
        program = JAVA / "mirror" / "TranslateOffsets.java"
        assert run_java("tools", program, b.address, "east", "movers") == "east.t 0 13\neast.t 1 20\n"
        put(source, TopicPartition("t", 0), some(10))
        assert commit(source, "movers", {TopicPartition("t", 0): 25})
        assert mirror(source, target, *aliased) == 0
        found = run_java("tools", program, b.address, "east", "movers")
        assert found == "east.t 0 26\neast.t 1 20\n"  # the marker of the first copy is at 20
