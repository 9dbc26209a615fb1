"""What messages cost: decoding and encoding the hot ones, compiling a version, importing all declarations.

    python bench/messages.py [--seconds 0.3]

Prints microseconds a message, the best of five rounds, so that a busy machine disturbs little.
"""

from __future__ import annotations

import argparse
import time
import timeit
from collections.abc import Callable
from typing import Any

from klamm.protocol.apis import API, request_class, response_class
from klamm.protocol.decoder import compile_decoder
from klamm.protocol.encoder import compile_encoder
from klamm.protocol.messages import fetch, metadata, produce
from klamm.protocol.schema import Message

RECORDS = bytes(170)  # about one record of 100 bytes


def best_us(work: Callable[[], Any], seconds: float) -> float:
    timer = timeit.Timer(work)
    once = max(timer.timeit(10) / 10, 1e-9)
    count = max(1, int(seconds / 5 / once))
    return min(timer.repeat(5, count)) / count * 1e6


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.3, help="time for each figure")
    seconds: float = parser.parse_args().seconds
    print(f"{'us':34} version  decode  encode")
    for title, make, versions in ROWS:
        for version in versions:
            message: Any = make(version)
            encode, decode = type(message).encode[version], type(message).decode[version]
            wire = memoryview(bytes(encode(message, bytearray())))
            decoding = best_us(lambda d=decode, w=wire: d(w), seconds)  # type: ignore[misc]
            encoding = best_us(lambda e=encode, m=message: e(m, bytearray()), seconds)  # type: ignore[misc]
            print(f"{title:34} v{version:<6} {decoding:7.2f} {encoding:7.2f}")
    compiling = best_us(lambda: compile_decoder(request_class(0), 9), seconds)
    compiling += best_us(lambda: compile_encoder(response_class(0), 9), seconds)
    print(f"compiling the decoder of a Produce request and the encoder of its response: {compiling / 1000:.2f} ms")
    began = time.perf_counter()
    for key in API:
        request_class(key), response_class(key)
    print(f"importing the other messages of all {len(API)} APIs: {(time.perf_counter() - began) * 1000:.0f} ms")


if __name__ == "__main__":
    main()
