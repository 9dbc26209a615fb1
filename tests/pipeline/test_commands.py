"""What ends a job of `klamm-pipeline`, in one line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from klamm.pipeline.__main__ import main
from klamm.pipeline.commands import status
from klamm.pipeline.errors import DataLoss
from klamm.pipeline.report import Report, reporting

ARGUMENTS = ["status", "--table", "nowhere", "--progress", "none"]


def raising(error: BaseException) -> Callable[..., int]:
    @reporting
    def run(_: object, report: Report) -> int:
        assert report.mode == "none"
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (DataLoss("t-0: gone"), "klamm-pipeline: t-0: gone\n"),
        (
            ModuleNotFoundError("No module named 'pyspark'", name="pyspark"),
            "klamm-pipeline: pyspark is missing: pip install 'klamm[pipeline]'\n",
        ),
    ],
)
def test_what_stops_a_job_is_one_line_and_exit_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, line: str
) -> None:
    monkeypatch.setattr(status, "run", raising(error))
    assert main(ARGUMENTS) == 1
    assert capsys.readouterr().err == line


def test_a_report_that_cannot_be_made_stops_a_job(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*ARGUMENTS, "--metrics-file", "/nowhere/metrics.prom"]) == 1
    assert capsys.readouterr().err == (
        "klamm-pipeline: --metrics-file /nowhere/metrics.prom: No such file or directory\n"
    )
