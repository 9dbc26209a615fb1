"""A program of several commands: one parser, and one place that handles the end of a command.

    Program("klamm", "A standalone Kafka broker.", COMMANDS, {ConfigError: 2}).run()

A room registers its commands as rows. The module of a command is imported only when that command is chosen, so that no
command slows another one down. It has

    DESCRIPTION                     the text above its options, printed as written; without it, the summary
    declare(parser)                 adds its options
    run(options) -> exit status     runs the command

An error that the program lists as a failure is one line on stderr. Exit status: 0 done, also when the reader of the
output went away (`head` has enough); 1 a connection broke, or an extra is not installed; 2 a wrong option (argparse);
130 interrupted. Any other status comes from the command.
"""

from __future__ import annotations

import argparse
import importlib
import os
import select
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from klamm import __version__

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_INTERRUPTED: Final = 130
"""The exit status that shells use for SIGINT."""
OUTPUTS: Final = (1, 2)
"""The file descriptors of stdout and stderr."""


class Command(NamedTuple):
    """A row: the name of the command, its line in the program's help, its module."""

    name: str
    summary: str
    module: str


class Extra(NamedTuple):
    """An extra of the package, and the modules that installing it brings."""

    name: str
    modules: Collection[str]


class Program(NamedTuple):
    """A program and its commands. `failures` has the exit status of each one-line error: the first that fits."""

    name: str
    description: str
    commands: Sequence[Command]
    failures: Mapping[type[Exception], int]
    extra: Extra | None = None

    def run(self, arguments: Sequence[str] | None = None) -> int:
        """Run one command and return its exit status. The default arguments are those of the process.

        Raises SystemExit for a wrong option, --help and --version.
        """
        try:
            options = self.parse(sys.argv[1:] if arguments is None else arguments)
            return int(options.run(options))
        except tuple(self.failures) as error:
            return self._fail(str(error), self._exit_status(error))
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        except BrokenPipeError as error:
            return EXIT_OK if _reader_is_gone() else self._fail(f"a connection broke: {error}", EXIT_FAILED)
        except ModuleNotFoundError as error:
            if self.extra is None or error.name not in self.extra.modules:
                raise
            return self._fail(f"{error.name} is missing: pip install 'klamm[{self.extra.name}]'", EXIT_FAILED)

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Return the options of the chosen command, and `run`, which takes them."""
        parser = argparse.ArgumentParser(prog=self.name, description=self.description, allow_abbrev=False)
        parser.add_argument("--version", action="version", version=f"{self.name} {__version__}")
        commands = parser.add_subparsers(dest="command", metavar="command", required=True)
        # No option of the program itself takes a value, so the first other word is the command.
        chosen = next((word for word in arguments if not word.startswith("-")), None)
        for row in self.commands:
            command = commands.add_parser(
                row.name,
                help=row.summary,
                allow_abbrev=False,
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
            if row.name == chosen:
                _declare(row, command)
        return parser.parse_args(arguments)

    def _exit_status(self, error: Exception) -> int:
        return next(status for kind, status in self.failures.items() if isinstance(error, kind))

    def _fail(self, reason: str, status: int) -> int:
        print(f"{self.name}: {reason}", file=sys.stderr)
        return status


def _declare(row: Command, parser: argparse.ArgumentParser) -> None:
    module = importlib.import_module(row.module)
    parser.description = getattr(module, "DESCRIPTION", row.summary)
    module.declare(parser)
    parser.set_defaults(run=module.run)


def _reader_is_gone() -> bool:
    """Return whether stdout or stderr has no reader any more. Drop such output, also the buffered part."""
    gone = [output for output in OUTPUTS if _has_no_reader(output)]
    for output in gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return bool(gone)


def _has_no_reader(output: int) -> bool:
    """Ask the kernel: a failed write may have left nothing to flush."""
    poller = select.poll()
    poller.register(output, 0)  # poll reports errors without being asked to
    return bool(poller.poll(0))
