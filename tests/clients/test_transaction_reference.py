"""Klamm and Apache Kafka 4.4 are asked the same questions about transactions, and the answers compared field by field.

Producer ids are replaced by the order of their making, times and texts of errors are left out.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from klamm.client.blocking import NodeClient
from klamm.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.clients.comparison import differences
from tests.clients.raw import create
from tests.clients.test_reference import flat
from tests.clients.transaction_questions import questions
from tests.support.apache_kafka import apache_kafka
from tests.support.broker_process import BrokerProcess
from tests.support.transactions import TOPIC, Client

pytestmark = [pytest.mark.campaign, pytest.mark.java]

TIMES = ("start_time_ms", "last_timestamp", "timestamp_ms")


def answers(port: int) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    with NodeClient("127.0.0.1", port, timeout_s=20) as node:
        create(node, TOPIC, 2, {})
        for kind in (0, 1):
            for _ in range(200):
                asked = FindCoordinatorRequest(key_type=kind, coordinator_keys=["warm"])
                if not node.request(asked, 4).coordinators[0].error_code:
                    break
                time.sleep(0.1)
        for _ in range(200):
            if not Client(node).init("warm", 4).error_code:
                break
            time.sleep(0.1)
        ids: dict[int, str] = {}
        for name, answer in questions(node):
            assert name not in found, name
            found[name] = {path: plain(path, value, ids) for path, value in flat(answer)}
    return found


def plain(path: str, value: object, ids: dict[int, str]) -> object:
    """Producer ids by the order of their making; of times only whether there is one."""
    if path.endswith("producer_id") and isinstance(value, int) and value >= 0:
        return ids.setdefault(value, f"producer {len(ids)}")
    if path.endswith("log_append_time_ms"):
        return "left out"  # for a duplicate Apache Kafka tells the time that the producer gave
    if path.endswith(TIMES) and isinstance(value, int):
        return value if value < 0 else "a time"
    return value


@pytest.mark.timeout(240)
def test_both_give_the_same_answers(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "klamm") as klamm:
        ours = answers(klamm.port)
        assert "Traceback" not in klamm.log()
    with apache_kafka(tmp_path / "apache") as kafka:
        theirs = answers(kafka.port)
    assert len(ours) > 200
    found = differences(ours, theirs)
    assert not found, found
