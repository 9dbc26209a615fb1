"""The command line `klamm-pipeline`: one subcommand per job, each a module in `commands/`.

Such a module has `NAME`, `HELP`, `add_arguments(parser)` and `run(options, report) -> int`; it imports Spark and Arrow
inside functions, so that `--help` is quick. Exit status: 0 done, 1 the job failed (one line on stderr), 2 a wrong
option, or a mismatch found by `audit` or `verify`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from klamm import __version__
from klamm.pipeline.errors import EXIT_FAILED, EXIT_OK, PipelineError
from klamm.pipeline.jobs.report import Report, add_report_arguments

COMMANDS: tuple[str, ...] = ("audit", "compact", "dlq", "load", "mirror", "publish", "status", "vacuum", "verify")
EXTRA = ("deltalake", "fastavro", "numpy", "pyarrow", "pyspark", "rich")
"""What the extra `pipeline` brings."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job and return its exit status."""
    options = parser().parse_args(arguments)
    try:
        with Report.from_options(options) as report:
            return int(options.run(options, report))
    except PipelineError as error:
        print(f"klamm-pipeline: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        return 130  # as a shell has it for SIGINT
    except BrokenPipeError as error:
        if _is_read():
            print(f"klamm-pipeline: a connection broke: {error}", file=sys.stderr)
            return EXIT_FAILED
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except ModuleNotFoundError as error:
        if error.name not in EXTRA:
            raise
        print(f"klamm-pipeline: {error.name} is missing: pip install 'klamm[pipeline]'", file=sys.stderr)
        return EXIT_FAILED


def _is_read() -> bool:
    """Whether somebody still reads our output: `head` goes away when it has enough."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return False
    return True


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    root = argparse.ArgumentParser(prog="klamm-pipeline", description="Topics as tables, on Spark.", allow_abbrev=False)
    root.add_argument("--version", action="version", version=f"klamm-pipeline {__version__}")
    commands = root.add_subparsers(dest="command", metavar="command", required=True)
    for name in COMMANDS:
        module = importlib.import_module(f"klamm.pipeline.commands.{name}")
        command = commands.add_parser(module.NAME, help=module.HELP, description=module.HELP, allow_abbrev=False)
        module.add_arguments(command)
        add_report_arguments(command)
        command.set_defaults(run=module.run)
    return root


if __name__ == "__main__":
    sys.exit(main())
