"""The frame of the command line: exit statuses, and one line for what went wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest

from klamm.pipeline import cli
from klamm.pipeline.commands import status
from klamm.pipeline.errors import EXIT_FAILED, EXIT_MISMATCH, EXIT_OK, DataLoss

ARGUMENTS = ["status", "--table", "nowhere", "--progress", "none"]


def raising(error: BaseException) -> Callable[..., int]:
    def run(*_: object) -> int:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (DataLoss("t-0: gone"), EXIT_FAILED, "klamm-pipeline: t-0: gone"),
        (BrokenPipeError(32, "Broken pipe"), EXIT_FAILED, "klamm-pipeline: a connection broke: [Errno 32] Broken pipe"),
        (
            ModuleNotFoundError("No module named 'pyspark'", name="pyspark"),
            EXIT_FAILED,
            "klamm-pipeline: pyspark is missing: pip install 'klamm[pipeline]'",
        ),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_what_stops_a_job_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, line: str
) -> None:
    monkeypatch.setattr(status, "run", raising(error))
    assert cli.main(ARGUMENTS) == code
    assert capsys.readouterr().err.strip() == line


def test_a_wrong_option_is_refused() -> None:
    with pytest.raises(SystemExit) as raised:
        cli.main([*ARGUMENTS, "--no-such-option"])
    assert raised.value.code == EXIT_MISMATCH  # argparse's


def test_a_reader_of_the_output_may_go_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object) -> int:
        print("a line")
        sys.stdout.flush()
        return 0

    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(status, "run", run)
    with os.fdopen(writer, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert cli.main(ARGUMENTS) == EXIT_OK
