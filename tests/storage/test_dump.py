from __future__ import annotations

import io
from pathlib import Path

import pytest

from klamm.protocol.records.compression import Codec
from klamm.storage.dump import dump_files, dump_log
from klamm.storage.filesystem import OsFilesystem
from klamm.storage.log import Log
from klamm.storage.log_config import LogConfig
from tests.storage.batches import batch, fill
from tests.support.manual_clock import START_MS, ManualClock


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A closed log of two segments."""
    config = LogConfig(index_interval_bytes=100)
    log = Log.open(tmp_path / "t-0", config, clock=ManualClock(), filesystem=OsFilesystem(), clean=True)
    log.append(batch(START_MS, START_MS + 5, producer_id=7, epoch=1, sequence=3, codec=Codec.ZSTD), leader_epoch=2)
    fill(log, 6, epoch=2)
    log.roll()
    fill(log, 2, epoch=3)
    log.close()
    return tmp_path / "t-0"


def lines(directory: Path, name: str, *, records: bool = False) -> list[str]:
    return list(dump_log([directory / name], print_data_log=records))[1:]


def test_batches(directory: Path) -> None:
    found = lines(directory, f"{0:020d}.log")
    assert found[0] == "Log starting offset: 0"
    assert len(found) == 8
    assert found[1].startswith(
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: 3 lastSequence: 4 producerId: 7 producerEpoch: 1 "
        "partitionLeaderEpoch: 2 isTransactional: false isControl: false deleteHorizonMs: none position: 0 "
        f"CreateTime: {START_MS + 5} size: "
    )
    assert " magic: 2 compresscodec: zstd crc: " in found[1]
    assert found[1].endswith(" isvalid: true")


def test_records(directory: Path) -> None:
    found = [line for line in lines(directory, f"{0:020d}.log", records=True) if line.startswith("|")]
    assert len(found) == 8
    assert found[1] == (
        f"| offset: 1 timestamp: {START_MS + 5} keySize: 5 valueSize: 5 sequence: 4 headerKeys: [] "
        "key: key-1 payload: value"
    )


def test_indexes_snapshots_and_checkpoints(directory: Path) -> None:
    index = lines(directory, f"{0:020d}.index")
    assert index
    assert all(line.startswith("offset: ") for line in index)
    assert lines(directory, f"{0:020d}.timeindex") == [f"timestamp: {START_MS + 5} offset: 1"]
    (producer,) = lines(directory, f"{8:020d}.snapshot")
    assert producer == (
        "producerId: 7 producerEpoch: 1 coordinatorEpoch: -1 currentTxnFirstOffset: none "
        f"lastTimestamp: {START_MS + 5} firstSequence: 3 lastSequence: 4 lastOffset: 1 offsetDelta: 1 "
        f"timestamp: {START_MS + 5}"
    )
    assert lines(directory, "leader-epoch-checkpoint") == ["epoch: 2 startOffset: 0", "epoch: 3 startOffset: 8"]


def test_damage_is_said(directory: Path) -> None:
    log = directory / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[-3] ^= 1
    log.write_bytes(data + b"tail")
    index = directory / f"{0:020d}.index"
    index.write_bytes(index.read_bytes()[:-4] + b"\0\0\0\1\0")
    out = io.StringIO()
    files = [log, index, directory / "missing.log", directory / f"{9:020d}.log", directory / "notes.txt"]
    assert dump_files(files, print_data_log=False, out=out) == 1
    problems = [line for line in out.getvalue().splitlines() if line.startswith("PROBLEM: ")]
    assert any("wrong CRC" in line for line in problems)
    assert any("4 bytes at position" in line for line in problems)
    assert any("the log has no batch at position 1" in line for line in problems)
    assert any("are not whole entries of 8" in line for line in problems)
    assert any("No such file" in line for line in problems)
    assert any("do not know how to read" in line for line in problems)


def test_a_good_log_has_no_problems(directory: Path) -> None:
    out = io.StringIO()
    files = [path for path in sorted(directory.iterdir()) if path.suffix != ".tmp"]
    assert dump_files(files, print_data_log=True, out=out) == 0
