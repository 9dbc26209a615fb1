"""`__cluster_metadata-0` read back, whole, torn, damaged, and from snapshots."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from klamm.broker.tools.cluster_state import ClusterState
from klamm.broker.tools.kafka_export import FEATURES
from klamm.broker.tools.kraft_log import KraftLogError, read_state
from klamm.protocol.cluster_metadata.cluster import FeatureLevelRecord, NoOpRecord
from klamm.protocol.records.batch import Record, encode_batch
from klamm.storage.filesystem import OsFilesystem
from tests.broker.tools.kafka_directory import METADATA, metadata_log, topic_id, topic_records, write_snapshot

FORMATTED = bytes.fromhex("""
    00000000000000000000004700000000028d991647002000000000000001a1fecd1856000001a1fecd1856ffffffffffffffffffffffffff
    ff000000012a0000000800000003160000000001a1fecd183900000000000000000001000000f10000000002a1a660b60000000000050000
    01a1fecd1866000001a1fecd1866ffffffffffffffffffffffffffff000000063a000000012e010c00116d657461646174612e7665727369
    6f6e002100005a000002014e010c0021656c696769626c652e6c65616465722e7265706c696361732e76657273696f6e0001000034000004
    0128010c000e67726f75702e76657273696f6e00010000340000060128010c000e73686172652e76657273696f6e0002000038000008012c
    010c001073747265616d732e76657273696f6e000100004000000a0134010c00147472616e73616374696f6e2e76657273696f6e00020000
    00000000000000070000003f00000000021000d061002000000000000001a1fecd1868000001a1fecd1868ffffffffffffffffffffffffff
    ff000000011a00000008000000040600000000
""")
"""Snapshot 0-0 as `kafka-storage format` of Apache Kafka 4.4.0 made it: header, six feature levels, footer."""


def directory_with(path: Path, files: dict[str, bytes]) -> Path:
    directory = path / METADATA
    directory.mkdir(parents=True)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return directory


def names(state: ClusterState) -> list[str]:
    return sorted(topic.name for topic in state.topics.values())


def read(directory: Path) -> tuple[list[str], int]:
    state, end_offset = read_state(OsFilesystem(), directory)
    return names(state), end_offset


A, B, C = (topic_records(name, topic_id(number), 2) for number, name in enumerate("abc", 1))
LOG = f"{0:020d}.log"


def test_what_kafka_formats_has_features_and_no_topics(tmp_path: Path) -> None:
    state, end_offset = read_state(
        OsFilesystem(), directory_with(tmp_path, {"00000000000000000000-0000000000.checkpoint": FORMATTED})
    )
    assert (names(state), end_offset) == ([], 0)
    assert state.features == FEATURES


def test_the_log_alone(tmp_path: Path) -> None:
    assert read(directory_with(tmp_path, {LOG: metadata_log([*A, *B])})) == (["a", "b"], 6)


def test_an_empty_directory_and_an_empty_log_know_nothing(tmp_path: Path) -> None:
    assert read(directory_with(tmp_path / "1", {})) == ([], 0)
    assert read(directory_with(tmp_path / "2", {LOG: b""})) == ([], 0)


def test_control_batches_take_offsets_and_mean_nothing(tmp_path: Path) -> None:
    control = encode_batch([Record(0, 1, b"\0\0\0\2", b"\0\0")], control=True, leader_epoch=1)
    assert read(directory_with(tmp_path, {LOG: bytes(control) + metadata_log(A, base_offset=1)})) == (["a"], 4)


@pytest.mark.parametrize("base_offset", [3, 6])
def test_a_snapshot_and_the_log_after_it(tmp_path: Path, base_offset: int) -> None:
    """The log may still have the snapshot's records; those before its end offset are not applied again."""
    log = metadata_log([*B, *C][base_offset - 3 :], base_offset=base_offset, per_batch=2)
    directory = directory_with(tmp_path, {f"{base_offset:020d}.log": log})
    write_snapshot(directory, [*A, *B], 6)
    assert read(directory) == (["a", "b", "c"], 9)


