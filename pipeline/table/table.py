"""A Delta table with the offsets up to which its rows were loaded, and with exactly-once commits.

A commit is made on top of the version that the job has seen, never on a later one: a commit in between is examined
first. If it left our offsets and files alone (an OPTIMIZE, for example), ours follows it. If not, another job works on
the same table, and nothing of this run becomes visible. delta-rs accepts an app transaction with a version that is
equal to or lower than the last, so the check is here.

After a crash there is nothing to repair: files without a commit are invisible, and `vacuum` deletes them.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from klamm.pipeline.errors import ConcurrentCommit, NotATable, PipelineError
from klamm.pipeline.ranges import NO_TOPIC_ID, TopicPartition
from klamm.pipeline.table.files import MIXED, DataFile
from klamm.pipeline.table.location import LOG_DIRECTORY, Location
from klamm.pipeline.table.log import Commit, Log
from klamm.pipeline.table.offsets import next_offsets, offset_app, topic_app, topic_ids

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

PARTITION_BY: Final = ("topic", "date")
KNOWN_FEATURES: Final = frozenset({"timestampNtz", "variantType"})
"""The known reader features. With others (deletion vectors, column mapping) the files are not the whole table."""
COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
CAUSES: Final = 3
LINE: Final = 300
ATTEMPTS: Final = 10
"""The most attempts of a commit, each after another job's commit."""


@dataclass(slots=True)
class Change:
    """The content of one commit. `expected` and `offsets` are next offsets, before and after; None: not loaded yet."""

    expected: Mapping[TopicPartition, int | None]
    offsets: Mapping[TopicPartition, int]
    added: Sequence[DataFile] = ()
    removed: Sequence[DataFile] = ()
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)


