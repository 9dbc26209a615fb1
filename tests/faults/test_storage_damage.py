"""The storage rows of docs/faults.md against a real process: stop, damage, start, look.

The details of each row are tested in tests/storage; these tests check the view of a client and of an operator.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from klamm.broker.metadata.sqlite_store import FILE_NAME
from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.batch import HEADER
from tests.faults.damage import BATCHES, BYSTANDER, VICTIM, Data, contents, filled, flip
from tests.faults.network_cases import Broker
from tests.support.broker_process import BrokerFailed, BrokerProcess

pytestmark = pytest.mark.faults

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
ALL = list(range(BATCHES))


@contextmanager
def started(data: Data) -> Iterator[Broker]:
    """A started broker that is killed at the end, its log without tracebacks."""
    try:
        with data.start() as peer:
            yield peer
    finally:
        if data.process._process is not None:
            data.process.kill()
    assert "Traceback" not in data.process.log()


def goes_on(data: Data, peer: Broker, kept: int) -> None:
    """Check that `kept` records are there, the next sequence is accepted, and the last one is a duplicate."""
    assert contents(peer) == list(range(kept))
    assert data.append(peer, VICTIM, kept - 1) == 0
    assert peer.end_offset(VICTIM) == kept
    assert data.append(peer, VICTIM, kept) == 0
    assert contents(peer) == list(range(kept + 1))


def is_offline(data: Data, peer: Broker) -> None:
    """Check that nothing is served, nothing is accepted, and no byte is changed."""
    assert data.append(peer, VICTIM, BATCHES) == STORAGE_ERROR
    assert peer.fetch(topic=VICTIM) == STORAGE_ERROR
    assert f"{VICTIM}-0: offline: " in data.process.log()


# -- the end of the log, after a kill

TAILS: dict[str, Callable[[Path], None]] = {
    "row 1: torn last batch": lambda file: os.truncate(file, file.stat().st_size - 100),
    "row 1: torn header": lambda file: os.truncate(file, file.stat().st_size - 20_000 - 30),
    "row 2: zeros": lambda file: append_bytes(file, bytes(4096)),
    "row 3: garbage": lambda file: append_bytes(file, bytes(range(1, 256)) * 20),
    "row 6: a good batch with a base offset that was before": lambda file: append_bytes(file, first_batch(file)),
}


def append_bytes(file: Path, content: bytes) -> None:
    with file.open("ab") as out:
        out.write(content)


def first_batch(file: Path) -> bytes:
    content = file.read_bytes()
    return content[: HEADER.unpack_from(content)[1] + 12]


@pytest.mark.parametrize("tail", TAILS)
def test_rows_1_2_3_6_a_bad_tail_is_cut_after_a_kill(tmp_path: Path, tail: str) -> None:
    data = filled(tmp_path, clean=False)
    TAILS[tail](data.files(".log")[-1])
    kept = BATCHES - 1 if tail.startswith("row 1") else BATCHES
    with started(data) as peer:
        goes_on(data, peer, kept)
    assert "torn write cut at" in data.process.log() and "cut_bytes=" in data.process.log()


# -- the middle


@pytest.mark.parametrize("segment", [0, 1, 2], ids=["first segment", "second", "active"])
def test_row_4_a_bit_flip_in_the_middle_takes_the_partition_offline(tmp_path: Path, segment: int) -> None:
    data = filled(tmp_path, clean=False)
    file = data.files(".log")[segment]
    flip(file, data.positions(file)[3] + 1000)
    before = [path.read_bytes() for path in data.files(".log")]
    with started(data) as peer:
        is_offline(data, peer)
        assert contents(peer, topic=BYSTANDER) == list(range(BATCHES + 1))
    assert [path.read_bytes() for path in data.files(".log")] == before


def test_row_12_a_log_without_its_last_segments_is_offline(tmp_path: Path) -> None:
    data = filled(tmp_path, clean=True)
    for file in data.files(".log"):
        file.unlink()
    with started(data) as peer:
        is_offline(data, peer)


def test_row_12_a_log_without_its_directory_is_not_created_again(tmp_path: Path) -> None:
    data = filled(tmp_path, clean=True)
    data.directory.rename(tmp_path / "elsewhere")
    with started(data) as peer:
        is_offline(data, peer)


# -- files that can be rebuilt

REMADE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "row 7: missing .index": (".index", Path.unlink),
    "row 7: garbage .index": (".index", lambda path: path.write_bytes(b"\x7f" * 800)),
    "row 8: missing .timeindex": (".timeindex", Path.unlink),
    "row 8: garbage .timeindex": (".timeindex", lambda path: path.write_bytes(b"\x7f" * 1200)),
    "row 8: cut .timeindex": (".timeindex", lambda path: path.write_bytes(path.read_bytes()[:7])),
    "row 10: garbage .snapshot": (".snapshot", lambda path: path.write_bytes(b"garbage")),
    "row 11: missing .snapshot": (".snapshot", Path.unlink),
    "row 18: garbage leader-epoch-checkpoint": ("leader-epoch-checkpoint", lambda path: path.write_bytes(b"\xff\0x")),
    "row 18: empty leader-epoch-checkpoint": ("leader-epoch-checkpoint", lambda path: path.write_bytes(b"")),
}


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("what", REMADE)
def test_rows_7_8_10_11_18_what_can_be_made_again_is(tmp_path: Path, what: str, clean: bool) -> None:
    data = filled(tmp_path, clean=clean)
    suffix, damage = REMADE[what]
    files = data.files(suffix)
    assert files or not clean, f"no {suffix} to damage"
    for file in files:
        damage(file)
    with started(data) as peer:
        goes_on(data, peer, BATCHES)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"]
)
@pytest.mark.parametrize("content", [b"\xff\xfe garbage", b"0\n5\nvictim 0 x\n", b""], ids=["junk", "text", "empty"])
def test_row_19_garbage_checkpoints_fall_back_to_a_scan(tmp_path: Path, name: str, content: bytes, clean: bool) -> None:
    data = filled(tmp_path, clean=clean)
    (data.process.data / name).write_bytes(content)
    with started(data) as peer:
        goes_on(data, peer, BATCHES)


def test_rows_13_14_17_leftovers(tmp_path: Path) -> None:
    data = filled(tmp_path, clean=False)
    removed = [
        data.directory / "00000000000000000000.log.deleted",
        data.directory / "00000000000000000007.log.cleaned",
        data.directory / "00000000000000000007.index",
    ]
    for path in removed:
        path.write_bytes(b"left")
    deletion = data.process.data / "old-0.0123456789abcdef0123456789abcdef-delete"
    deletion.mkdir()
    (deletion / "00000000000000000000.log").write_bytes(b"left")
    stray = data.process.data / "stray-3"
    stray.mkdir()
    (stray / "00000000000000000000.log").write_bytes(b"")
    foreign = data.process.data / "lost+found"
    foreign.mkdir()
    with started(data) as peer:
        goes_on(data, peer, BATCHES)
        assert not deletion.exists() and not any(path.exists() for path in removed)
        assert stray.is_dir() and foreign.is_dir()
    assert "stray-3: on disk but not in the metadata; it is kept and not served" in data.process.log()


# -- errors that stop a start


def refused(process: BrokerProcess) -> str:
    """Check that it ends with exit code 3 and one clear line; return the line."""
    size = len(process.log())
    try:
        process.start()
    except BrokerFailed as error:
        assert str(error).startswith("exit code 3,"), str(error)[:300]
    else:
        raise AssertionError("it has started")
    finally:
        if process._process is not None:
            process.kill()
    news = process.log()[size:]
    assert "Traceback" not in news
    errors = [line for line in news.splitlines() if " ERROR " in line]
    assert len(errors) == 1, news
    return errors[0]


def test_row_20_corrupt_meta_properties(tmp_path: Path) -> None:
    data = filled(tmp_path, clean=True)
    file = data.process.data / "meta.properties"
    good = file.read_bytes()
    for content in (b"", b"\xff\xfe\0", b"version=7\n", good.replace(b"node.id=1", b"node.id=2")):
        file.write_bytes(content)
        assert "meta.properties" in refused(data.process)
    file.write_bytes(good)
    with started(data) as peer:
        goes_on(data, peer, BATCHES)


def test_row_20_corrupt_metadata(tmp_path: Path) -> None:
    data = filled(tmp_path, clean=True)
    file = data.process.data / FILE_NAME
    for content in (b"garbage" * 1000, file.read_bytes()[:5000]):
        file.write_bytes(content)
        assert file.name in refused(data.process)


def test_row_24_what_is_no_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for path in (file, file / "below"):
        process = BrokerProcess(tmp_path / "data", {"log.dirs": path})
        assert str(file) in refused(process)
    assert file.read_text() == "mine"


def test_row_24_a_read_only_directory(tmp_path: Path) -> None:
    """Root may write anywhere but on a read-only file system; for others the file mode is enough."""
    data = filled(tmp_path, clean=True)
    directory = data.process.data
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    with read_only(directory):
        assert "ead-only" in refused(data.process) or os.geteuid() != 0
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before
    with started(data) as peer:
        goes_on(data, peer, BATCHES)


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    if os.geteuid() == 0:
        subprocess.run(["mount", "--bind", directory, directory], check=True)
        try:
            subprocess.run(["mount", "-o", "remount,bind,ro", directory], check=True)
            yield
        finally:
            subprocess.run(["umount", directory], check=True)
        return
    mode = directory.stat().st_mode
    directory.chmod(0o500)
    try:
        yield
    finally:
        directory.chmod(mode)


def test_row_29_a_second_process_on_the_same_directory(tmp_path: Path) -> None:
    data = filled(tmp_path, clean=True)
    second = BrokerProcess(data.process.data, data.process.config)
    second.log_path = tmp_path / "second.log"
    with started(data) as peer:
        for _ in range(2):
            assert "another process" in refused(second)
        goes_on(data, peer, BATCHES)
