"""Apache Kafka's tools of 4.3 copy exactly once, whichever process dies; `KLAMM_FAULTS=long` copies 100,000 records."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.campaign import LONG, scaled, seeded
from tests.faults.copying import Copying

pytestmark = [pytest.mark.campaign, pytest.mark.faults, pytest.mark.java, pytest.mark.timeout(1800)]

SAMPLE = {"group_mode": False, "reader_protocol": "classic"}
CASES = {
    "assigned": {"group_mode": False, "reader_protocol": "consumer"},
    "in a group": {"group_mode": True, "reader_protocol": "classic"},
    "version 1": {"group_mode": False, "reader_protocol": "classic", "old_client": True},
}


@pytest.mark.parametrize("case", CASES if LONG else ["sample"])
def test_copies_are_exact(tmp_path: Path, case: str) -> None:
    """5,000 records in transactions of 20 and two kills of each, or 100,000 in transactions of 750 and ten."""
    rng = seeded(f"copying {case}")
    copying = Copying(tmp_path, rng, scaled(5_000, 100_000), scaled(20, 750), **CASES.get(case, SAMPLE))  # type: ignore[arg-type]
    kills = scaled(2, 10)
    with copying.broker:
        copying.seed(scaled(0, 3))
        events = copying.copy(kills, kills)
        print(copying.verify(events))
