"""The modes of a broker's files: log directories as `klamm.data.mode` says, secrets for its user alone.

Only the top of a log directory is looked at: a directory that cannot be entered protects all below it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klamm.storage.filesystem import OsFilesystem, make_durable_directory

if TYPE_CHECKING:
    from klamm.config.broker_config import BrokerConfig

DIRECTORY_MODES: Final = {"private": 0o700, "group": 0o2750}
"""The set-group-id bit hands the group of the log directory on to all that is made in it."""

PRIVATE_FILE: Final = 0o600


class NotPrivate(Exception):
    """A file with a secret belongs to another user or others may read it. The message is one line."""


def make_log_dirs(paths: Iterable[Path], mode: str) -> None:
    """Make those log directories that are not there, with their mode. Errors are left to the one that opens them."""
    for path in paths:
        if path.exists():
            continue
        with suppress(OSError):
            make_durable_directory(OsFilesystem(), path)
            path.chmod(DIRECTORY_MODES[mode])


def wide_log_dirs(paths: Iterable[Path], mode: str) -> list[str]:
    """Return a line for each log directory that is open to more, or in `group` to fewer, than its mode says."""
    problems = []
    for path in paths:
        with suppress(OSError):
            actual = stat.S_IMODE(path.stat().st_mode)
            wanted = DIRECTORY_MODES[mode]
            if actual & 0o777 & ~wanted:
                problems.append(f"{path}: mode {actual:04o} lets in more users than klamm.data.mode={mode}; "
                                f"chmod {wanted:o} {path}")  # fmt: skip
            elif mode == "group" and actual & 0o050 != 0o050:
                problems.append(f"{path}: mode {actual:04o} keeps out its group; chmod {wanted:o} {path}")
    return problems


def guard_log_dirs(config: BrokerConfig) -> list[str]:
    """Make the missing log directories; return the problems with the modes of others, or raise NotPrivate."""
    mode = config.text("klamm.data.mode")
    make_log_dirs(config.log_dirs, mode)
    problems = wide_log_dirs(config.log_dirs, mode)
    if problems and (config.text("klamm.data.mode.check") == "refuse" or config.flag("klamm.security.strict")):
        raise NotPrivate(problems[0])
    return problems


def check_private(path: Path) -> None:
    """Raise NotPrivate unless the file is ours and no one else may read or write it."""
    status = path.stat()
    if status.st_uid != os.geteuid():
        raise NotPrivate(f"{path}: it belongs to user id {status.st_uid}, not to the user of this broker")
    if status.st_mode & 0o077:
        raise NotPrivate(f"{path}: mode {stat.S_IMODE(status.st_mode):04o} lets other users in; chmod 600 {path}")


def make_private(path: Path) -> None:
    """Have a file that only we may read: made if it is not there, else narrowed. Raises NotPrivate, OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise NotPrivate(f"{path}: it belongs to another user than that of this broker")
        os.fchmod(descriptor, PRIVATE_FILE)
    finally:
        os.close(descriptor)
