"""The embedded store: the tree of nodes in one SQLite file beside the logs.

Format (``user_version`` 1), one row for one node::

    node(parent, name, value, version, ephemeral, crc)   PRIMARY KEY (parent, name), WITHOUT ROWID

The table is one B-tree ordered by (parent, name): children are one range, everything below a path is two. ``crc`` is
CRC-32 of the value, as SQLite has no checksums of its own. ``counter`` holds the revision.

Durability: write-ahead log with ``synchronous=FULL``, so a commit is on the disk when it returns; after a crash SQLite
replays the log by itself. A failed write for lack of space is rolled back and may be tried again. After any other
input/output error the stored data cannot be trusted until they are read back, so the store refuses every further call.

The file is private (mode 0600): it has credentials. One process owns it (the lock of the log dir sees to it), so at
open no other session can be alive and all ephemeral nodes are removed. Others may read: `read_only` sees data
stored when it was opened. Watches are called on the thread that made the change.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from klamm.broker.metadata.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    EphemeralParent,
    EventKind,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    StoreCorrupt,
    StoreFailed,
    StoreFull,
    StoreUnavailable,
    WatchCallback,
    WatchEvent,
    split,
)
from klamm.broker.security.file_modes import NotPrivate, make_private

FILE_NAME = "klamm-metadata.db"
FORMAT = 1
APPLICATION_ID = 0x4B4C4D4D  # "KLMM", in the header of the file

SCHEMA = f"""
BEGIN;
CREATE TABLE node (
    parent TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL,
    ephemeral INTEGER NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (parent, name)
) WITHOUT ROWID;
CREATE TABLE counter (revision INTEGER NOT NULL);
INSERT INTO counter VALUES (0);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
COMMIT;
"""

GET = "SELECT value, version, crc FROM node WHERE parent = ? AND name = ?"
INSERT = "INSERT INTO node VALUES (?, ?, ?, 0, ?, ?)"
UPDATE = "UPDATE node SET value = ?, version = version + 1, crc = ? WHERE parent = ? AND name = ?"
DELETE = "DELETE FROM node WHERE parent = ? AND name = ?"
CHILDREN = "SELECT name FROM node WHERE parent = ? ORDER BY name"
HAS_CHILD = "SELECT 1 FROM node WHERE parent = ? LIMIT 1"
BELOW = "parent = ? OR (parent > ? AND parent < ?)"  # the children, and the range of their descendants


class SqliteStore:
    """A `MetadataStore` in a file. Opening raises StoreCorrupt, or StoreUnavailable if it cannot be opened."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._watches: list[tuple[str, WatchCallback, bool]] = []
        self._failure: str | None = None
        self.make_room: Callable[[], bool] = lambda: False
        """Called when a change fails on a full disk. True: there is space now, so the change may be tried again."""
        self._closed = False
        is_new = not read_only and (not path.exists() or path.stat().st_size == 0)
        target = _read_only_uri(path) if read_only else path
        try:
            if not read_only:
                make_private(path)
            self._db = sqlite3.connect(target, isolation_level=None, check_same_thread=False, timeout=5, uri=read_only)
        except (sqlite3.Error, OSError) as error:
            raise StoreUnavailable(f"cannot open the metadata store {path}: {error}") from None
        except NotPrivate as error:
            raise StoreUnavailable(f"cannot open the metadata store {error}") from None
        try:
            with self._translated():
                if read_only:
                    self._open_read_only()
                else:
                    self._open(is_new)
        except BaseException:
            self._closed = True
            self._db.close()
            raise

    def _open_read_only(self) -> None:
        self._check_format()
        self._db.execute("BEGIN")
        self._db.execute("SELECT revision FROM counter").fetchone()  # from here on this reader sees no changes

    def _open(self, is_new: bool) -> None:
        db = self._db
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA temp_store = MEMORY")
        if is_new or not db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
            db.executescript(SCHEMA)
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            _sync_directory(self.path.parent)
        self._check_format()
        (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise StoreCorrupt(f"the metadata store {self.path} is damaged: {verdict}")
        db.execute("DELETE FROM node WHERE ephemeral")

    def _check_format(self) -> None:
        (application_id,) = self._db.execute("PRAGMA application_id").fetchone()
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if application_id != APPLICATION_ID:
            raise StoreCorrupt(f"{self.path} is a database, but not a metadata store")
        if version != FORMAT:
            raise StoreCorrupt(f"{self.path} has format {version}; this version of Klamm reads format {FORMAT}")

    # -- reading ------------------------------------------------------------------------------------------------

    def get(self, path: str) -> Node:
        with self._lock, self._translated():
            return self._get(path)

    def exists(self, path: str) -> bool:
        with self._lock, self._translated():
            return self._find(path) is not None

    def children(self, path: str) -> list[str]:
        with self._lock, self._translated():
            self._require(path)
            return [name for (name,) in self._db.execute(CHILDREN, (path,))]

    def subtree(self, path: str) -> Iterator[tuple[str, Node]]:
        query = f"SELECT parent, name, value, version, crc FROM node WHERE ({BELOW}) AND length(value) > 0"
        with self._lock, self._translated():
            rows = self._db.execute(query, _below(path)).fetchall()
        for parent, name, value, version, crc in rows:
            full = _join(parent, name)
            if zlib.crc32(value) != crc:
                raise StoreCorrupt(f"metadata node {full} in {self.path} is damaged: its checksum differs")
            yield full, Node(value, version)

    def revision(self) -> int:
        with self._lock, self._translated():
            revision: int = self._db.execute("SELECT revision FROM counter").fetchone()[0]
            return revision

    # -- changing -----------------------------------------------------------------------------------------------

    def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False, make_parents: bool = False) -> None:
        self.multi((Create(path, value, ephemeral, make_parents),))

    def set(self, path: str, value: bytes, version: int = ANY_VERSION) -> int:
        with self._lock:
            self.multi((Set(path, value, version),))
            return self.get(path).version

    def delete(self, path: str, version: int = ANY_VERSION, *, recursive: bool = False) -> None:
        self.multi((Delete(path, version, recursive),))

    def multi(self, operations: Sequence[Operation]) -> None:
        try:
            self._multi(operations)
        except StoreFull:
            if not self.make_room():
                raise
            self._multi(operations)

    def _multi(self, operations: Sequence[Operation]) -> None:
        events: list[WatchEvent] = []
        with self._lock, self._translated():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                for operation in operations:
                    self._apply(operation, events)
                if events:
                    self._db.execute("UPDATE counter SET revision = revision + 1")
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            watches = tuple(self._watches)
        for path, callback, recursive in watches:
            for event in events:
                if event.path == path or (recursive and event.path.startswith(path.rstrip("/") + "/")):
                    callback(event)

    def watch(self, path: str, callback: WatchCallback, *, recursive: bool = False) -> Callable[[], None]:
        entry = (path, callback, recursive)
        with self._lock:
            self._watches.append(entry)

        def cancel() -> None:
            with self._lock, contextlib.suppress(ValueError):
                self._watches.remove(entry)

        return cancel

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            if self._failure is None:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("DELETE FROM node WHERE ephemeral")
            self._closed = True
            self._watches.clear()
            with contextlib.suppress(sqlite3.Error):
                self._db.close()

    # -- one operation, inside a transaction --------------------------------------------------------------------

    def _apply(self, operation: Operation, events: list[WatchEvent]) -> None:
        if isinstance(operation, Create):
            self._create(operation, events)
        elif isinstance(operation, Set):
            self._require(operation.path, operation.version)
            parent, name = split(operation.path)
            self._db.execute(UPDATE, (operation.value, zlib.crc32(operation.value), parent, name))
            events.append(WatchEvent(EventKind.CHANGED, operation.path))
        elif isinstance(operation, Delete):
            self._delete(operation, events)
        else:
            assert isinstance(operation, Check)
            self._require(operation.path, operation.version)

    def _create(self, operation: Create, events: list[WatchEvent]) -> None:
        parent, name = split(operation.path)
        if parent != "/":
            row = self._find_ephemeral(parent)
            if row is None:
                if not operation.make_parents:
                    raise NoNode(f"{operation.path}: the parent {parent} does not exist")
                self._create(Create(parent, make_parents=True), events)
            elif row:
                raise EphemeralParent(f"{operation.path}: the parent {parent} is ephemeral")
        value = operation.value
        try:
            self._db.execute(INSERT, (parent, name, value, int(operation.ephemeral), zlib.crc32(value)))
        except sqlite3.IntegrityError:
            raise NodeExists(f"{operation.path} exists") from None
        events.append(WatchEvent(EventKind.CREATED, operation.path))

    def _delete(self, operation: Delete, events: list[WatchEvent]) -> None:
        path = operation.path
        self._require(path, operation.version)
        if self._db.execute(HAS_CHILD, (path,)).fetchone():
            if not operation.recursive:
                raise NotEmpty(f"{path} has children")
            for parent, name in self._db.execute(f"SELECT parent, name FROM node WHERE {BELOW}", _below(path)):
                events.append(WatchEvent(EventKind.DELETED, _join(parent, name)))
            self._db.execute(f"DELETE FROM node WHERE {BELOW}", _below(path))
        self._db.execute(DELETE, split(path))
        events.append(WatchEvent(EventKind.DELETED, path))

    # -- helpers ------------------------------------------------------------------------------------------------

    def _find(self, path: str) -> Node | None:
        if path == "/":
            return Node(b"", 0)
        row = self._db.execute(GET, split(path)).fetchone()
        if row is None:
            return None
        value, version, crc = row
        if zlib.crc32(value) != crc:
            raise StoreCorrupt(f"metadata node {path} in {self.path} is damaged: its checksum differs")
        return Node(value, version)

    def _get(self, path: str) -> Node:
        node = self._find(path)
        if node is None:
            raise NoNode(f"{path} does not exist")
        return node

    def _find_ephemeral(self, path: str) -> bool | None:
        """Return whether the node is ephemeral; None if there is none."""
        row = self._db.execute("SELECT ephemeral FROM node WHERE parent = ? AND name = ?", split(path)).fetchone()
        return None if row is None else bool(row[0])

    def _require(self, path: str, version: int = ANY_VERSION) -> None:
        node = self._get(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(f"{path} has version {node.version}, not {version}")

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate SQLite's errors into the store's; refuse to work after a disk failure."""
        if self._closed:
            raise StoreUnavailable(f"the metadata store {self.path} is closed")
        if self._failure is not None:
            raise StoreFailed(self._failure)
        try:
            yield
        except sqlite3.Error as error:
            primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise StoreCorrupt(f"the metadata store {self.path} is damaged: {error}") from None
            if primary == sqlite3.SQLITE_IOERR:
                self._failure = f"the metadata store {self.path} failed and needs a restart: {error}"
                raise StoreFailed(self._failure) from None
            kind = StoreFull if primary == sqlite3.SQLITE_FULL else StoreUnavailable
            raise kind(f"the metadata store {self.path} refused: {error}") from None


def _below(path: str) -> tuple[str, str, str]:
    """Return the parameters of BELOW. Nodes below ``/a`` have the parent ``/a`` or one from ``/a/`` to
    before ``/a0``.
    """
    if path == "/":
        return "/", "/", "0"
    return path, path + "/", path + "0"


def _join(parent: str, name: str) -> str:
    return f"/{name}" if parent == "/" else f"{parent}/{name}"


def _read_only_uri(path: Path) -> str:
    """Return the URI. If no process has the file open there is no log, and reading must not leave one."""
    alone = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
    return f"{path.absolute().as_uri()}?mode=ro{alone}"


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
