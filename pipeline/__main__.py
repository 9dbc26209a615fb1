"""The command `klamm-pipeline`, also as `python -m klamm.pipeline`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from klamm.cli.program import Extra, Program
from klamm.pipeline.commands import COMMANDS, FAILURES

EXTRA: Final = Extra("pipeline", ("deltalake", "fastavro", "numpy", "pyarrow", "pyspark", "rich"))
PROGRAM: Final = Program("klamm-pipeline", "Topics as tables, on Spark.", COMMANDS, FAILURES, EXTRA)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job and return its exit status."""
    return PROGRAM.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
