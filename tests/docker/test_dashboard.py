"""The dashboard draws what the broker tells: a renamed metric would leave an empty panel."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from klamm.broker.metrics import Metrics
from klamm.broker.metrics.exposition import Exposition
from klamm.broker.network.network import NetworkCounters

DASHBOARD = Path(__file__).parents[2] / "docker/grafana/dashboards/klamm.json"
FAMILY = re.compile(r"^# TYPE (\S+) (\S+)$", re.MULTILINE)
SELECTED = re.compile(r"\b((?:klamm|process)_\w+)\{")


def exposed() -> set[str]:
    """The names of all series of a node with a network and one partition."""
    network: Any = SimpleNamespace(
        counters=NetworkCounters(), listeners=[], page_cache_misses=0, budget=None, unauthenticated=()
    )
    metrics = Metrics()
    metrics.set_network(network)
    metrics.set_partition_source(lambda: [("t", 0, 0, 0, 0)])

    async def scrape() -> str:
        return b"".join([piece async for piece in Exposition(metrics).render()]).decode()

    names = set()
    for name, kind in FAMILY.findall(asyncio.run(scrape())):
        names |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}
    return names


def test_every_panel_draws_a_metric_that_the_broker_exposes() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    used = {name for panel in panels for target in panel["targets"] for name in SELECTED.findall(target["expr"])}
    assert len(used) >= 15
    assert used <= exposed(), f"not exposed: {sorted(used - exposed())}"


def test_panels_do_not_overlap() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        taken = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not taken & cells and at["x"] + at["w"] <= 24, panel["title"]
        cells |= taken
