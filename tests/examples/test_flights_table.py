"""The pipeline's demo, as somebody would run it, with fewer rows; its data needs the extra `demo`."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples import flights, flights_table
from tests.support.apache_kafka import free_ports

pytestmark = [pytest.mark.spark, pytest.mark.clients]

ROWS = [
    {
        "carrier": carrier,
        "sched_dep_time": f"{hour:02}15",
        "dep_delay": "NA" if number % 7 == 0 else str(hour),
        "flight": str(number),
    }
    for number in range(80)
    for hour in (6, 17)
    for carrier in ("UA", "AA")
]


def test_twice_into_a_table_and_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (port,) = free_ports(1)
    arguments = ["--bootstrap", f"127.0.0.1:{port}", "--data", str(tmp_path / "data")]
    arguments += ["--table", str(tmp_path / "table"), "--plot", str(tmp_path / "plot.png")]
    for module in (flights, flights_table):
        monkeypatch.setattr(module, "read_rows", lambda: ROWS)
    monkeypatch.setattr("sys.argv", ["flights_table", *arguments])
    for _ in range(2):
        assert flights_table.main() == 0
        output = " ".join(capsys.readouterr().out.split())
        assert f"{len(ROWS)} records in the table" in output
        assert "AA at 17h: 17 minutes late on average" in output
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
