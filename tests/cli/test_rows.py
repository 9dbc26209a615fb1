"""The rows of all rooms: each names a module that keeps to the convention, and `klamm start` imports no other."""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import klamm.__main__
import klamm.broker.commands
import klamm.pipeline.__main__
import klamm.pipeline.commands
from klamm.cli.program import Command, Program

PROGRAMS = (klamm.__main__.PROGRAM, klamm.pipeline.__main__.PROGRAM)
ROWS = [pytest.param(program, row, id=f"{program.name} {row.name}") for program in PROGRAMS for row in program.commands]


@pytest.mark.parametrize(("program", "row"), ROWS)
def test_the_module_of_a_row_keeps_to_the_convention(program: Program, row: Command) -> None:
    module = importlib.import_module(row.module)
    assert row.module.rpartition(".")[2] == row.name.replace("-", "_")
    assert (module.__doc__ or "").startswith(f"`{program.name} {row.name}`: ")
    assert isinstance(getattr(module, "DESCRIPTION", row.summary), str)
    assert module.declare(argparse.ArgumentParser(allow_abbrev=False)) is None
    assert callable(module.run)


@pytest.mark.parametrize("package", [klamm.broker.commands, klamm.pipeline.commands])
def test_every_command_has_a_row(package) -> None:
    (folder,) = package.__path__
    commands = {
        f"{package.__name__}.{path.stem}" for path in Path(folder).glob("*.py") if "\ndef run(" in path.read_text()
    }
    assert {row.module for row in package.COMMANDS} == commands


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_command_stands_twice(program: Program) -> None:
    assert len({row.name for row in program.commands}) == len(program.commands)


def modules_after(*arguments: str) -> set[str]:
    """What a command of `klamm` has imported when it ends."""
    code = f"import sys, klamm.__main__ as k; k.main({arguments!r}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_start_imports_no_other_command_and_reads_the_config_without_heavy_imports() -> None:
    modules = modules_after("start", "--override", "num.partitions=0")
    assert {name for name in modules if name.startswith("klamm.broker.")} == {
        "klamm.broker.commands",
        "klamm.broker.commands.start",
    }
    assert not {"numpy", "asyncio", "uvloop", "dataclasses", "prometheus_client", "sqlite3"} & modules


def test_a_tool_imports_neither_start_nor_the_server() -> None:
    modules = modules_after("config")
    assert "klamm.broker.commands.config" in modules
    assert not {"klamm.broker.commands.start", "klamm.broker.server"} & modules
