"""Measure the storage engine, beside Apache Kafka 4.4 where that has the same: prints a Markdown table.

    python -m bench storage [--quick] [--directory DIR]

With a whole process: the time of a clean start with many partitions until the first response; lookups by offset (a
Fetch of one batch) and by timestamp (ListOffsets) at random places of a large log, one after the other over one
connection, cold (the page cache dropped, if that is allowed) and warm; the p99 of a producer of one record per request
while a topic is compacted, and while everything is scrubbed, beside the idle one.

With the log alone, which Apache Kafka does not offer: compaction, retention of many segments, appends to a large log
beside an empty one. `python -m bench recovery`, which the full run begins with, measures recovery, during which neither
broker takes requests.

`--quick` takes some three minutes with a tenth of the sizes.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.loads import one_record
from bench.log import batch, open_log
from bench.measure import KAFKA_HEAP, Table, Target, create_topic, first_answer
from bench.recovery import Running, fill
from klamm.client.blocking import NodeClient
from klamm.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.protocol.records.batch import Record, encode_batch, read_header
from klamm.protocol.records.validate import ValidBatch
from klamm.storage.compaction.cleanable import cleanable, make_job
from klamm.storage.compaction.cleaner import Cleaner
from klamm.storage.filesystem import OsFilesystem
from klamm.storage.log.log_config import LogConfig
from tests.support.apache_kafka import apache_kafka
from tests.support.broker_process import BrokerProcess

KEYED_BYTES = 1000
LATEST = -1


@dataclass(frozen=True, slots=True)
class Sizes:
    partitions: int
    log_gb: float
    look_ups: int
    compacted_mb: int
    segments: int
    seconds: float


FULL = Sizes(partitions=10_000, log_gb=10, look_ups=2000, compacted_mb=2000, segments=10_000, seconds=10)
QUICK = Sizes(partitions=1000, log_gb=1, look_ups=500, compacted_mb=200, segments=1000, seconds=4)

Start = Callable[[], AbstractContextManager[Running]]


def target_of(name: str, broker: Running) -> Target:
    return Target(name, "127.0.0.1", broker.port, broker.pid)


# -- whole processes


def clean_start(table: Table, name: str, start: Start, sizes: Sizes) -> None:
    """Measure the time from exec to the first response, with a record in each partition, after a clean stop."""
    with start() as broker, NodeClient("127.0.0.1", broker.port, timeout_s=600) as client:
        for first in range(0, sizes.partitions, 500):
            topic = CreatableTopic(name=f"many-{first}", num_partitions=500, replication_factor=1)
            created = client.request(CreateTopicsRequest(topics=[topic], timeout_ms=600_000), 5)
            assert created.topics[0].error_code == 0, created
            data = [PartitionProduceData(index=index, records=bytes(keyed(1, index))) for index in range(500)]
            topics = [TopicProduceData(name=topic.name, partition_data=data)]
            request = ProduceRequest(acks=1, timeout_ms=600_000, topic_data=topics)
            while any(each.error_code for each in client.request(request, 9).responses[0].partition_responses):
                time.sleep(0.5)  # Apache Kafka answers before it serves
    began = time.perf_counter()
    with start() as broker:
        first_answer(broker.port)
        table.add(f"clean start, {sizes.partitions:,} partitions", name, seconds=time.perf_counter() - began)


def look_ups(table: Table, name: str, start: Start, sizes: Sizes) -> None:
    with start() as broker:
        fill(broker, sizes.log_gb, 1, 16384)
        with NodeClient("127.0.0.1", broker.port) as client:
            end, _ = listed(client, LATEST)
            _, first_ms = listed(client, 0)
        last_ms = int(time.time() * 1000)
        for state in ("cold", "warm"):
            if state == "cold":
                drop_caches()
            with NodeClient("127.0.0.1", broker.port) as client:
                pick = random.Random(state).randrange
                row = f"look-ups by offset, {sizes.log_gb:g} GB, {state}"
                each(table, row, name, sizes.look_ups, partial(at_random_offset, client, pick, end))
                if state == "cold":
                    drop_caches()
                row = f"look-ups by timestamp, {sizes.log_gb:g} GB, {state}"
                each(table, row, name, sizes.look_ups, partial(at_random_time, client, pick, first_ms, last_ms))


def each(table: Table, row: str, name: str, count: int, work: Callable[[], object]) -> None:
    taken = []
    began = time.perf_counter()
    for _ in range(count):
        at = time.perf_counter()
        work()
        taken.append(time.perf_counter() - at)
    elapsed = time.perf_counter() - began
    taken.sort()
    table.add(
        row, name, look_ups_s=count / elapsed, p50_us=taken[count // 2] * 1e6, p99_us=taken[count * 99 // 100] * 1e6
    )


def at_random_offset(client: NodeClient, pick: Callable[[int], int], end: int) -> None:
    fetched(client, pick(end))


def at_random_time(client: NodeClient, pick: Callable[[int, int], int], first_ms: int, last_ms: int) -> None:
    listed(client, pick(first_ms, last_ms))


def fetched(client: NodeClient, offset: int) -> None:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
    fetch = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1, topics=[FetchTopic(topic="load", partitions=[wanted])]
    )
    found = client.request(fetch, 11).responses[0].partitions[0]
    assert found.error_code == 0 and found.records


def listed(client: NodeClient, timestamp: int) -> tuple[int, int]:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="load", partitions=[wanted])])
    found = client.request(request, 2).topics[0].partitions[0]
    assert found.error_code == 0
    return found.offset, found.timestamp


def drop_caches() -> None:
    """Drop the page cache, which needs root; otherwise "cold" is as warm as after the fill."""
    subprocess.run(["sync"], check=True)
    try:
        Path("/proc/sys/vm/drop_caches").write_text("1")
    except OSError:
        print("  the page cache cannot be dropped without root", file=sys.stderr)


def beside_work(table: Table, directory: Path, sizes: Sizes) -> None:
    """Measure the p99 of a producer, idle, while a topic is compacted, and while all is scrubbed; only on Klamm."""
    config: dict[str, object] = {
        "log.cleaner.backoff.ms": 100,
        "klamm.scrub.bytes.per.second": 10_000_000,
        "klamm.scrub.interval.ms": 1_000_000_000_000,
    }
    with BrokerProcess(directory, config) as broker, NodeClient("127.0.0.1", broker.port) as client:
        target = target_of("klamm", broker)
        create_topic(target, "single", 1)
        configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0", "segment.bytes": str(64 << 20)}
        topic = CreatableTopic(
            name="compacted",
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        assert client.request(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5).topics[0].error_code == 0
        pick = random.Random(1)
        data = b""
        for number in range(sizes.compacted_mb):
            data = bytes(keyed(1000, pick.randrange(1 << 30)))
            part = [PartitionProduceData(index=0, records=data)]
            topics = [TopicProduceData(name="compacted", partition_data=part)]
            answer = client.request(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0, number
        one_record(target, "single", 1, sizes.seconds)
        idle = one_record(target, "single", 1, sizes.seconds)
        table.add("one record per request, idle", "klamm", **idle)
        before = metric(broker, "klamm_cleaner_read_bytes_total")
        alter(client, 2, "compacted", "min.cleanable.dirty.ratio", "0.01")
        busy = one_record(target, "single", 1, sizes.seconds)
        while (read := metric(broker, "klamm_cleaner_read_bytes_total") - before) == 0:
            time.sleep(0.2)  # it is counted at the end of a run
        table.add(f"the same while {read / 1e6:.0f} MB are compacted", "klamm", **with_ratio(busy, idle))
        alter(client, 4, "1", "klamm.scrub.interval.ms", "1000")
        busy = one_record(target, "single", 1, sizes.seconds)
        table.add("the same while logs are scrubbed at 10 MB/s", "klamm", **with_ratio(busy, idle))


def with_ratio(busy: dict[str, float], idle: dict[str, float]) -> dict[str, float]:
    return {**busy, "p99_ratio": busy["p99_us"] / idle["p99_us"]}


def alter(client: NodeClient, kind: int, name: str, key: str, value: str) -> None:
    configs = [AlterableConfig(name=key, config_operation=0, value=value)]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    answer = client.request(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0, answer


def metric(broker: BrokerProcess, name: str) -> float:
    with urllib.request.urlopen(broker.metrics_url, timeout=10) as answer:
        text = answer.read().decode()
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(name + " "))


def keyed(count: int, first: int) -> bytearray:
    """Return a batch of that many records of 1 KB, with keys out of 100,000."""
    now_ms = int(time.time() * 1000)
    return encode_batch(
        [
            Record(index, now_ms, b"key-%d" % ((first + index * 7919) % 100_000), bytes(KEYED_BYTES - 20))
            for index in range(count)
        ]
    )


# -- the log alone


def compaction(table: Table, directory: Path, sizes: Sizes) -> None:
    log = open_log(directory, "compact-0", config=LogConfig(segment_bytes=64 << 20, compacted=True, deleted=False))
    for number in range(sizes.compacted_mb):
        log.append_as_leader(valid(keyed(1000, number * 1000)), leader_epoch=0)
    log.roll()
    log.set_high_watermark(log.log_end_offset)
    log.local.flush()
    found = cleanable(log, 0, int(time.time() * 1000))
    assert found is not None
    job = make_job(log, found, int(time.time() * 1000), map_bytes=128 << 20, map_load_factor=0.9, bytes_per_second=1e15)
    began = time.perf_counter()
    result = Cleaner(job, OsFilesystem()).run()
    elapsed = time.perf_counter() - began
    table.add(f"compaction of {log.local.size_bytes / 1e6:,.0f} MB, 1 KB records", "klamm",
              mb_s=result.bytes_read / elapsed / 1e6)  # fmt: skip
    shutil.rmtree(log.local.directory)


def retention(table: Table, directory: Path, sizes: Sizes) -> None:
    log = open_log(directory, "retention-0", config=LogConfig(segment_bytes=4000))
    small = batch(1, 3900)
    for _ in range(sizes.segments + 1):
        log.append_as_leader(small, leader_epoch=0)
    assert len(log.local.segments.all) == sizes.segments + 1
    log.local.flush()
    began = time.perf_counter()
    log.advance_log_start(log.log_end_offset - 1)
    removed = log.detach_unreachable()
    on_the_loop = time.perf_counter() - began
    log.local.unlink_files(log.local.retire_segments(removed))
    table.add(f"retention of {len(removed):,} segments", "klamm",
              seconds=time.perf_counter() - began, loop_ms=on_the_loop * 1e3)  # fmt: skip


def append_rate(table: Table, directory: Path, sizes: Sizes) -> None:
    """Measure appends of batches of 150 records of 100 B, a segment's first tenth of a second included."""
    large = batch(150, 100)
    now_ms = int(time.time() * 1000)
    rates = {}
    log = open_log(directory, "append-0", config=LogConfig())
    empty_log = open_log(directory, "empty-0", config=LogConfig())
    per_round = 20_000
    while log.local.size_bytes < sizes.log_gb * 1e9:
        log.append_as_leader(large, leader_epoch=0, now_ms=now_ms)
    for _ in range(5):  # alternately, so that the disk treats both alike
        for name, each_log in (("empty", empty_log), ("full", log)):
            began = time.perf_counter()
            for _ in range(per_round // 5):
                each_log.append_as_leader(large, leader_epoch=0, now_ms=now_ms)
            rates.setdefault(name, []).append(per_round // 5 / (time.perf_counter() - began))
    empty, full = (sorted(rates[name])[2] for name in ("empty", "full"))
    table.add("appends of 16 KB to an empty log", "klamm", appends_s=empty)
    table.add(f"the same at {sizes.log_gb:g} GB", "klamm", appends_s=full, ratio=full / empty)
    for each_log in (log, empty_log):
        each_log.local.abandon("measured")
        shutil.rmtree(each_log.local.directory)


def valid(data: bytearray) -> ValidBatch:
    head = read_header(data)
    return ValidBatch(
        data=memoryview(data),
        last_offset_delta=head.last_offset_delta,
        record_count=head.record_count,
        max_timestamp=head.max_timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        is_transactional=False,
        log_append_time_ms=-1,
        size_bytes=len(data),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="The storage engine beside Apache Kafka.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes, without recovery")
    parser.add_argument("--directory", type=Path, help="on the disk to be measured")
    options = parser.parse_args()
    sizes = QUICK if options.quick else FULL
    if not options.quick:
        subprocess.run([sys.executable, "-m", "bench", "recovery"], check=True)
    table = Table()
    with tempfile.TemporaryDirectory(prefix="klamm-bench-", dir=options.directory) as temporary:
        path = Path(temporary)
        for work in (append_rate, compaction, retention, beside_work):
            (path / work.__name__).mkdir()
            work(table, path / work.__name__ / "data" if work is beside_work else path / work.__name__, sizes)
            shutil.rmtree(path / work.__name__)
        for measure in (look_ups, clean_start):
            brokers: dict[str, Start] = {
                "klamm": lambda: BrokerProcess(path / "klamm"),
                "kafka": lambda: apache_kafka(path / "kafka", heap=KAFKA_HEAP),
            }
            for name, start in brokers.items():
                measure(table, name, start, sizes)
                shutil.rmtree(path / name)
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    print(table.markdown())


if __name__ == "__main__":
    main()
