"""`klamm repair`: repairs a partition that is offline because its log is damaged, as the operator decides."""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klamm.broker.commands import CannotBeDone
from klamm.cli.program import EXIT_OK
from klamm.config.definitions import ConfigError
from klamm.config.load import load

if TYPE_CHECKING:
    from klamm.storage.paths import TopicPartition

DESCRIPTION: Final = """\
Repair the log of one partition. The broker must be stopped. Bytes are copied to `<log dir>.cut` before they are cut.
The ranges that were cut and kept are printed. Without --truncate or --skip nothing is done.

  --truncate  the log ends before the first bad batch; all later batches are cut
  --skip      only the damaged bytes are cut; the offsets in them are missing afterwards, as after compaction

Exit code: 0 repaired, or nothing was damaged; 2 a bad command line or config; 3 it cannot be done (the reason is one
line: the broker runs, the disk refuses).

examples:
  klamm repair --partition flights-0 --skip --config server.properties
  klamm repair --partition flights-0 --truncate --log-dirs /disk1/klamm,/disk2/klamm
"""

PARTITION: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--partition", type=_partition, required=True, metavar="topic-0", help="the partition")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--truncate", action="store_true", help="cut the log at the first bad batch")
    how.add_argument("--skip", action="store_true", help="cut only the damaged bytes")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--config", metavar="server.properties", help="the broker's config file, which names log.dirs")
    where.add_argument("--log-dirs", type=_directories, metavar="a,b", help="the log dirs themselves")


def run(options: argparse.Namespace) -> int:
    from klamm.storage.clock import SystemClock
    from klamm.storage.filesystem import OsFilesystem, describe
    from klamm.storage.paths import LOCK, partition_directory
    from klamm.storage.tools.repair import Mode, Repair, RepairError

    partition: TopicPartition = options.partition
    logging.basicConfig(level="WARNING", stream=sys.stderr, format="%(levelname)s %(message)s")
    log_dirs = options.log_dirs or load(options.config, (), os.environ).log_dirs
    places = [path for path in log_dirs if partition_directory(path, partition.topic, partition.partition).is_dir()]
    if len(places) != 1:
        found = " and in ".join(map(str, places)) if places else f"none of {', '.join(map(str, log_dirs))}"
        raise ConfigError(f"{partition} is in {found}")
    (log_dir,) = places
    filesystem = OsFilesystem()
    try:
        lock = filesystem.lock_file(log_dir / LOCK)
    except BlockingIOError:
        raise CannotBeDone(f"{log_dir}: another process holds {LOCK}: stop the broker first") from None
    except OSError as error:
        raise CannotBeDone(f"{log_dir}: {describe(error)}") from error
    mode = Mode.TRUNCATE if options.truncate else Mode.SKIP
    try:
        Repair(log_dir, partition, mode, filesystem=filesystem, clock=SystemClock(), say=print).run()
    except RepairError as error:
        raise CannotBeDone(str(error)) from error
    finally:
        lock.release()
    return EXIT_OK


def _partition(text: str) -> TopicPartition:
    from klamm.storage.paths import TopicPartition

    match = PARTITION.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not <topic>-<number>")
    return TopicPartition(match[1], int(match[2]))


def _directories(text: str) -> list[Path]:
    return [Path(name) for name in text.split(",") if name]
