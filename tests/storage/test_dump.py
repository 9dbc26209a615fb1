from __future__ import annotations

import io
import json
import struct
from pathlib import Path

import pytest

from klamm.protocol.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartition
from klamm.protocol.coordinator_records.group import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    encode_key,
    encode_value,
)
from klamm.protocol.coordinator_records.transaction import PartitionsSchema, TransactionLogKey, TransactionLogValue
from klamm.protocol.records.batch import Record, encode_batch
from klamm.protocol.records.compression import Codec
from klamm.protocol.records.message_set import encode_set
from klamm.storage.filesystem import OsFilesystem
from klamm.storage.log.log_config import LogConfig
from klamm.storage.recovery.loader import LogSource, open_log
from klamm.storage.tools.dump import decoders
from klamm.storage.tools.dump.files import DumpOptions, dump_files
from klamm.storage.tools.dump.index_files import IndexMode
from tests.storage.batches import batch, fill
from tests.support.manual_clock import START_MS, ManualClock

SHOW = DumpOptions(print_data_log=True)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A closed log of two segments."""
    config = LogConfig(index_interval_bytes=100)
    log = open_log(LogSource(tmp_path / "t-0", config, clock=ManualClock(), filesystem=OsFilesystem(), clean=True))
    log.append_as_leader(
        batch(START_MS, START_MS + 5, producer_id=7, epoch=1, sequence=3, codec=Codec.ZSTD), leader_epoch=2
    )
    fill(log, 6, epoch=2)
    log.roll()
    fill(log, 2, epoch=3)
    log.close()
    return tmp_path / "t-0"


def dump(*files: Path, options: DumpOptions | None = None) -> tuple[int, list[str], list[str]]:
    """Exit code, lines, and lines about problems."""
    out, errors = io.StringIO(), io.StringIO()
    code = dump_files(files, options if options is not None else DumpOptions(), out=out, errors=errors)
    return code, out.getvalue().splitlines(), errors.getvalue().splitlines()


def lines(path: Path, options: DumpOptions | None = None) -> list[str]:
    """Dump one good file."""
    code, found, errors = dump(path, options=options)
    assert (code, errors) == (0, [])
    assert found[0] == f"Dumping {path}"
    return found[1:]


def log_of(directory: Path, *batches: bytes | bytearray) -> Path:
    path = directory / f"{0:020d}.log"
    path.write_bytes(b"".join(bytes(data) for data in batches))
    return path


def test_batches(directory: Path) -> None:
    found = lines(directory / f"{0:020d}.log")
    assert found[0] == "Log starting offset: 0"
    assert len(found) == 8
    assert found[1].startswith(
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: 3 lastSequence: 4 producerId: 7 producerEpoch: 1 "
        "partitionLeaderEpoch: 2 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        f"position: 0 CreateTime: {START_MS + 5} size: "
    )
    assert " magic: 2 compresscodec: zstd crc: " in found[1]
    assert found[1].endswith(" isvalid: true")


def test_deep_iteration_shows_records_without_their_contents(directory: Path) -> None:
    found = lines(directory / f"{0:020d}.log", DumpOptions(deep_iteration=True))
    records = [line for line in found if line.startswith("|")]
    assert len(records) == 8
    assert records[1] == f"| offset: 1 CreateTime: {START_MS + 5} keySize: 5 valueSize: 5 sequence: 4 headerKeys: []"


def test_records_with_and_without_metadata(tmp_path: Path) -> None:
    records = [Record(0, 5, b"k", None, (("a", b"1"), ("b", None))), Record(1, 6, None, b"v\xff")]
    path = log_of(tmp_path, encode_batch(records))
    assert lines(path, SHOW)[2:] == [
        "| offset: 0 CreateTime: 5 keySize: 1 valueSize: -1 sequence: -1 headerKeys: [a,b] key: k",
        "| offset: 1 CreateTime: 6 keySize: -1 valueSize: 2 sequence: -1 headerKeys: [] payload: v\ufffd",
    ]
    bare = lines(path, DumpOptions(print_data_log=True, skip_record_metadata=True))
    assert bare[2:] == ["| key: k", "| payload: v\ufffd"]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\xed\xa0\x80b", "a\ufffdb"),
        (b"\xed\xbf", "\ufffd"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\xff\xfe", "\ufffd" * 2),
    ],
)
def test_what_is_no_utf_8_is_marked_as_java_does(data: bytes, text: str) -> None:
    assert decoders.as_string(data) == text


def test_numbers_and_hex(tmp_path: Path) -> None:
    path = log_of(tmp_path, encode_batch([Record(0, 5, struct.pack(">q", -4), b"\xca\xfe")]))
    decode = decoders.plain(decoders.BYTES_DECODERS["long"], decoders.BYTES_DECODERS["hex"])
    assert lines(path, DumpOptions(print_data_log=True, decode=decode))[-1].endswith(" key: -4 payload: cafe")
    wrong = decoders.plain(decoders.BYTES_DECODERS["integer"], decoders.as_string)
    code, _, errors = dump(path, options=DumpOptions(print_data_log=True, decode=wrong))
    assert code == 1
    assert errors == [f"PROBLEM: {path}: batch at position 0: 8 bytes where a number has 4"]


def test_messages_of_the_old_formats(tmp_path: Path) -> None:
    old = encode_set([Record(0, -1, b"k", b"v")], 0) + encode_set(
        [Record(1, 7, b"k", b"v"), Record(2, 8, b"k", b"w")], 1, codec=Codec.GZIP
    )
    found = lines(log_of(tmp_path, old), SHOW)
    assert found[1].startswith("offset: 0 position: 0 NoTimestampType: -1 size: 28 magic: 0 compresscodec: none crc: ")
    assert found[2].startswith("| offset: 0 NoTimestampType: -1 keySize: 1 valueSize: 1 isValid: true crc: ")
    assert found[3].startswith("offset: 2 position: 28 CreateTime: 8 size: ")
    assert [line.split(" isValid")[0] for line in found[4:]] == [
        "| offset: 1 CreateTime: 7 keySize: 1 valueSize: 1",
        "| offset: 2 CreateTime: 8 keySize: 1 valueSize: 1",
    ]


def test_markers(tmp_path: Path) -> None:
    marker = Record(0, 5, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 3))
    data = encode_batch([marker], producer_id=1, producer_epoch=0, transactional=True, control=True)
    found = lines(log_of(tmp_path, data), SHOW)
    assert found[2].endswith(" headerKeys: [] endTxnMarker: COMMIT coordinatorEpoch: 3")
    bare = DumpOptions(print_data_log=True, skip_record_metadata=True)
    assert lines(log_of(tmp_path, data), bare)[2:] == [""]


def test_max_bytes_ends_before_the_batch_that_does_not_fit(directory: Path) -> None:
    path = directory / f"{0:020d}.log"
    sizes = [int(line.split(" size: ")[1].split()[0]) for line in lines(path)[1:]]
    assert len(lines(path, DumpOptions(max_bytes=sizes[0] + sizes[1]))) == 1 + 2
    assert len(lines(path, DumpOptions(max_bytes=sizes[0] + sizes[1] - 1))) == 1 + 1


def test_indexes_snapshots_and_checkpoints(directory: Path) -> None:
    index = directory / f"{0:020d}.index"
    assert lines(index)
    assert all(line.startswith("offset: ") for line in lines(index))
    assert lines(directory / f"{0:020d}.timeindex") == [f"timestamp: {START_MS + 5} offset: 1"]
    (producer,) = lines(directory / f"{8:020d}.snapshot")
    assert producer == (
        "producerId: 7 producerEpoch: 1 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty "
        f"lastTimestamp: {START_MS + 5} firstSequence: 3 lastSequence: 4 lastOffset: 1 offsetDelta: 1 "
        f"timestamp: {START_MS + 5}"
    )
    assert lines(directory / "leader-epoch-checkpoint") == ["epoch: 2 startOffset: 0", "epoch: 3 startOffset: 8"]


def test_verifying_indexes_shows_nothing_of_them(directory: Path) -> None:
    for suffix in ("index", "timeindex"):
        assert lines(directory / f"{0:020d}.{suffix}", DumpOptions(index_mode=IndexMode.VERIFY)) == []
        path = directory / f"{0:020d}.{suffix}"
        assert lines(path, DumpOptions(index_mode=IndexMode.SANITY)) == [f"{path} passed sanity check."]


def test_preallocated_entries_are_not_shown(directory: Path) -> None:
    for suffix, entry in (("index", 8), ("timeindex", 12)):
        path = directory / f"{0:020d}.{suffix}"
        before = lines(path)
        path.write_bytes(path.read_bytes() + bytes(10 * entry))
        assert lines(path) == before


def test_wrong_indexes_are_reported_in_kafkas_words(directory: Path) -> None:
    index, time_index = directory / f"{0:020d}.index", directory / f"{0:020d}.timeindex"
    content = bytearray(index.read_bytes())
    content[3] += 1
    index.write_bytes(content)
    offset = int.from_bytes(content[:4], "big")
    time_index.write_bytes(struct.pack(">qiqi", START_MS + 7, 1, START_MS + 6, 3) + struct.pack(">qi", START_MS, 99))
    code, _, errors = dump(index, time_index)
    assert code == 1
    assert errors == [
        f"Mismatches in :{index}",
        f"  Index offset: {offset}, log offset: {offset - 1}",
        f"Found timestamp mismatch in :{time_index}",
        f"  Index timestamp: {START_MS + 7}, log timestamp: {START_MS + 5}",
        f"  Index timestamp: {START_MS + 6}, log timestamp: {START_MS}",
        f"Found out of order timestamp in :{time_index}",
        f"  Index timestamp: {START_MS + 6}, Previously indexed timestamp: {START_MS + 7}",
        "The following indexed offsets are not found in the log.",
        "Indexed offset: 99, found log offset: -1",
    ]


def test_a_batch_larger_than_max_message_size_is_reported(directory: Path) -> None:
    code, _, errors = dump(directory / f"{0:020d}.index", options=DumpOptions(max_message_bytes=70))
    assert code == 1
    assert errors[0].endswith("is larger than --max-message-size 70")


def test_gaps_are_reported_but_are_no_problem(tmp_path: Path) -> None:
    path = log_of(tmp_path, encode_batch([Record(0, 1, b"", b""), Record(4, 1, b"", b"")]))
    code, _, errors = dump(path, options=DumpOptions(deep_iteration=True))
    assert (code, errors) == (0, [f"Non-consecutive offsets in {path}", "  0 is followed by 4"])


def test_transaction_index(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.txnindex"
    path.write_bytes(struct.pack(">hqqqq", 0, 1, 2, 3, 4))
    assert lines(path) == ["version: 0 producerId: 1 firstOffset: 2 lastOffset: 3 lastStableOffset: 4"]


def test_files_of_a_log_dir(tmp_path: Path) -> None:
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 2 30\n")
    assert lines(tmp_path / "recovery-point-offset-checkpoint") == ["topic: t partition: 2 offset: 30"]
    (tmp_path / "meta.properties").write_text("cluster.id=c\nnode.id=3\ndirectory.id=d\nversion=1\n")
    assert lines(tmp_path / "meta.properties") == ["clusterId: c nodeId: 3 directoryId: d"]
    (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}')
    assert lines(tmp_path / ".kafka_cleanshutdown") == ["brokerEpoch: 7"]
    (tmp_path / "partition.metadata").write_text("version: 0\ntopic_id: 4o1kcDjlSz2oAWkJkLR0lw\n")
    assert lines(tmp_path / "partition.metadata") == ["topicId: 4o1kcDjlSz2oAWkJkLR0lw"]


def test_damage_is_said(directory: Path) -> None:
    log = directory / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[-3] ^= 1
    log.write_bytes(data + b"tail")
    index = directory / f"{0:020d}.index"
    index.write_bytes(index.read_bytes()[:-4] + b"\0\0\0\1\0")
    files = [log, index, directory / "missing.log", directory / f"{9:020d}.log", directory / "notes.txt"]
    code, found, problems = dump(*files)
    assert code == 1
    assert "Found 4 invalid bytes at the end of 00000000000000000000.log" in found
    assert any("wrong CRC" in line for line in problems)
    assert any("4 bytes at position" in line for line in problems)
    assert any("the log has no batch at position 1" in line for line in problems)
    assert any("are not whole entries of 8" in line for line in problems)
    assert any("No such file" in line for line in problems)
    assert any("do not know how to read" in line for line in problems)
    assert all(line.startswith("PROBLEM: ") for line in problems)


def test_a_good_log_has_no_problems(directory: Path) -> None:
    files = [path for path in sorted(directory.iterdir()) if path.suffix != ".tmp"]
    assert dump(*files, options=SHOW)[0] == 0


def decoded(tmp_path: Path, decode: decoders.RecordDecoder, key: bytes | None, value: bytes | None) -> str:
    path = log_of(tmp_path, encode_batch([Record(0, 5, key, value)]))
    return lines(path, DumpOptions(print_data_log=True, skip_record_metadata=True, decode=decode))[-1]


def test_a_group_is_shown_with_what_its_consumers_said(tmp_path: Path) -> None:
    subscription = ConsumerProtocolSubscription(topics=["t"], owned_partitions=[TopicPartition(topic="t")])
    assignment = ConsumerProtocolAssignment(assigned_partitions=[TopicPartition(topic="t", partitions=[1])])
    member = MemberMetadata(
        member_id="m", subscription=encode_value(subscription, 1), assignment=encode_value(assignment, 0)
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=3, protocol="range", leader=None, members=[member])
    line = decoded(tmp_path, decoders.offsets, encode_key(2, GroupMetadataKey(group="g\u00e9")), encode_value(value, 3))
    key, _, payload = line.removeprefix("| key: ").partition(" payload: ")
    assert key == '{"type":"2","data":{"group":"g\u00e9"}}'
    shown = json.loads(payload)
    assert (shown["version"], shown["data"]["generation"], shown["data"]["leader"]) == ("3", 3, None)
    assert shown["data"]["members"] == [
        {
            "memberId": "m",
            "groupInstanceId": None,
            "clientId": "",
            "clientHost": "",
            "rebalanceTimeout": -1,
            "sessionTimeout": 0,
            "subscription": {
                "topics": ["t"],
                "userData": None,
                "ownedPartitions": [{"topic": "t", "partitions": []}],
            },
            "assignment": {"assignedPartitions": [{"topic": "t", "partitions": [1]}], "userData": None},
        }
    ]


def test_tombstones_and_records_that_are_not_known(tmp_path: Path) -> None:
    key = encode_key(2, GroupMetadataKey(group="g"))
    assert decoded(tmp_path, decoders.offsets, key, None).endswith("} payload: <DELETE>")
    unknown = decoded(tmp_path, decoders.offsets, b"\0\x63", b"")
    assert unknown == "| key: Unknown record type 99 at offset 0, skipping."
    assert decoded(tmp_path, decoders.offsets, b"\0", b"").startswith("| key: Error at offset 0, skipping. ")
    code, _, errors = dump(
        log_of(tmp_path, encode_batch([Record(0, 5, None, b"v")])),
        options=DumpOptions(print_data_log=True, decode=decoders.offsets),
    )
    assert code == 1
    assert "(message had a missing key)" in errors[0]


def test_transactions(tmp_path: Path) -> None:
    value = TransactionLogValue(
        producer_id=5,
        producer_epoch=1,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0, 2])],
        client_transaction_version=2,
    )
    line = decoded(
        tmp_path, decoders.transactions, encode_key(0, TransactionLogKey(transactional_id="x")), encode_value(value, 1)
    )
    assert line == (
        '| key: {"type":"0","data":{"transactionalId":"x"}} payload: {"version":"1","data":{"producerId":5,'
        '"producerEpoch":1,"transactionTimeoutMs":0,"transactionStatus":1,"transactionPartitions":[{"topic":"t",'
        '"partitionIds":[0,2]}],"transactionLastUpdateTimestampMs":0,"transactionStartTimestampMs":0,'
        '"clientTransactionVersion":2}}'
    )
