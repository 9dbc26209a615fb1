"""Storage row 5: damage to data that was flushed long ago is found in the background, reported, and not served."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.batch import batches
from tests.faults.damage import BATCHES, VICTIM, Data, contents, filled, flip
from tests.faults.network_cases import Broker
from tests.faults.test_repair import klamm_repair
from tests.support.broker_process import wait_for

pytestmark = pytest.mark.faults

OFTEN = {"klamm.scrub.interval.ms": 100, "klamm.scrub.bytes.per.second": 100_000_000}
BAD = 10


def served(peer: Broker, offset: int) -> list[int] | int:
    """Return the base offsets that a fetch gets, or its error."""
    answer = peer.fetched(offset=offset, topic=VICTIM, max_bytes=8 << 20, partition_max_bytes=8 << 20)
    data = answer.responses[0].partitions[0]
    return [head.base_offset for _, head in batches(bytes(data.records))] if not data.error_code else data.error_code


def check_served(data: Data, peer: Broker) -> None:
    corrupt = int(ErrorCode.CORRUPT_MESSAGE)
    assert served(peer, 0) == list(range(BAD))
    assert served(peer, BAD - 1) == [BAD - 1]
    assert served(peer, BAD) == corrupt
    assert contents(peer, start=BAD + 1) == list(range(BAD + 1, BATCHES))
    assert data.append(peer, VICTIM, BATCHES - 1) == 0, "a duplicate"


def stop(data: Data) -> None:
    if data.process._process is not None:
        data.process.kill()


@pytest.mark.parametrize("at", [8, 16, 1000], ids=["length", "magic", "records"])
def test_row_5_damage_is_found_reported_and_remembered(tmp_path: Path, at: int) -> None:
    data = filled(tmp_path, clean=True, config=OFTEN)
    file = data.files(".log")[0]
    position = data.positions(file)[BAD]
    data.process.start()
    try:
        with Broker(data.process.port) as peer:
            assert contents(peer) == list(range(BATCHES))
            flip(file, position + at)
            wait_for(lambda: "damaged: segment=0" in data.process.log(), 30, "the scrubber's finding")
            wait_for(lambda: served(peer, BAD) != list(range(BAD, BATCHES)), 10)
            check_served(data, peer)
        stop(data)
        state = json.loads((data.process.data / "klamm.scrub").read_text())
        assert [(row["topic"], row["first_offset"], row["next_offset"]) for row in state["damage"]] == [
            (VICTIM, BAD, BAD + 1)
        ]
        data.process.config["klamm.scrub.bytes.per.second"] = 0
        data.process.start()
        with Broker(data.process.port) as peer:
            check_served(data, peer)
    finally:
        stop(data)
    assert "Traceback" not in data.process.log()
    done = klamm_repair(data, "--skip", "--log-dirs", str(data.process.data))
    assert done.returncode == 0, done
    assert json.loads((data.process.data / "klamm.scrub").read_text())["damage"] == []
    data.process.start()
    try:
        with Broker(data.process.port) as peer:
            assert contents(peer) == [number for number in range(BATCHES) if number != BAD]
    finally:
        stop(data)
