"""Rounds of kill -9 and SIGTERM under acks=all load."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.campaign import scaled, seeded
from tests.faults.kill_rounds import KillRounds

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("flush", ["by the kernel", "each append"])
def test_what_was_acknowledged_survives(tmp_path: Path, flush: str) -> None:
    """Acknowledgements wait for group commits if `flush.messages=1`, which must change nothing of this."""
    config: dict[str, object] = {"log.flush.interval.messages": 1} if flush == "each append" else {}
    rounds = KillRounds(tmp_path, seeded(f"kill rounds, flushed {flush}"), config)
    try:
        rounds.run(scaled(5, 50) if not config else scaled(2, 20))
        facts = rounds.verify()
        assert rounds.broker.terminate() == 0
    finally:
        if rounds.broker._process is not None:
            rounds.broker.kill()
    print(facts)
    assert facts["records"] >= facts["acknowledged"] > 0