class Table:
    """A table at its last seen version. Not for use by several threads at once."""

    def __init__(
        self, location: Location, delta: DeltaTable, *, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ) -> None:
        self.location = location
        self._delta = delta
        self._log = Log(location)
        self._now_ms = now_ms
        self._seen = -1
        self._transactions: dict[str, int] = {}
        self.refresh()

    # -- life

    @classmethod
    def open(cls, location: Location, version: int | None = None) -> Self:
        """Open a table. Raises NotATable."""
        return cls(location, _delta(location, version))

    @classmethod
    def open_if_there(cls, location: Location) -> Self | None:
        """Open a table; return None where one can be created. Raises NotATable where there is something else."""
        from pyarrow import fs

        if location.is_local and Path(location.uri).is_file():
            raise NotATable(f"{location} is a file: a table is a directory")
        try:
            filesystem = location.filesystem()
            there = [info.base_name for info in filesystem.get_file_info(fs.FileSelector("", allow_not_found=True))]
        except Exception as error:
            raise NotATable(f"{location} cannot be read: {first_line(error)}") from None
        if LOG_DIRECTORY in there and (there != [LOG_DIRECTORY] or Log(location).has_commits()):
            return cls.open(location)
        there = [name for name in there if name != LOG_DIRECTORY]  # a killed creation leaves a log without a commit
        if there:
            raise NotATable(
                f"{location} is not a Delta table: it has no {LOG_DIRECTORY}, but {min(there)}. "
                "Name a table, or an empty path"
            )
        return None

    @classmethod
    def create(
        cls,
        location: Location,
        schema: pa.Schema,
        *,
        partition_by: Sequence[str] = PARTITION_BY,
        job: str = "load",
        properties: Mapping[str, str] | None = None,
    ) -> Self:
        """Create an empty table: a commit of its own. `properties` are ours, below "klamm."."""
        from deltalake import CommitProperties, DeltaTable

        try:
            delta = DeltaTable.create(
                location.uri,
                schema=schema,
                partition_by=list(partition_by),
                storage_options=location.storage_options,
                configuration=dict(properties or {}),
                raise_if_key_not_exists=False,
                commit_properties=CommitProperties(custom_metadata={"klamm": {"job": job}}),
            )
        except Exception as error:
            if (rival := cls.open_if_there(location)) is not None:
                raise ConcurrentCommit(
                    f"{location}: another job has created it meanwhile (version {rival.version})"
                ) from None
            raise PipelineError(f"{location}: cannot be created: {first_line(error)}") from None
        location.sync_log(0)
        return cls(location, delta)

    # -- its content

    @property
    def version(self) -> int:
        return int(self._delta.version())

    @property
    def schema(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema(self._delta.schema())

    @property
    def partition_by(self) -> list[str]:
        return list(self._delta.metadata().partition_columns)

    @property
    def properties(self) -> dict[str, str]:
        """Return Delta's properties and ours."""
        return dict(self._delta.metadata().configuration)

    @property
    def delta(self) -> DeltaTable:
        """Return the table of delta-rs, for operations that only delta-rs has."""
        return self._delta

    @property
    def next_offsets(self) -> dict[TopicPartition, int]:
        """Return the next offsets of all loaded topic partitions."""
        return next_offsets(self._transactions)

    @property
    def topic_ids(self) -> dict[str, set[bytes]]:
        return topic_ids(self._transactions)

    def files(self) -> list[DataFile]:
        """Return all files of this version."""
        return list(_files(self._delta))

    def commits(self) -> Iterator[Commit]:
        """Yield commits, newest first."""
        return self._log.commits()

    # -- changing it

    def refresh(self) -> None:
        """Read the commits made since."""
        if self._seen >= 0:
            try:
                self._delta.update_incremental()
            except Exception as error:
                raise NotATable(f"{self.location} can no longer be read: {first_line(error)}") from None
        version = self.version
        if self._seen < 0 or version < self._seen:
            self._transactions = self._log.transactions(version)
        else:
            for at in range(self._seen + 1, version + 1):
                self._transactions.update(self._log.committed(at))
        self._seen = version

    def commit(self, change: Change) -> int:
        """Commit all of the change, or nothing; return the new version. Raises ConcurrentCommit."""
        self._check_files(change)
        token, schema = uuid.uuid4().hex, self._delta.schema()
        for _ in range(ATTEMPTS):
            self._check_concurrent_commits(change)
            if self._delta.schema() != schema:
                raise ConcurrentCommit(
                    f"{self.location}: another job has changed its columns meanwhile; run this again"
                )
            try:
                self._write(change, token)
            except Exception as error:
                self.refresh()
                if not self._is_ours(token):
                    reason = first_line(error)
                    continue
            else:
                self.refresh()
            self.location.sync_log(self.version)
            return self.version
        raise PipelineError(f"{self.location}: the commit failed {ATTEMPTS} times, nothing of it is visible: {reason}")

    def add_columns(self, schema: pa.Schema) -> None:
        """Make this the table's schema: it has more columns, or more fields below `value`."""
        from deltalake import Schema

        try:
            self._delta.alter.add_columns(Schema.from_arrow(schema).fields)
        except Exception as error:
            raise PipelineError(f"{self.location}: columns cannot be added: {first_line(error)}") from None
        self.refresh()
        self.location.sync_log(self.version)

    def _check_files(self, change: Change) -> None:
        """Check that the files are here: tasks on other machines write to their own disks if the path is not shared."""
        for file in change.added if self.location.is_local else ():
            path = Path(self.location.uri, file.path)
            if not path.is_file() or path.stat().st_size != file.size_bytes:
                raise PipelineError(
                    f"{path}: a task has written this file, but it is not here; tasks on several machines need a path "
                    "that all share, or a URL"
                )

    def _check_concurrent_commits(self, change: Change) -> None:
        current = self.next_offsets
        for partition, expected in change.expected.items():
            if current.get(partition) != expected:
                raise ConcurrentCommit(
                    f"{self.location}: another job has loaded {partition} meanwhile, up to {current.get(partition)} "
                    f"where this one began at {expected}. Nothing of this run is visible; run only one at a time"
                )
        if change.removed:
            gone = {file.path for file in change.removed} - {file.path for file in self.files()}
            if gone:
                raise ConcurrentCommit(
                    f"{self.location}: another job has replaced {min(gone)} meanwhile; run this again"
                )

    def _write(self, change: Change, token: str) -> None:
        from deltalake import CommitProperties, Transaction

        now_ms = self._now_ms()
        apps = {offset_app(partition): offset for partition, offset in change.offsets.items()}
        apps.update({topic_app(name, item): 1 for name, item in change.topic_ids.items() if item != NO_TOPIC_ID})
        self._delta.create_write_transaction(
            [*(file.remove(now_ms) for file in change.removed), *(file.add(now_ms) for file in change.added)],
            mode="append",
            schema=self._delta.schema(),
            partition_by=self.partition_by,
            commit_properties=CommitProperties(
                custom_metadata={"klamm": {**change.facts, "commit": token}},
                max_commit_retries=0,
                app_transactions=[Transaction(app, offset) for app, offset in apps.items()],
            ),
        )

    def _is_ours(self, token: str) -> bool:
        """Return whether a commit exists although its answer was an error."""
        return any(commit.facts.get("commit") == token for commit in islice(self.commits(), ATTEMPTS))


def _delta(location: Location, version: int | None) -> DeltaTable:
    from deltalake import DeltaTable

    try:
        delta = DeltaTable(location.uri, version=version, storage_options=location.storage_options)
    except Exception as error:
        at = "" if version is None else f" version {version}"
        raise NotATable(f"{location}{at} is not a Delta table that can be read: {first_line(error)}") from None
    if unknown := set(delta.protocol().reader_features or ()) - KNOWN_FEATURES:
        raise NotATable(f"{location} uses {', '.join(sorted(unknown))}, which is not supported here")
    return delta


def _files(delta: DeltaTable) -> Iterator[DataFile]:
    import pyarrow as pa

    names = delta.metadata().partition_columns
    for row in pa.table(delta.get_add_actions(flatten=True)).to_pylist():
        values = tuple((name, str(row[f"partition.{name}"])) for name in names)
        low, high = (row.get(f"{end}.partition", row.get("partition.partition")) for end in ("min", "max"))
        known = low is not None and low == high and row.get("min.offset") is not None
        yield DataFile(
            path=row["path"],
            size_bytes=row["size_bytes"],
            values=values,
            partition=int(low) if known else MIXED,
            records=row["num_records"],
            first=row["min.offset"] if known else 0,
            last=row["max.offset"] if known else 0,
        )


def first_line(error: BaseException) -> str:
    """Return one line of an error of delta-rs, which may be a page: a tree of causes with arrows and colours."""
    lines = [COLOURS.sub("", line).replace("\u21b3", "").strip(" :.") for line in str(error).splitlines()]
    text = ": ".join([line for line in lines if line][:CAUSES]) or type(error).__name__
    return text if len(text) <= LINE else text[: LINE - 3] + "..."
