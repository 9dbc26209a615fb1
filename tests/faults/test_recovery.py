"""Recovery of much data by worker processes of a real broker, and row 4 after a power cut."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.storage import paths
from tests.faults.damage import BATCHES, VICTIM, contents, filled, flip
from tests.faults.network_cases import Broker, now_ms
from tests.faults.test_storage_damage import started
from tests.faults.wire import batch
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.faults

TOPICS = 4
ROUNDS = 24
VALUE_BYTES = 900_000  # in all more than the parent would check itself


def test_much_to_check_goes_to_workers(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data", {"log.segment.bytes": 4 << 20}).start()
    try:
        with Broker(process.port) as peer:
            for number in range(TOPICS):
                assert peer.create(f"t{number}") == 0
            assert peer.create("small") == 0
            assert peer.produce(batch(b"small", timestamp=now_ms()), topic="small") == 0
            for _ in range(ROUNDS):
                for number in range(TOPICS):
                    assert peer.produce(batch(bytes(VALUE_BYTES), timestamp=now_ms()), topic=f"t{number}") == 0
        process.kill()
        (process.data / paths.RECOVERY_POINT_CHECKPOINT).unlink(missing_ok=True)
        victim = sorted((process.data / "t1-0").glob("*.log"))[1]
        flip(victim, 5000)
        process.restart()
        log = process.log()
        done = re.search(r"recovery done: logs=(\d+) size_bytes=(\d+)", log)
        assert done is not None and int(done[1]) == TOPICS + 1 and int(done[2]) > TOPICS * ROUNDS * VALUE_BYTES
        assert "metrics while logs are recovered: http://127.0.0.1:" in log
        assert "t1-0: offline: segment" in log and "later segments follow" in log
        with Broker(process.port) as peer:
            for number in (0, 2, 3):
                assert peer.end_offset(f"t{number}") == ROUNDS
                assert peer.produce(batch(b"x", timestamp=now_ms()), topic=f"t{number}") == 0
            assert peer.end_offset("small") == 1
            assert peer.fetch(topic="t1") == ErrorCode.KAFKA_STORAGE_ERROR
        assert "Traceback" not in log
    finally:
        process.kill()


@pytest.mark.parametrize("segment", [0, 2], ids=["first segment", "active"])
def test_row_4_after_a_power_cut_the_log_is_cut_and_the_rest_kept(tmp_path: Path, segment: int) -> None:
    data = filled(tmp_path, clean=False)
    (data.process.data / paths.RECOVERY_POINT_CHECKPOINT).unlink(missing_ok=True)
    (data.process.data / paths.BOOT).write_text("another boot\n")
    file = data.files(".log")[segment]
    position = data.positions(file)[3]
    flip(file, position + 1000)
    before = {path.name: path.read_bytes() for path in data.files(".log")[segment:]}
    kept = int(file.stem) + 3
    with started(data) as peer:
        assert contents(peer) == list(range(kept))
        assert data.append(peer, VICTIM, kept) == 0
    (where,) = (tmp_path / "data.cut").iterdir()
    cut = {path.name: path.read_bytes() for path in where.iterdir()}
    expected = {
        f"{name}.from-{position if name == file.name else 0}": content[position if name == file.name else 0 :]
        for name, content in before.items()
    }
    assert cut == expected
    assert f"later_segments={len(before) - 1}" in data.process.log()


def test_row_4_below_the_recovery_point_a_power_cut_is_no_excuse(tmp_path: Path) -> None:
    data = filled(tmp_path, clean=True)
    (data.process.data / paths.CLEAN_SHUTDOWN).unlink()
    (data.process.data / paths.BOOT).write_text("another boot\n")
    file = data.files(".log")[-1]
    flip(file, data.positions(file)[3] + 1000)
    before = [path.read_bytes() for path in data.files(".log")]
    with started(data) as peer:
        assert peer.fetch(topic=VICTIM) == ErrorCode.KAFKA_STORAGE_ERROR
        assert f"below the recovery point {BATCHES}, the medium is damaged" in data.process.log()
    assert [path.read_bytes() for path in data.files(".log")] == before
