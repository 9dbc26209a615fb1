"""The fixtures of loads: a broker for each module, and a cluster that talks to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from klamm.pipeline.kafka.cluster import Cluster
from tests.support.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("klamm") / "data") as process:
        yield process


@pytest.fixture(scope="module")
def cluster(broker: BrokerProcess) -> Iterator[Cluster]:
    with Cluster(broker.address, timeout_s=10) as cluster:
        yield cluster