def test_the_newest_whole_snapshot_counts(tmp_path: Path) -> None:
    directory = directory_with(tmp_path, {LOG: metadata_log([*A, *B])})
    write_snapshot(directory, [FeatureLevelRecord(name="f", feature_level=1)], 0, 0)
    write_snapshot(directory, A, 3)
    cut = write_snapshot(directory, C, 5)
    (directory / "00000000000000000009-0000000001.checkpoint.part").write_bytes(b"unfinished")
    cut.write_bytes(cut.read_bytes()[:-30])
    assert read(directory) == (["a", "b"], 6)


def test_segments_follow_each_other(tmp_path: Path) -> None:
    second, third = metadata_log(B, base_offset=3), metadata_log(C, base_offset=6)
    files = {LOG: metadata_log(A), f"{3:020d}.log": second, f"{6:020d}.log": third}
    assert read(directory_with(tmp_path, files)) == (["a", "b", "c"], 9)


@pytest.mark.parametrize("seed", range(5))
def test_a_torn_last_write_is_left_out(tmp_path: Path, seed: int) -> None:
    """Any cut leaves whole batches, A in one and B in another; so do zeros or junk where the last was."""
    first, both = metadata_log(A), metadata_log([*A, *B])
    rng = random.Random(seed)
    cut = rng.randrange(len(first) + 1, len(both))
    tail = rng.choice([b"", bytes(100), rng.randbytes(7)])
    assert read(directory_with(tmp_path, {LOG: both[:cut] + tail})) == (["a"], 3)


def test_damage_in_the_middle_is_refused(tmp_path: Path) -> None:
    whole = bytearray(metadata_log([*A, *B, *C]))
    whole[100] ^= 1
    with pytest.raises(KraftLogError, match="damaged at position 0"):
        read(directory_with(tmp_path / "1", {LOG: bytes(whole)}))
    torn = metadata_log(A)[:-3]
    with pytest.raises(KraftLogError, match="damaged"):
        read(directory_with(tmp_path / "2", {LOG: torn, f"{3:020d}.log": metadata_log(B, base_offset=3)}))


def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    directory = directory_with(tmp_path, {})
    file = write_snapshot(directory, A, 3)
    content = bytearray(file.read_bytes())
    content[200] ^= 1
    file.write_bytes(content)
    with pytest.raises(KraftLogError, match="wrong checksum"):
        read(directory)


def test_a_gap_is_refused(tmp_path: Path) -> None:
    directory = directory_with(tmp_path, {f"{7:020d}.log": metadata_log(B, base_offset=7)})
    write_snapshot(directory, A, 3)
    with pytest.raises(KraftLogError, match="begins at offset 7"):
        read(directory)


def test_records_of_a_newer_kafka(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A kind that is not known is skipped and said; a version of a known kind might hide a topic, and is refused."""
    unknown = encode_batch([Record(0, 1, None, b"\x01\x70\x00\x00")], leader_epoch=1)
    log = bytes(unknown) + metadata_log(A, base_offset=1)
    assert read(directory_with(tmp_path / "1", {LOG: log})) == (["a"], 4)
    assert "metadata record of kind 112 version 0 is not known, skipped" in caplog.text
    newer = encode_batch([Record(0, 1, None, b"\x01\x03\x09\x00")], leader_epoch=1)
    with pytest.raises(KraftLogError, match="a newer Kafka wrote it"):
        read(directory_with(tmp_path / "2", {LOG: bytes(newer)}))
    junk = encode_batch([Record(0, 1, None, b"junk")], leader_epoch=1)
    with pytest.raises(KraftLogError, match="frame version"):
        read(directory_with(tmp_path / "3", {LOG: bytes(junk)}))


def test_a_snapshot_of_thousands_of_records_is_read_back(tmp_path: Path) -> None:
    records = [record for number in range(900) for record in topic_records(f"t{number}", number.to_bytes(16, "big"), 3)]
    directory = directory_with(tmp_path, {})
    write_snapshot(directory, [NoOpRecord(), *records], 7777, 3)
    state, end_offset = read_state(OsFilesystem(), directory)
    assert (len(state.topics), end_offset) == (900, 7777)
