"""`klamm snapshot` and `klamm restore`: topics as a directory of hard links, for a backup or as a test fixture."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klamm.broker.commands import Commands, add_command
from klamm.config.load import load

if TYPE_CHECKING:
    from klamm.storage.scrub_state import KnownDamage

SNAPSHOT_DESCRIPTION: Final = """\
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
RESTORE_DESCRIPTION: Final = """\
Bring topics of a snapshot back as new topics, with their settings, ids and records. The broker must be stopped; a
directory that was never used will do. Segments are shared with the snapshot, which stays as it is, so it can be
restored any number of times. Transactions that were open when it was taken are aborted.

Exit code: 0 done; 2 a bad command line or config; 3 it cannot be done (the reason is one line), nothing has changed.

examples:
  klamm restore /backup/monday --config server.properties
  klamm restore ./fixture --topics flights --rename flights=flights-again --override log.dirs=./data
"""

EXIT_OK: Final = 0
EXIT_UNUSABLE: Final = 3
PAUSE_S: Final = 0.02


def declare(commands: Commands) -> None:
    snapshot = add_command(commands, "snapshot", "take a snapshot of topics", SNAPSHOT_DESCRIPTION)
    snapshot.set_defaults(run=run_snapshot)
    snapshot.add_argument("target", type=Path, metavar="TARGET", help="the directory to make; missing or empty")
    _add_common(snapshot, "all but Kafka's internal ones")
    restore = add_command(commands, "restore", "bring topics of a snapshot back", RESTORE_DESCRIPTION)
    restore.set_defaults(run=run_restore)
    restore.add_argument("source", type=Path, metavar="SNAPSHOT", help="the directory that `klamm snapshot` has made")
    _add_common(restore, "all of the snapshot")
    restore.add_argument(
        "--rename", type=_renaming, action="append", default=[], metavar="old=new",
        help="restore a topic under another name; may be given several times",
    )  # fmt: skip


def _add_common(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--topics", type=_names, metavar="a,b", help=f"topics or regular expressions, separated by commas ({default})"
    )
    parser.add_argument("--config", metavar="server.properties", help="the broker's config file")
    parser.add_argument(
        "--override", action="append", default=[], metavar="key=value", help="set one key; may be given several times"
    )


def run_snapshot(options: argparse.Namespace) -> int:
    from klamm.broker.backup.manifest import CannotBackUp
    from klamm.broker.backup.taking import take_snapshot
    from klamm.storage.clock import SystemClock
    from klamm.storage.filesystem import OsFilesystem

    config = load(options.config, options.override, os.environ)
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
        print(f"klamm: {error}", file=sys.stderr)
        return EXIT_UNUSABLE
    if done.gone:
        print(f"deleted meanwhile, not in the snapshot: {', '.join(done.gone)}", file=sys.stderr)
    _say_if_damaged(done.damage)
    _say_if_elsewhere(options.target, config.log_dirs)
    print(
        f"{options.target}: topics={done.topic_count} partitions={done.partition_count} "
        f"linked_bytes={done.size.linked_bytes} copied_bytes={done.size.copied_bytes} "
        f"took_ms={(clock.monotonic() - started) * 1000:.0f}"
    )
    return EXIT_OK


def run_restore(options: argparse.Namespace) -> int:
    from klamm.broker.backup.manifest import CannotBackUp
    from klamm.broker.backup.restoring import restore_snapshot
    from klamm.storage.clock import SystemClock
    from klamm.storage.filesystem import OsFilesystem

    config = load(options.config, options.override, os.environ)
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
        print(f"klamm: {error}", file=sys.stderr)
        return EXIT_UNUSABLE
    _say_if_damaged(done.damage)
    _say_if_elsewhere(options.source, config.log_dirs)
    print(
        f"restored {', '.join(done.names)}: topics={len(done.names)} partitions={done.partition_count} "
        f"linked_bytes={done.size.linked_bytes} copied_bytes={done.size.copied_bytes} "
        f"aborted_transactions={done.aborted_count} took_ms={(clock.monotonic() - started) * 1000:.0f}"
    )
    return EXIT_OK


def _say_if_damaged(damage: Sequence[KnownDamage]) -> None:
    from klamm.broker.backup.known_damage import told

    if damage:
        print(told(damage), file=sys.stderr)


def _say_if_elsewhere(directory: Path, log_dirs: Sequence[Path]) -> None:
    """A copy of everything may be what was wanted, or a surprise of many gigabytes."""
    for path in log_dirs:
        if path.stat().st_dev != directory.stat().st_dev:
            print(
                f"{directory} is on another filesystem than {path}: nothing is shared, all is copied", file=sys.stderr
            )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _renaming(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise argparse.ArgumentTypeError(f"{text!r} is not old=new")
    return old, new
