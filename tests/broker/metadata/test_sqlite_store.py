from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.broker.metadata.sqlite_store import FILE_NAME, SqliteStore
from klamm.broker.metadata.store import Create, Node, StoreCorrupt, StoreFailed, StoreUnavailable
from tests.broker.metadata.store_contract import StoreContract, Stores


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    opened: list[SqliteStore] = []

    def open_store() -> SqliteStore:
        opened.append(SqliteStore(tmp_path / FILE_NAME))
        return opened[-1]

    yield open_store
    for store in opened:
        store.close()


class TestSqliteStore(StoreContract):
    pass


def test_it_keeps_plain_files_only(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / FILE_NAME)
    store.create("/a")
    assert all(entry.is_file() and entry.name.startswith(FILE_NAME) for entry in tmp_path.iterdir())
    store.close()
    assert [entry.name for entry in tmp_path.iterdir()] == [FILE_NAME]


def test_every_commit_is_synced(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / FILE_NAME)
    assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    assert store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from klamm.broker.metadata.sqlite_store import SqliteStore\n"
        "store = SqliteStore(Path(sys.argv[1])); store.create('/live', ephemeral=True)\n"
        "for n in range(100000): store.create(f'/n{n}', str(n).encode()); print(n, flush=True)\n"
    )
    path = tmp_path / FILE_NAME
    with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline()) for _ in range(20)]
        process.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in process.stdout.read().splitlines()]
    store = SqliteStore(path)
    assert [store.get(f"/n{n}").value for n in acknowledged] == [str(n).encode() for n in acknowledged]
    assert not store.exists("/live")
    store.close()


def fill(path: Path) -> None:
    store = SqliteStore(path)
    store.multi([Create(f"/node{n}", b"value of %d" % n * 20) for n in range(300)])
    store.close()


@pytest.mark.parametrize("damage", ["not a database", "zeroed page", "cut"])
def test_a_damaged_file_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / FILE_NAME
    fill(path)
    content = bytearray(path.read_bytes())
    if damage == "not a database":
        content[:16] = b"kein SQLite hier"
    elif damage == "zeroed page":
        content[8192:12288] = bytes(4096)
    else:
        del content[len(content) // 2 :]
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt, match=FILE_NAME):
        SqliteStore(path)


def test_a_changed_byte_of_a_value_is_found_by_the_checksum(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    fill(path)
    content = path.read_bytes()
    assert content.count(b"value of 117") == 20
    path.write_bytes(content.replace(b"value of 117", b"value of 118", 1))
    store = SqliteStore(path)
    with pytest.raises(StoreCorrupt, match=r"/node117 .* is damaged"):
        store.get("/node117")
    with pytest.raises(StoreCorrupt, match=r"/node117 .* is damaged"):
        list(store.subtree("/"))
    store.close()


def test_a_format_of_the_future_and_other_databases_are_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    fill(path)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreCorrupt, match="format 99"):
        SqliteStore(path)
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE t (x)")
    db.close()
    with pytest.raises(StoreCorrupt, match="not a metadata store"):
        SqliteStore(other)


def test_a_directory_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot open"):
        SqliteStore(tmp_path / "missing" / FILE_NAME)


def test_a_full_disk_refuses_the_change_and_the_store_lives_on(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / FILE_NAME)
    store.create("/a", b"x")
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreUnavailable, match="full"):
        store.create("/big", bytes(100_000))
    assert store.get("/a") == Node(b"x", 0) and not store.exists("/big")
    store._db.execute("PRAGMA max_page_count = 100000")
    store.create("/big", bytes(100_000))
    store.close()


def test_after_a_failed_write_the_store_refuses_everything(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / FILE_NAME)
    store.create("/a")
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    with pytest.raises(StoreFailed, match="needs a restart"), store._translated():
        raise error
    with pytest.raises(StoreFailed):
        store.get("/a")
    with pytest.raises(StoreFailed):
        store.create("/b")
    store.close()
