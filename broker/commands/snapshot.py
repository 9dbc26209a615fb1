"""`klamm snapshot`: copies topics to a directory of hard links, for a backup or as a test fixture."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Final

from klamm.broker.commands import CannotBeDone
from klamm.broker.commands.backups import add_arguments, say_if_damaged, say_if_elsewhere
from klamm.cli.program import EXIT_OK
from klamm.config.load import load
from klamm.config.secrets import from_command_line

DESCRIPTION: Final = """\
Take a snapshot of topics into a new directory, in milliseconds: closed segments are shared by hard links, only the last
segment of each partition is copied. On another filesystem than the log dirs everything is copied.

Works while the broker runs, and after it has stopped cleanly. Each partition has all that was written up to a moment,
and nothing half; the moments of two partitions differ by as long as the snapshot takes. What happens to the topics
afterwards does not change the snapshot.

Exit code: 0 done; 2 a bad command line or config; 3 it cannot be done (the reason is one line).

examples:
  klamm snapshot /backup/monday --config server.properties
  klamm snapshot ./fixture --topics 'flights,weather-.*' --override log.dirs=./data
"""

PAUSE_S: Final = 0.02


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", type=Path, metavar="TARGET", help="the directory to make; missing or empty")
    add_arguments(parser, "all but Kafka's internal ones")


def run(options: argparse.Namespace) -> int:
    from klamm.broker.tools.manifest import CannotBackUp
    from klamm.broker.tools.snapshot import take_snapshot
    from klamm.storage.clock import SystemClock
    from klamm.storage.filesystem import OsFilesystem

    config = load(options.config, from_command_line(options.override), os.environ)
    clock = SystemClock()
    started = clock.monotonic()
    try:
        done = take_snapshot(
            config,
            options.target,
            options.topics,
            filesystem=OsFilesystem(),
            clock=clock,
            pause=lambda: time.sleep(PAUSE_S),
        )
    except CannotBackUp as error:
        raise CannotBeDone(str(error)) from error
    if done.gone:
        print(f"deleted meanwhile, not in the snapshot: {', '.join(done.gone)}", file=sys.stderr)
    say_if_damaged(done.damage)
    say_if_elsewhere(options.target, config.log_dirs)
    print(
        f"{options.target}: topics={done.topic_count} partitions={done.partition_count} "
        f"linked_bytes={done.size.linked_bytes} copied_bytes={done.size.copied_bytes} "
        f"took_ms={(clock.monotonic() - started) * 1000:.0f}"
    )
    return EXIT_OK
