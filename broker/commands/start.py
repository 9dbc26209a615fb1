"""`klamm start`: run a broker until SIGTERM or SIGINT.

Exit status: 0 stopped by a signal, 2 a bad command line or config, 3 an unusable data directory or port. Logs go to
stderr, one line each; stdout has the ready line only.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from typing import Final

from klamm.config.exposure import check_exposures
from klamm.config.load import load, notes
from klamm.config.secrets import from_command_line

LOG_FORMAT: Final = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"
LOG_TIME_FORMAT: Final = "%Y-%m-%d %H:%M:%S"
LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")

log = logging.getLogger("klamm.config")


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", metavar="server.properties", help="Kafka's config file; without it, defaults"
    )
    parser.add_argument(
        "--override", action="append", default=[], metavar="key=value", help="set one key; may be given several times"
    )
    parser.add_argument(
        "--log-level", type=str.upper, choices=LOG_LEVELS, default="INFO", help="how much to log (INFO)"
    )


def run(options: argparse.Namespace) -> int:
    logging.basicConfig(level=options.log_level, stream=sys.stderr, format=LOG_FORMAT, datefmt=LOG_TIME_FORMAT)
    config = load(options.file, from_command_line(options.override), os.environ, forget=os.environ.pop)
    exposed = check_exposures(config)
    infos, warnings = notes(config)
    for line in infos:
        log.info("%s", line)
    for line in (*warnings, *exposed):
        log.warning("%s", line)
    from klamm.broker import server

    return server.run(config)
