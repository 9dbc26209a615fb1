"""The log of a table, for the parts that delta-rs does not offer: all app transactions, and the facts of each commit.

_delta_log/00000000000000000012.json                    a line of JSON per action of version 12
_delta_log/00000000000000000010.checkpoint.parquet      the state at version 10; may come in parts, with .001.002 before
                                                        the suffix

Actions used here: {"txn": {"appId": str, "version": int}}, {"commitInfo": {"timestamp": ms, "operation": str, ...}}
(Delta's PROTOCOL.md). A commit without commitInfo is by another program.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from klamm.pipeline.errors import NotATable
from klamm.pipeline.table.location import LOG_DIRECTORY, Location

NAME: Final = re.compile(r"(\d{20})(?:\.(json)|\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet)")


@dataclass(frozen=True, slots=True)
class Commit:
    """A version, and its commitInfo (with our own facts below "klamm")."""

    version: int
    timestamp_ms: int
    info: dict[str, Any]

    @property
    def facts(self) -> dict[str, Any]:
        """Return the facts that a job of ours recorded; empty for other commits."""
        found = self.info.get("klamm")
        return found if isinstance(found, dict) else {}


class Log:
    """The files of the log. The caller names the version to read up to."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._filesystem = location.filesystem()

    def transactions(self, version: int) -> dict[str, int]:
        """Return the latest version of each app id, as of a version."""
        commits, checkpoints = self._names()
        since, parts = max(((at, parts) for at, parts in checkpoints.items() if at <= version), default=(-1, []))
        found: dict[str, int] = {}
        for name in parts:
            found.update(self._checkpointed(name))
        for at in range(since + 1, version + 1):
            if at not in commits:
                raise NotATable(f"{self._location}: version {at} is missing in its {LOG_DIRECTORY}")
            found.update(self.committed(at))
        return found

    def has_commits(self) -> bool:
        """Return whether a table exists."""
        commits, checkpoints = self._names()
        return bool(commits or checkpoints)

    def committed(self, version: int) -> dict[str, int]:
        """Return the app transactions of one commit."""
        actions = self._actions(version, "txn")
        return {action["appId"]: action["version"] for action in actions}

    def commits(self) -> Iterator[Commit]:
        """Yield commits, newest first, as far back as the log's JSON files reach."""
        versions, _ = self._names()
        for version in sorted(versions, reverse=True):
            info = next(iter(self._actions(version, "commitInfo")), {})
            yield Commit(version, int(info.get("timestamp", 0)), info)

    def _actions(self, version: int, kind: str) -> list[dict[str, Any]]:
        with self._filesystem.open_input_file(f"{LOG_DIRECTORY}/{version:020d}.json") as file:
            lines = file.read().splitlines()
        mark = f'"{kind}"'.encode()
        actions = (json.loads(line) for line in lines if mark in line)
        return [action[kind] for action in actions if action.get(kind) is not None]

    def _checkpointed(self, name: str) -> dict[str, int]:
        import pyarrow.parquet as pq

        with self._filesystem.open_input_file(f"{LOG_DIRECTORY}/{name}") as file:
            rows = pq.read_table(file, columns=["txn"])["txn"].combine_chunks().drop_null().to_pylist()
        return {row["appId"]: row["version"] for row in rows if row["appId"] is not None}

    def _names(self) -> tuple[set[int], dict[int, list[str]]]:
        from pyarrow import fs

        commits: set[int] = set()
        checkpoints: dict[int, dict[int, list[str]]] = {}
        for info in self._filesystem.get_file_info(fs.FileSelector(LOG_DIRECTORY, allow_not_found=True)):
            if (match := NAME.fullmatch(info.base_name)) is None:
                continue
            if match[2]:
                commits.add(int(match[1]))
            else:
                checkpoints.setdefault(int(match[1]), {}).setdefault(int(match[4] or 1), []).append(info.base_name)
        whole = {
            at: names
            for at, by_count in checkpoints.items()
            for count, names in by_count.items()
            if len(names) == count
        }
        return commits, whole
