"""The command line: `klamm start`, `config`, `--version`, and the commands in `commands/`.

Exit codes: 0 is success (for `start`: stopped by SIGTERM or SIGINT), 2 a bad command line or config, told in one line
on stderr, 3 a data directory or port that cannot be used. Logs go to stderr, one line each; stdout has the ready line
only. Each command imports what it needs when it runs, so that `start` is quick.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from typing import Final

from klamm import __version__
from klamm.broker.commands import dump_log, export_kafka, repair, snapshot, verify
from klamm.config.definitions import ConfigError
from klamm.config.load import load, notes

LOG_FORMAT: Final = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"
LOG_TIME_FORMAT: Final = "%Y-%m-%d %H:%M:%S"
LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")

EXIT_OK: Final = 0
EXIT_BAD_CONFIG: Final = 2
EXIT_UNUSABLE: Final = 3

log = logging.getLogger("klamm.config")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        match options.command:
            case "start":
                return _start(options.file, options.override, options.log_level)
            case "config":
                return _config()
            case _:
                return int(options.run(options))
    except ConfigError as error:
        print(f"klamm: {error}", file=sys.stderr)
        return EXIT_BAD_CONFIG
    except BrokenPipeError:
        # The reader of our output (a pager, head) went away; keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK


def _start(file: str | None, overrides: Sequence[str], log_level: str) -> int:
    logging.basicConfig(level=log_level, stream=sys.stderr, format=LOG_FORMAT, datefmt=LOG_TIME_FORMAT)
    config = load(file, overrides, os.environ)
    infos, warnings = notes(config)
    for line in infos:
        log.info("%s", line)
    for line in warnings:
        log.warning("%s", line)
    from klamm.broker.server import run

    return run(config)


def _config() -> int:
    from klamm.config.reference import as_text

    print(as_text(), end="")
    return EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="klamm", description="A standalone Kafka broker.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"klamm {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)

    start = commands.add_parser("start", help="run a broker in the foreground", allow_abbrev=False)
    start.add_argument("file", nargs="?", metavar="server.properties", help="Kafka's config file; without it, defaults")
    start.add_argument(
        "--override", action="append", default=[], metavar="key=value", help="set one key; may be given several times"
    )
    start.add_argument("--log-level", type=str.upper, choices=LOG_LEVELS, default="INFO", help="how much to log (INFO)")

    commands.add_parser("config", help="list every config key with its default and meaning")

    for command in (dump_log, export_kafka, repair, snapshot, verify):
        command.declare(commands)
    return parser
