"""Members restart one after the other under load while the broker is killed: nothing is lost, and little moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.campaign import LONG, scaled
from tests.faults.rolling import PROTOCOLS, RollingRestart

pytestmark = pytest.mark.timeout(1800 if LONG else 240)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_rolling_restart_loses_nothing(protocol: str, tmp_path: Path) -> None:
    members, partitions = scaled(5, 20), scaled(15, 60)
    rolling = RollingRestart(tmp_path, protocol, members, partitions)
    rolling.run(scaled(2, 20), rate=scaled(400, 2000), kill_every=scaled(2, 5))
    print(protocol, rolling.verify())
