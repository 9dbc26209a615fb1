"""What a job tells: lines, metrics files and ports."""

from __future__ import annotations

import io
import urllib.request
from pathlib import Path

import pytest

from klamm.pipeline.errors import BadOption
from klamm.pipeline.report import INTERVAL_S, Report
from tests.support.apache_kafka import free_ports


def test_lines_where_there_is_no_terminal() -> None:
    now_s = 0.0
    stream = io.StringIO()
    with Report(mode="auto", stream=stream, monotonic=lambda: now_s) as report:
        report.event("planned", topics=2, path="a b")
        with report.progress("load", total=10) as progress:
            progress.advance(4)
            now_s += INTERVAL_S
            progress.advance(2)
    lines = [line.split(" ", 1)[1] for line in stream.getvalue().splitlines()]
    assert lines == ['planned topics=2 path="a b"', "load records=6 of=10", "load done records=6"]


def test_metrics_file_has_what_was_counted(tmp_path: Path) -> None:
    path = tmp_path / "job.prom"
    with Report(metrics_file=str(path)) as report, report.progress("load", total=10) as progress:
        progress.advance(4, size_bytes=400)
        report.succeeded("load")
    text = path.read_text()
    assert 'klamm_pipeline_records_total{job="load"} 4.0' in text
    assert 'klamm_pipeline_bytes_total{job="load"} 400.0' in text
    assert 'klamm_pipeline_remaining_records{job="load"} 6.0' in text
    assert "klamm_pipeline_last_success_timestamp_seconds" in text


def test_metrics_port_serves_and_is_given_back() -> None:
    (port,) = free_ports(1)
    for _ in range(2):
        with (
            Report(metrics_port=port),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer,
        ):
            assert b"klamm_pipeline_records" in answer.read()


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=r"--metrics-file .*: No such file or directory"):
        Report(metrics_file=str(tmp_path / "none" / "job.prom")).__enter__()


def test_a_bar_in_a_terminal() -> None:
    stream = io.StringIO()
    with Report(mode="bar", stream=stream) as report, report.progress("load", total=2) as progress:
        progress.advance(2)
        report.event("committed", version=3)
    assert "load" in stream.getvalue() and "2/2" in stream.getvalue()
    assert "committed version=3" in stream.getvalue()
