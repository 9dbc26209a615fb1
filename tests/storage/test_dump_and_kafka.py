"""`klamm dump` against Apache Kafka's own tool, on files that its broker has written: the same lines."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.__main__ import main
from klamm.protocol.records.batch import Record, encode_batch
from klamm.protocol.records.compression import Codec
from klamm.protocol.records.message_set import encode_set
from tests.support.apache_kafka import ApacheKafka, apache_kafka
from tests.support.jars import JAVA
from tests.support.java_process import JavaProcess

pytestmark = pytest.mark.java

SUFFIXES = (".log", ".index", ".timeindex", ".snapshot", ".txnindex")


@pytest.fixture(scope="module")
def tool() -> Iterator[JavaProcess]:
    with JavaProcess("tools", JAVA / "commands" / "Commands.java") as process:
        yield process


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of a broker after producers of all kinds, transactions and groups of both protocols."""
    directory = tmp_path_factory.mktemp("kafka")
    with apache_kafka(
        directory, {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    ) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.address})
        config = {"segment.bytes": "1048576", "index.interval.bytes": "1000"}
        admin.create_topics([NewTopic("t", 1, config=config)])["t"].result(30)
        _produce(kafka)
        _transact(kafka)
        for protocol in ("classic", "consumer"):
            _consume(kafka, protocol)
        kafka.stop()
    return kafka.log_dir


def _produce(kafka: ApacheKafka) -> None:
    rng = random.Random(1)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": kafka.address, "enable.idempotence": True, "compression.type": codec})
        for number in range(400):
            value = None if number % 7 == 0 else rng.randbytes(700)
            producer.produce("t", value, f"k{number}".encode() if number % 3 else None, headers=[("h", b"\xff")])
        assert producer.flush(60) == 0


def _transact(kafka: ApacheKafka) -> None:
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": "tx-\u00e9"})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        producer.produce("t", b"in a transaction", partition=0)
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def _consume(kafka: ApacheKafka, protocol: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.address,
            "group.id": f"group-{protocol}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])
    assert consumer.consume(10, 30)
    consumer.commit(offsets=[TopicPartition("t", 0, 7, metadata="m\u00e9")], asynchronous=False)
    consumer.close()


def theirs(tool: JavaProcess, files: Sequence[Path], *options: str) -> tuple[list[str], list[str]]:
    arguments = ["--files", ",".join(map(str, files)), *options]
    answer = tool.ask({"class": "org.apache.kafka.tools.DumpLogSegments", "arguments": arguments, "input": ""})
    assert answer["code"] == 0, answer
    return answer["output"].splitlines(), _without_false_gaps(answer["errors"].splitlines())


def _without_false_gaps(errors: list[str]) -> list[str]:
    """Drop a false error: Kafka 4.3's tool reports a gap before a segment's first record unless its offset is 0."""
    kept = [line for line in errors if not line.startswith("  -1 is followed by ")]
    gaps = "Non-consecutive offsets in "
    return [
        line
        for line, following in zip(kept, [*kept, ""][1:], strict=True)
        if not (line.startswith(gaps) and " is followed by " not in following)
    ]


def ours(capsys: pytest.CaptureFixture[str], files: Sequence[Path], *options: str) -> tuple[list[str], list[str]]:
    main(["dump-log", "--files", ",".join(map(str, files)), *options])
    found = capsys.readouterr()
    return found.out.splitlines(), [line for line in found.err.splitlines() if not line.startswith("PROBLEM: ")]


def files_of(directory: Path) -> list[Path]:
    found = sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES)
    assert found
    return found


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--deep-iteration",),
        ("--print-data-log",),
        ("--print-data-log", "--skip-record-metadata"),
        ("--max-bytes", "3000"),
        ("--verify-index-only",),
        ("--index-sanity-check",),
    ],
    ids=" ".join,
)
def test_every_file_of_a_partition(
    options: tuple[str, ...], log_dir: Path, tool: JavaProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    files = files_of(log_dir / "t-0")
    assert {path.suffix for path in files} == set(SUFFIXES)
    assert len([path for path in files if path.suffix == ".log"]) > 1
    expected = theirs(tool, files, *options)
    assert ours(capsys, files, *options) == expected


@pytest.mark.parametrize(
    ("directory", "option", "expected"),
    [
        ("__consumer_offsets-0", "--offsets-decoder", ['"memberId"', '"topicId"', '"type":"8"', "<DELETE>"]),
        ("__transaction_state-0", "--transaction-log-decoder", ["tx-\u00e9", '"transactionStatus":5']),
        (
            "__cluster_metadata-0",
            "--cluster-metadata-decoder",
            ["TOPIC_RECORD", "PARTITION_RECORD", "LeaderChange: {", "SnapshotHeader {"],
        ),
    ],
)
def test_internal_topics(
    directory: str,
    option: str,
    expected: list[str],
    log_dir: Path,
    tool: JavaProcess,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = [path for path in (log_dir / directory).iterdir() if path.suffix in (".log", ".checkpoint")]
    found, errors = ours(capsys, files, option)
    assert (found, errors) == theirs(tool, files, option)
    text = "\n".join(found)
    assert [word for word in expected if word not in text] == []


def test_messages_of_old_formats_and_damage(
    tmp_path: Path, tool: JavaProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    def records(offset: int, count: int) -> list[Record]:
        return [Record(offset + i, 1_700_000_000_000 + i, b"k%d" % i, b"v%d\xff" % i) for i in range(count)]

    content = encode_set(records(0, 2), 0) + encode_set(records(2, 3), 0, codec=Codec.GZIP)
    content += encode_set(records(5, 2), 1) + encode_set(records(7, 3), 1, codec=Codec.SNAPPY)
    content += encode_set(records(10, 2), 1, codec=Codec.LZ4, log_append_time=True)
    content += encode_set(records(12, 2), 1, log_append_time=True)
    content += encode_batch([Record(20, 1, None, b"v"), Record(22, 1, b"k", None)], base_offset=20, last_offset=25)
    content += encode_batch([], base_offset=26, last_offset=26, log_append_time_ms=5)
    log, index, time_index = (tmp_path / f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex"))
    log.write_bytes(content + b"x" * 40)
    index.write_bytes(struct.pack(">iiii", 1, 0, 1, 31) + bytes(16))
    time_index.write_bytes(struct.pack(">qiqi", 1_700_000_000_001, 6, 1_700_000_000_000, 13))
    files = [log, index, time_index]
    for options in (("--print-data-log",), ("--deep-iteration", "--verify-index-only")):
        expected = theirs(tool, files, *options)
        assert expected[1]
        assert ours(capsys, files, *options) == expected


def test_verification_finds_nothing_wrong_in_kafkas_log_dir(log_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["verify", "--deep", "--log-dirs", str(log_dir)])
    captured = capsys.readouterr()
    assert code == 0, captured.out
    assert " notes=0 " in captured.out, captured.out
