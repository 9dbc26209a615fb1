"""Klamm's batches read by Java, Java's by Klamm, and verdicts on good and broken input against Kafka's validator."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.records import message_set
from klamm.protocol.records.batch import HEADER_BYTES, Record, encode_batch, read_header, records, seal
from klamm.protocol.records.compression import Codec
from klamm.protocol.records.down_convert import down_convert
from klamm.protocol.records.validate import AppendRules, validate

pytestmark = pytest.mark.java

HERE = Path(__file__).parent
JARS = HERE.parents[1] / "support" / "java" / "broker" / "target" / "jars"
NOW = 1_700_000_000_000
LIMIT = 1 << 24
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
CONTENT = st.none() | st.binary(max_size=50)
HEADERS = st.lists(st.tuples(st.text(max_size=5), CONTENT), max_size=2).map(tuple)
examples = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

Ask = Callable[[str], str]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """A function that sends a line to Apache Kafka's classes and returns the answer."""
    process = subprocess.Popen(
        ["java", "-cp", f"{JARS}/*", str(HERE / "RecordsOracle.java")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert process.stdin is not None and process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    def ask(line: str) -> str:
        stdin.write(line + "\n")
        return stdout.readline().rstrip("\n")

    yield ask
    stdin.close()
    process.wait(30)
    stdout.close()


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    return [
        Record(i, draw(st.integers(NOW - 10_000, NOW) | st.just(-1)), draw(CONTENT), draw(CONTENT), draw(HEADERS))
        for i in range(draw(st.integers(1, 5)))
    ]


def as_text(made: list[Record]) -> str:
    def content(value: bytes | None) -> str:
        return "-" if value is None else value.hex()

    return ";".join(
        ",".join(
            [str(r.offset), str(r.timestamp), content(r.key), content(r.value)]
            + [text for name, value in r.headers for text in (name.encode().hex(), content(value))]
        )
        for r in made
    )


@examples
@given(made=record_lists(), codec=st.sampled_from(list(Codec)))
def test_java_reads_our_batches(ask: Ask, made: list[Record], codec: Codec) -> None:
    assert ask(f"read {encode_batch(made, codec=codec).hex()}") == f"OK {as_text(made)}"


@pytest.mark.parametrize("codec", list(Codec))
def test_java_reads_our_large_batches(ask: Ask, codec: Codec) -> None:
    made = [Record(i, NOW, b"k%d" % i, b"value %d" % (i * i) * 9) for i in range(3000)]
    assert ask(f"read {encode_batch(made, codec=codec).hex()}") == f"OK {as_text(made)}"


@pytest.mark.parametrize("magic", [0, 1])
@examples
@given(made=record_lists(), codec=st.sampled_from(OLD_CODECS))
def test_java_reads_our_message_sets(ask: Ask, magic: int, made: list[Record], codec: Codec) -> None:
    converted = down_convert(encode_batch(made, codec=codec), magic)
    expected = [r._replace(headers=(), timestamp=r.timestamp if magic else -1) for r in made]
    assert ask(f"read {converted.hex()}") == f"OK {as_text(expected)}"


@pytest.mark.parametrize(
    ("magic", "codec"), [(2, codec) for codec in Codec] + [(magic, codec) for magic in (0, 1) for codec in OLD_CODECS]
)
@pytest.mark.parametrize(("count", "size"), [(1, 10), (3, 0), (200, 1000)])
def test_we_admit_what_java_builds(ask: Ask, magic: int, codec: Codec, count: int, size: int) -> None:
    data = bytes.fromhex(ask(f"build {magic} {codec} {count} {size} {NOW}").removeprefix("OK "))
    batch = validate(memoryview(data), AppendRules(), produce_version=9 if magic == 2 else 2, now_ms=NOW)
    assert read_header(batch.data).codec is codec
    if magic == 2:
        assert bytes(batch.data) == data
    expected = [Record(i, NOW + i if magic else -1, b"key %d" % i, bytes(size)) for i in range(count)]
    assert list(records(batch.data, read_header(batch.data), LIMIT)) == expected


RULE_SETS = st.builds(
    AppendRules,
    log_append_time=st.booleans(),
    compacted=st.booleans(),
    compression=st.sampled_from(["producer", "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]),
    timestamp_before_max_ms=st.sampled_from([5000, 2**63 - 1]),
    timestamp_after_max_ms=st.sampled_from([1000, 3_600_000]),
)


def verdict_of_kafka(ask: Ask, data: bytes, rules: AppendRules, version: int) -> tuple[int, bytes]:
    """(error code, batch to append)"""
    target = -1 if rules.compression == "producer" else Codec[rules.compression.upper().replace("UNCOMPRESSED", "NONE")]
    answer = ask(
        f"validate {version} {int(rules.log_append_time)} {int(rules.compacted)} {target} {NOW}"
        f" {rules.timestamp_before_max_ms} {rules.timestamp_after_max_ms} {data.hex()}"
    ).split()
    if answer[0] == "ERROR":
        return int(answer[1]), b""
    batch = bytes.fromhex(answer[2])
    if batch:
        assert read_header(batch).max_timestamp == int(answer[1])
    return 0, batch


def verdict_of_ours(data: bytes, rules: AppendRules, version: int) -> tuple[int, bytes, str]:
    try:
        batch = validate(memoryview(bytearray(data)), rules, produce_version=version, now_ms=NOW)
    except KafkaError as error:
        return error.code, b"", error.message
    return 0, bytes(batch.data), ""


@examples
@given(made=record_lists(), codec=st.sampled_from(list(Codec)), rules=RULE_SETS, old=st.booleans(), data=st.data())
def test_good_input_becomes_the_same_batch(
    ask: Ask, made: list[Record], codec: Codec, rules: AppendRules, old: bool, data: st.DataObject
) -> None:
    if old and codec != Codec.ZSTD:
        magic = data.draw(st.integers(0, 1))
        sent, version = message_set.encode_set(made, magic, codec=codec), 2
    else:
        producer = data.draw(st.sampled_from([-1, 5]))
        state = {"producer_id": producer, "producer_epoch": producer, "base_sequence": producer}
        sent, version = bytes(encode_batch(made, codec=codec, transactional=producer > 0, **state)), 9
    code, batch = verdict_of_kafka(ask, sent, rules, version)
    ours, ours_batch, _ = verdict_of_ours(sent, rules, version)
    assert ours == code
    if code:
        return
    theirs_header, ours_header = read_header(batch), read_header(ours_batch)
    same = ["last_offset_delta", "max_timestamp", "attributes", "producer_id", "producer_epoch", "base_sequence"]
    for name in [*same, "record_count"]:
        assert getattr(ours_header, name) == getattr(theirs_header, name), name
    assert list(records(ours_batch, ours_header, LIMIT)) == list(records(batch, theirs_header, LIMIT))
    if rules.compression == "producer" and version == 9:
        assert ours_batch == batch


STRICTER = (
    "offset delta",
    "producer id",
    "after the frame",
    "gzip",
    "snappy",
    "zstd",
    "lz4",
    "must have",
    "of negative size",
    "of size",
    "varint",
)
"""Klamm's messages: what Kafka would take."""


@settings(examples, max_examples=300)
@given(made=record_lists(), codec=st.sampled_from(list(Codec)), old=st.booleans(), data=st.data())
def test_broken_input_gets_kafkas_verdict(
    ask: Ask, made: list[Record], codec: Codec, old: bool, data: st.DataObject
) -> None:
    if old and codec != Codec.ZSTD:
        sent, version = bytearray(message_set.encode_set(made, data.draw(st.integers(0, 1)), codec=codec)), 2
    else:
        sent, version = encode_batch(made, codec=codec), 9
    for _ in range(data.draw(st.integers(1, 2))):
        low = data.draw(st.sampled_from([0, min(HEADER_BYTES, len(sent) - 1)]))
        sent[data.draw(st.integers(low, len(sent) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        sent += data.draw(st.binary(max_size=5))
    if sent[16] == 2 and data.draw(st.booleans()):
        (length,) = struct.unpack_from(">i", sent, 8)
        if HEADER_BYTES - 12 <= length <= len(sent) - 12:
            seal(memoryview(sent)[: length + 12])
    rules = replace(AppendRules(), compacted=data.draw(st.booleans()))
    code, batch = verdict_of_kafka(ask, bytes(sent), rules, version)
    ours, ours_batch, text = verdict_of_ours(bytes(sent), rules, version)
    if ours == code == ErrorCode.NONE:
        if batch:
            assert list(records(ours_batch, read_header(ours_batch), LIMIT)) == list(
                records(batch, read_header(batch), LIMIT)
            )
    elif code == ErrorCode.NONE:
        poisoned = ask(f"read {batch.hex()}").startswith("ERROR")  # Kafka takes it, its consumers would not
        assert poisoned or any(word in text for word in STRICTER), f"we refuse what Kafka takes: {ours} {text}"
    else:
        assert ours, f"we take what Kafka refuses with {code}: {sent.hex()} {rules}"
        broken_twice = {code, ours} == {ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP}
        same = code in (ours, ErrorCode.UNKNOWN_SERVER_ERROR) or broken_twice
        assert same, f"Kafka says {code}, we {ours} {text} {sent.hex()}"
