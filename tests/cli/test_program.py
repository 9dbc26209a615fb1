"""The frame of all commands: imports, the ends of a command, exit statuses, one line for an error."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from klamm import __version__
from klamm.cli.program import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, Command, Extra, Program


class Refused(Exception):
    pass


class RefusedByDisk(Refused):
    pass


FAILURES = {RefusedByDisk: 4, Refused: 3}
EXTRA = Extra("pipeline", ("pyspark",))
COMMANDS = (
    Command("greet", "say good day", "greeting_for_a_test"),
    Command("broken", "cannot be imported", "no_such_module_for_a_test"),
)
PROGRAM = Program("tool", "A tool.", COMMANDS, FAILURES, EXTRA)


@pytest.fixture
def greeting(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the command `greet`."""
    module = ModuleType("greeting_for_a_test")
    module.declare = lambda parser: parser.add_argument("--name", default="you", help="a name")  # type: ignore[attr-defined]
    module.run = lambda options: len(options.name)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def raising(error: BaseException) -> Callable[..., int]:
    def run(_: object) -> int:
        raise error

    return run


def refused(program: Program, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The last line of a command line that is wrong."""
    with pytest.raises(SystemExit) as stopped:
        program.run(arguments)
    assert stopped.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()[-1]


def test_a_command_gets_its_options_and_gives_the_exit_status(greeting):
    assert PROGRAM.run(["greet", "--name", "Berta"]) == len("Berta")


def test_without_arguments_those_of_the_process_are_meant(greeting, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["tool", "greet", "--name", "Emil"])
    assert PROGRAM.run() == len("Emil")


@pytest.mark.usefixtures("greeting")
def test_a_wrong_command_line_is_one_line_and_exit_status_2(capsys):
    assert refused(PROGRAM, [], capsys) == "tool: error: the following arguments are required: command"
    unknown = refused(PROGRAM, ["stop"], capsys)
    assert unknown.startswith("tool: error: argument command: invalid choice: 'stop' (choose from ")
    assert refused(PROGRAM, ["greet", "--no"], capsys) == "tool: error: unrecognized arguments: --no"
    assert refused(PROGRAM, ["--no", "greet"], capsys) == "tool: error: unrecognized arguments: --no"
    assert refused(PROGRAM, ["greet", "--nam", "x"], capsys) == "tool: error: unrecognized arguments: --nam x"


def test_version_and_help_need_no_module(capsys):
    for option, words in (("--version", f"tool {__version__}\n"), ("--help", "    broken    cannot be imported\n")):
        with pytest.raises(SystemExit) as stopped:
            PROGRAM.run([option])
        assert stopped.value.code == 0
        assert words in capsys.readouterr().out


@pytest.mark.parametrize(
    ("description", "words"), [(None, "say good day"), ("How  to\n  greet.\n", "How  to\n  greet.")]
)
def test_the_help_of_a_command_has_its_description_as_written_or_the_summary(greeting, capsys, description, words):
    if description is not None:
        greeting.DESCRIPTION = description
    with pytest.raises(SystemExit):
        PROGRAM.run(["greet", "--help"])
    assert f"\n\n{words}\n\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (Refused("no paper"), 3, "tool: no paper\n"),
        (RefusedByDisk("no space"), 4, "tool: no space\n"),
        (BrokenPipeError(32, "Broken pipe"), EXIT_FAILED, "tool: a connection broke: [Errno 32] Broken pipe\n"),
        (
            ModuleNotFoundError("No module named 'pyspark'", name="pyspark"),
            EXIT_FAILED,
            "tool: pyspark is missing: pip install 'klamm[pipeline]'\n",
        ),
        (KeyboardInterrupt(), EXIT_INTERRUPTED, ""),
    ],
)
def test_what_ends_a_command_is_one_line(greeting, capsys, error, status, line):
    greeting.run = raising(error)
    assert PROGRAM.run(["greet"]) == status
    assert capsys.readouterr() == ("", line)


@pytest.mark.parametrize("program", [PROGRAM, PROGRAM._replace(extra=None)])
def test_a_module_that_no_extra_brings_is_a_defect(program):
    with pytest.raises(ModuleNotFoundError, match="no_such_module_for_a_test"):
        program.run(["broken"])


def test_any_other_error_is_a_defect(greeting):
    greeting.run = raising(ValueError("no such thing"))
    with pytest.raises(ValueError, match="no such thing"):
        PROGRAM.run(["greet"])


@pytest.mark.parametrize("size", [10, 100_000])  # within and beyond what Python buffers
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_reader_of_the_output_may_go_away(size, stream):
    program = f"""
import sys, types
from klamm.cli.program import Command, Program
module = sys.modules["talking"] = types.ModuleType("talking")
module.declare = lambda parser: None
module.run = lambda options: print("x" * {size}, file=sys.{stream}, flush=True)
sys.exit(Program("tool", "", (Command("talk", "", "talking"),), {{}}).run(["talk"]))
"""
    reader, writer = os.pipe()
    os.close(reader)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: writer}
    done = subprocess.run([sys.executable, "-c", program], check=False, text=True, **streams)
    os.close(writer)
    assert done.returncode == EXIT_OK
    assert not (done.stdout or done.stderr)
