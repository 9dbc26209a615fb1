"""Histories of a broker that dies and comes back: nothing is found in them, and every planted bug is.

The broker runs in this process over a disk in memory (`history/simulated.py`), so that it can lose its power, too.
`KLAMM_FAULTS=long` runs five histories of a minute. The seed is printed.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from tests.faults.campaign import scaled, seeded
from tests.faults.history.checker import check
from tests.faults.history.events import History
from tests.faults.history.planted import BUGS, planted
from tests.faults.history.simulated import SimulatedBroker
from tests.faults.history.workload import TRANSACTION_TIMEOUT_MS, Workload, run

FSYNC = {"klamm.acks.fsync": "true"}
BUG_S = 2.0
TRIES = 8


async def history(
    path: Path,
    rng: random.Random,
    duration_s: float,
    config: dict[str, Any],
    patience_s: float = 20.0 + TRANSACTION_TIMEOUT_MS / 1000,  # nothing is open for longer than that
    *,
    strict: bool = True,
) -> History:
    """What happens in so many seconds with kills and, where acks wait for the disk, power cuts."""
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # what the dead have left half-done
    broker = SimulatedBroker(path, rng, config)
    await broker.start()

    async def faults() -> None:
        await asyncio.sleep(rng.random() * 0.5)
        if config and rng.random() < 0.5:
            broker.power_cut()
        else:
            broker.kill()
        await asyncio.sleep(rng.random() * 0.02)
        await broker.start()

    try:
        return await run(Workload(broker, rng, patience_s), duration_s, faults, strict=strict)
    finally:
        broker.kill()


@pytest.mark.parametrize("number", range(scaled(1, 5)))
@pytest.mark.parametrize("config", [{}, FSYNC], ids=["default", "fsync"])
def test_nothing_is_found(tmp_path: Path, number: int, config: dict[str, Any]) -> None:
    rng = seeded(f"history {number} {sorted(config)}")
    found = asyncio.run(history(tmp_path / "data", rng, scaled(3, 60), config))
    assert check(found) == []


FINDS: dict[str, set[str]] = {
    "ack-before-write": {"lost-write", "unseen", "inconsistent-offsets"},
    "flush-skipped": {"lost-write", "unseen", "inconsistent-offsets"},
    "no-deduplication": {"duplicate"},
    "no-sequence-check": {"nonmonotonic-send"},
    "stable-offset-off-by-one": {"precommitted-read", "aborted-read"},
    "transaction-index-dropped": {"aborted-read"},
    "marker-twice": {"precommitted-read", "aborted-read", "torn-transaction"},
    "old-epoch-accepted": {"aborted-read"},
    "offsets-before-commit": {"committed-too-early"},
    "stale-generation": {"stale-generation"},
    "offset-twice": {"inconsistent-offsets"},
    "truncation-in-the-middle": {"lost-write", "unseen", "inconsistent-offsets"},
}


@pytest.mark.parametrize("bug", BUGS)
def test_every_planted_bug_is_found(tmp_path: Path, bug: str) -> None:
    rng = seeded(bug)
    config = FSYNC if bug == "flush-skipped" else {}
    kinds: set[str] = set()
    for turn in range(TRIES):
        try:
            with planted(bug, rng):
                found = asyncio.run(history(tmp_path / str(turn), rng, BUG_S, config, BUG_S, strict=False))
            kinds |= {anomaly.kind for anomaly in check(found, minimum=1)}
        except (AssertionError, Exception) as error:
            print(f"{bug}: the broker could not go on: {error!r}")
        if kinds & FINDS[bug]:
            return
    pytest.fail(f"{bug} was not found, only {kinds or 'nothing'}")
