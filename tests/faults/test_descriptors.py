"""Storage row 28 in a real process: far more segments than descriptors, and everything is read and written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.network_cases import Broker, now_ms
from tests.faults.wire import batch
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.faults

LIMIT = 128
TOPICS = 120
FEW_DESCRIPTORS = ["sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh"]
CONFIG = {"auto.create.topics.enable": "false", "klamm.metrics.listener": "none"}


def check(peer: Broker, rounds: int) -> None:
    """Every topic has a record of each round so far."""
    for number in range(TOPICS):
        assert peer.end_offset(f"t{number}") == rounds
        answer = peer.fetched(offset=0, topic=f"t{number}").responses[0].partitions[0]
        assert answer.error_code == 0 and len(answer.records) > 0


def test_row_28_more_segments_than_descriptors(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data", CONFIG, prefix=FEW_DESCRIPTORS).start()
    try:
        for rounds in range(1, 4):
            with Broker(process.port) as peer:
                for number in range(TOPICS):
                    if rounds == 1:
                        assert peer.create(f"t{number}") == 0
                    assert peer.produce(batch(b"value", timestamp=now_ms()), topic=f"t{number}") == 0
                check(peer, rounds)
                assert len(os.listdir(f"/proc/{process.pid}/fd")) < LIMIT
            if rounds == 1:
                process.kill()
                process.restart()
            elif rounds == 2:
                assert process.terminate() == 0
                process.restart()
        assert " ERROR " not in process.log() and "Traceback" not in process.log()
    finally:
        process.kill()


def test_row_28_connections_do_not_take_the_last_descriptors(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data", CONFIG, prefix=FEW_DESCRIPTORS).start()
    others = []
    try:
        with Broker(process.port) as peer:
            for number in range(40):
                assert peer.create(f"t{number}") == 0
            others.extend(process.connect() for _ in range(LIMIT))
            for number in range(40):
                assert peer.produce(batch(b"value", timestamp=now_ms()), topic=f"t{number}") == 0
                assert peer.end_offset(f"t{number}") == 1
            assert peer.create("another") == 0
            assert peer.produce(batch(b"value", timestamp=now_ms()), topic="another") == 0
        assert "cannot accept, pausing" in process.log()
        assert " ERROR " not in process.log() and "Traceback" not in process.log()
    finally:
        for connection in others:
            connection.close()
        process.kill()
