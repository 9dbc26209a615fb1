"""`klamm restore`: restores topics of a snapshot as new topics."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from klamm.broker.commands import CannotBeDone
from klamm.broker.commands.backups import add_arguments, say_if_damaged, say_if_elsewhere
from klamm.cli.program import EXIT_OK
from klamm.config.load import load
from klamm.config.secrets import from_command_line

DESCRIPTION: Final = """\
Bring topics of a snapshot back as new topics, with their settings, ids and records. The broker must be stopped; a
directory that was never used will do. Segments are shared with the snapshot, which stays as it is, so it can be
restored any number of times. Transactions that were open when it was taken are aborted.

Exit code: 0 done; 2 a bad command line or config; 3 it cannot be done (the reason is one line), nothing has changed.

examples:
  klamm restore /backup/monday --config server.properties
  klamm restore ./fixture --topics flights --rename flights=flights-again --override log.dirs=./data
"""


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="SNAPSHOT", help="the directory that `klamm snapshot` has made")
    add_arguments(parser, "all of the snapshot")
    parser.add_argument(
        "--rename", type=_renaming, action="append", default=[], metavar="old=new",
        help="restore a topic under another name; may be given several times",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    from klamm.broker.tools.manifest import CannotBackUp
    from klamm.broker.tools.restore import restore_snapshot
    from klamm.storage.clock import SystemClock
    from klamm.storage.filesystem import OsFilesystem

    config = load(options.config, from_command_line(options.override), os.environ)
    clock = SystemClock()
    started = clock.monotonic()
    try:
        done = restore_snapshot(
            config,
            options.source,
            options.topics,
            dict(options.rename),
            filesystem=OsFilesystem(),
            clock=clock,
            random_bytes=os.urandom,
        )
    except CannotBackUp as error:
        raise CannotBeDone(str(error)) from error
    say_if_damaged(done.damage)
    say_if_elsewhere(options.source, config.log_dirs)
    print(
        f"restored {', '.join(done.names)}: topics={len(done.names)} partitions={done.partition_count} "
        f"linked_bytes={done.size.linked_bytes} copied_bytes={done.size.copied_bytes} "
        f"aborted_transactions={done.aborted_count} took_ms={(clock.monotonic() - started) * 1000:.0f}"
    )
    return EXIT_OK


def _renaming(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise argparse.ArgumentTypeError(f"{text!r} is not old=new")
    return old, new
