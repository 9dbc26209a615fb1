"""Histories of a broker process that is killed, paused and restarted: nothing is found in them."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.faults.campaign import scaled, seeded
from tests.faults.history.checker import check
from tests.faults.history.events import History, Outcome
from tests.faults.history.real import RealBroker
from tests.faults.history.workload import Workload, run

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

PATIENCE_S = 60.0
BETWEEN = 50  # what happens at least between two faults


def progress(history: History) -> tuple[int, int]:
    """Acknowledged writes, and records read."""
    acked = sum(send.outcome is Outcome.OK for send in history.sends)
    return acked, sum(len(poll.records) for poll in history.polls)


async def history(broker: RealBroker, rng: random.Random, duration_s: float) -> History:
    """What happens in so many seconds."""
    await broker.start()
    workload = Workload(broker, rng, PATIENCE_S)

    async def faults() -> None:
        """Something has to happen in between, on a slow machine, too."""
        acked, polled = progress(workload.history)
        patience = workload.now() + PATIENCE_S
        while workload.now() < patience:
            await asyncio.sleep(rng.random())
            acked_now, polled_now = progress(workload.history)
            if acked_now > acked + BETWEEN and polled_now > polled + BETWEEN:
                break
        await broker.fault()

    try:
        return await run(workload, duration_s, faults)
    finally:
        await broker.close()


@pytest.mark.parametrize("number", range(scaled(1, 5)))
def test_nothing_is_found(tmp_path: Path, number: int) -> None:
    rng = seeded(f"history of a process {number}")
    broker = RealBroker(tmp_path / "data", rng)
    found = asyncio.run(history(broker, rng, scaled(5, 60)))
    facts = {
        **broker.faults,
        "sends": len(found.sends),
        "transactions": len(found.transactions),
        "polls": len(found.polls),
        "positions": len(found.commits),
    }
    print(facts)
    assert check(found) == []
    assert "Traceback" not in broker.process.log()
