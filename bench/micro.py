"""Measure single steps, without network: messages, batches by codec, an append, a fetch, a lookup in an index.

    python -m bench micro [--fast] [-o FILE]

pyperf runs them in processes of their own: mean and deviation. Its other options work, too (`--help`; compare two files
with `python -m pyperf compare_to`). An append is the dispatch of a Produce of one record of 100 bytes, write included;
"known" is a request that the connection has sent before, apart from its records.
"""

from __future__ import annotations

import itertools
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyperf

from klamm.protocol.messages import fetch, metadata, produce
from klamm.protocol.records.batch import HEADER_BYTES, Record, encode_batch
from klamm.protocol.records.compression import Codec
from klamm.protocol.records.validate import AppendRules, validate
from klamm.protocol.schema import Message
from klamm.storage.filesystem import OsFilesystem
from klamm.storage.log.index import OffsetIndex
from tests.support.embedded import NOW_MS, EmbeddedBroker, batch, encode_frame

RECORDS = bytes(170)  # about one record of 100 bytes
COUNTS = (1, 100)
INDEX_ENTRIES = 100_000


def produce_request(version: int) -> Message:
    name, topic_id = ("topic", bytes(16)) if version < 13 else ("", bytes(range(16)))
    partitions = [produce.PartitionProduceData(index=0, records=RECORDS)]
    topic = produce.TopicProduceData(name=name, topic_id=topic_id, partition_data=partitions)
    return produce.ProduceRequest(acks=-1, timeout_ms=30000, topic_data=[topic])


def produce_response(version: int) -> Message:
    name, topic_id = ("topic", bytes(16)) if version < 13 else ("", bytes(range(16)))
    partitions = [produce.PartitionProduceResponse(index=0, base_offset=5, log_start_offset=0)]
    topic = produce.TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=partitions)
    return produce.ProduceResponse(responses=[topic])


def fetch_request(version: int) -> Message:
    name, topic_id = ("topic", bytes(16)) if version < 13 else ("", bytes(range(16)))
    partition = fetch.FetchPartition(partition=0, fetch_offset=7, partition_max_bytes=1 << 20, current_leader_epoch=3)
    topic = fetch.FetchTopic(topic=name, topic_id=topic_id, partitions=[partition])
    return fetch.FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic])


def fetch_response(version: int) -> Message:
    name, topic_id = ("topic", bytes(16)) if version < 13 else ("", bytes(range(16)))
    partition = fetch.PartitionData(
        partition_index=0, high_watermark=99, last_stable_offset=99, log_start_offset=0, records=RECORDS
    )
    topic = fetch.FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[partition])
    return fetch.FetchResponse(responses=[topic])


def metadata_response(version: int) -> Message:
    brokers = [metadata.MetadataResponseBroker(node_id=i, host=f"host{i}", port=9092, rack="r") for i in range(3)]
    partitions = [
        metadata.MetadataResponsePartition(
            partition_index=i, leader_id=1, leader_epoch=5, replica_nodes=[1, 2, 3], isr_nodes=[1, 2]
        )
        for i in range(10)
    ]
    topics = [
        metadata.MetadataResponseTopic(name=f"topic{i}", topic_id=bytes(range(16)), partitions=partitions)
        for i in range(10)
    ]
    return metadata.MetadataResponse(brokers=brokers, cluster_id="abc", controller_id=1, topics=topics)


ROWS: list[tuple[str, Callable[[int], Message], tuple[int, ...]]] = [
    ("Produce request, 1 record", produce_request, (3, 9, 13)),
    ("Produce response, 1 partition", produce_response, (3, 9, 13)),
    ("Fetch request, 1 partition", fetch_request, (4, 12, 17)),
    ("Fetch response, 1 partition", fetch_response, (4, 12, 17)),
    ("Metadata response, 100 partitions", metadata_response, (5, 12, 13)),
]


def messages(runner: pyperf.Runner) -> None:
    for title, make, versions in ROWS:
        for version in versions:
            message: Any = make(version)
            encode, decode = type(message).encode[version], type(message).decode[version]
            wire = memoryview(bytes(encode(message, bytearray())))
            runner.bench_func(f"decode {title} v{version}", decode, wire)
            runner.bench_func(f"encode {title} v{version}", lambda e=encode, m=message: e(m, bytearray()))


def batches(runner: pyperf.Runner) -> None:
    """Measure the validation of produced batches, decompression included."""
    pick = random.Random(1)
    rules = AppendRules()
    for codec, count in itertools.product(Codec, COUNTS):
        values = [pick.randbytes(50) + bytes(50) for _ in range(count)]
        data = memoryview(
            bytearray(encode_batch([Record(i, NOW_MS, None, value) for i, value in enumerate(values)], codec=codec))
        )
        work = lambda data=data: validate(data, rules, produce_version=9, now_ms=NOW_MS)  # noqa: E731
        runner.bench_func(f"validate {count} record(s), {codec.name.lower()}", work)


def requests(runner: pyperf.Runner, broker: EmbeddedBroker) -> None:
    broker.create_topic("t")
    connection, dispatch = broker.connection, broker._dispatcher
    produced = memoryview(bytearray(_produce_frame(9)))
    fetched = memoryview(bytearray(_fetch_frame(12)))
    base_offset = bytes(produced).index(batch(bytes(100))[8:HEADER_BYTES]) - 8  # where an append writes the offset

    def ask(frame: memoryview, *, known: bool) -> Callable[[], object]:
        def work() -> object:
            if not known:
                connection.memo = None
            if frame is produced:
                frame[base_offset : base_offset + 8] = bytes(8)
            return dispatch(connection, frame)  # type: ignore[arg-type]

        return work

    for name, frame in (("append", produced), ("fetch", fetched)):
        for known in (False, True):
            runner.bench_func(f"{name}, {'known' if known else 'decoded'}", ask(frame, known=known))


def _produce_frame(version: int) -> bytes:
    data = [produce.PartitionProduceData(index=0, records=batch(bytes(100)))]
    topic = produce.TopicProduceData(name="t", partition_data=data)
    return bytes(encode_frame(produce.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), version))


def _fetch_frame(version: int) -> bytes:
    row = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 16)
    topic = fetch.FetchTopic(topic="t", partitions=[row])
    return bytes(encode_frame(fetch.FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic]), version))


def indexes(runner: pyperf.Runner, directory: Path) -> None:
    index = OffsetIndex(OsFilesystem(), directory / "0.index", 0)
    for number in range(INDEX_ENTRIES):
        index.append(number * 10, number * 4096)
    pick = random.Random(1)
    anywhere = itertools.cycle([pick.randrange(INDEX_ENTRIES * 10) for _ in range(1000)])
    at_the_end = INDEX_ENTRIES * 10 - 5
    runner.bench_func("index, anywhere", lambda: index.lookup(next(anywhere)))
    runner.bench_func("index, at the end", index.lookup, at_the_end)


def main() -> None:
    runner = pyperf.Runner(program_args=("-m", "bench.micro"))
    runner.metadata["description"] = "single steps of Klamm"
    directory = Path(tempfile.mkdtemp(prefix="klamm-bench-"))
    try:
        messages(runner)
        batches(runner)
        with EmbeddedBroker(directory / "broker") as broker:
            requests(runner, broker)
        indexes(runner, directory)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    sys.exit(main())
