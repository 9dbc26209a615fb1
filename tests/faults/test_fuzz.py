"""A million mutated, truncated and random frames (`make faults`); a minute of them in `make test`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.campaign import scaled, seeded
from tests.faults.fuzz import HANG_CPU_S, Fuzz
from tests.faults.network_cases import Broker, one
from tests.support.broker_process import BrokerProcess

pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600)]

FRAMES = scaled(500_000, 500_000)  # in each half
SECONDS = scaled(28, 3000)
MAX_PEAK_MB = 300
MAX_GROWTH_MB = 64


@pytest.mark.parametrize("auto_create", [False, True], ids=["topics made by nobody", "topics made on demand"])
def test_mutated_frames_do_no_harm(tmp_path: Path, auto_create: bool) -> None:
    config = {"auto.create.topics.enable": str(auto_create).lower(), "log.segment.bytes": 1 << 20}
    with BrokerProcess(tmp_path / "data", config) as process:
        fuzz = Fuzz(process, seeded(f"fuzz, auto_create={auto_create}"), auto_create=auto_create)
        facts = fuzz.run(frames=FRAMES, seconds=SECONDS)
        print(facts)
        assert facts["worst ping cpu s"] < HANG_CPU_S
        assert facts["peak MB"] < MAX_PEAK_MB
        assert facts["rss after MB"] - facts["rss before MB"] < MAX_GROWTH_MB
        assert_it_still_serves(process)
        assert process.terminate() == 0
        process.restart()
        assert_it_still_serves(process)
    log = process.log()
    assert "Traceback" not in log
    assert log.count("not closed cleanly") <= 1, "the stop after the fuzz was not clean"


def assert_it_still_serves(process: BrokerProcess) -> None:
    with Broker(process.port) as peer:
        assert peer.serves_the_next_client()
        assert peer.create("fresh") in (0, 36)
        assert peer.produce(one(), topic="fresh") == 0
        assert peer.fetch(topic="fresh") == 0
