"""Hostile input over raw sockets to a real broker process: every row of the table, the next client, and leaks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.campaign import LONG, scaled
from tests.faults.network_cases import CASES, NOT_ASKED, SAME, Broker, Case
from tests.support.apache_kafka import apache_kafka
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.faults

REPEATS = scaled(20, 1000)
MAX_GROWTH_BYTES = 10 << 20
HEAVY = 27  # the row of the bombs: a tenth of the repeats in the sample


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("network") / "data") as broker:
        yield broker
    assert "Traceback" not in broker.log()


@pytest.fixture(scope="module")
def broker(process: BrokerProcess) -> Iterator[Broker]:
    with Broker(process.port) as peer:
        peer.prepare()
        yield peer


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_answer_that_the_table_demands(broker: Broker, case: Case) -> None:
    assert case.run(broker) == case.expect
    assert broker.serves_the_next_client()


def test_repeats_leak_nothing(process: BrokerProcess, broker: Broker) -> None:
    """After so many repeats of each, RSS has grown by less than 10 MB since each was done once, and all is served."""
    for case in CASES:
        case.run(broker)
    before = process.rss_bytes()
    growth: dict[str, int] = {}
    for case in CASES:
        start = process.rss_bytes()
        for _ in range(REPEATS if case.row != HEAVY or LONG else max(1, REPEATS // 10)):
            assert case.run(broker) == case.expect, case.name
        growth[case.name] = process.rss_bytes() - start
        assert broker.serves_the_next_client(), case.name
    largest = sorted(growth.items(), key=lambda item: -item[1])[:5]
    assert process.rss_bytes() - before <= MAX_GROWTH_BYTES, largest
    assert max(growth.values()) <= MAX_GROWTH_BYTES, largest


def test_junk_is_logged_but_does_not_fill_the_disk(process: BrokerProcess, broker: Broker) -> None:
    size = process.log_path.stat().st_size
    for _ in range(200):
        broker.raw(b"GET / HTTP/1.1\r\n\r\n")
    assert process.log_path.stat().st_size - size < 2000


if LONG:  # holds the table, not the broker, against Kafka: enough to do it once in a while

    @pytest.mark.java
    def test_apache_kafka_answers_as_the_table_says(tmp_path: Path) -> None:
        """The column "Kafka" of the table, asked of Kafka 4.4 itself."""
        differs = {}
        with apache_kafka(tmp_path) as kafka, Broker(kafka.port, timeout_s=3.0) as peer:
            peer.prepare()
            for case in CASES:
                expect = case.expect if case.kafka is SAME else case.kafka
                if expect is NOT_ASKED:
                    continue
                try:
                    seen = case.run(peer)
                except Exception as error:
                    seen = repr(error)
                    peer.close()
                if seen != expect:
                    differs[case.name] = (seen, expect)
        assert not differs, "\n".join(f"{name}: {pair}" for name, pair in differs.items())
