"""Measure transactions, beside Apache Kafka 4.4; prints a Markdown table.

    python -m bench transactions [--rounds 3] [--seconds 15] [--quick]

Transactions per second: 1, 10 and 100 transactional producers (version 2 of the protocol), each with one transaction
after the other: a record of 100 bytes, then the commit. The latency is that of both together, including the retries
that the broker requires. The producers live in this process, each on its own connection; its share of a core is
reported, to show that it is not the limit. End to end: one producer commits 50 transactions a second, and a
read_committed reader waits for their records: the time from the beginning of the transaction to the record at the
reader. Last, Apache Kafka's own producer (ProducerPerformance of its tools), idempotent and not, alternately.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from bench.loads import java_producer
from bench.measure import BROKERS, Table, Target, create_topic
from klamm.client.asynchronous import AsyncNodeClient
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.end_txn import EndTxnRequest
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.protocol.messages.find_coordinator import FindCoordinatorRequest
from klamm.protocol.messages.init_producer_id import InitProducerIdRequest
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.protocol.records.batch import Record, batches, encode_batch, records

TOPIC = "transactions"
PARTITIONS = 12
PRODUCERS = (1, 10, 100)
PRODUCE, END, INIT, FETCH, FIND = 12, 5, 5, 12, 4  # versions
FILLER = b"x" * 100  # a record that is not timed
RATE = 50  # transactions a second, end to end
RETRY_S = 0.001
WARM_UP_S = 3.0
PATIENCE_S = 60.0
READ_COMMITTED = 1
LIMIT = 1 << 20
AGAIN = {
    int(code)
    for code in (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    )
}


@dataclass(slots=True)
class Work:
    """The measured transactions."""

    seconds: list[float] = field(default_factory=list)
    retries: int = 0

    def percentile_us(self, share: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1e6


class Producer:
    """A transactional producer on its own connection."""

    def __init__(self, target: Target, name: str, partition: int) -> None:
        self._client = AsyncNodeClient(target.host, target.port, negotiate=False, timeout_s=PATIENCE_S)
        self._name = name
        self._partition = partition
        self._who = (-1, -1)
        self.retries = 0

    async def start(self) -> None:
        await self._client.connect()
        asked = FindCoordinatorRequest(key_type=1, coordinator_keys=[self._name])
        await self._settled(asked, FIND, lambda answer: answer.coordinators[0].error_code)
        request = InitProducerIdRequest(
            transactional_id=self._name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        answer = await self._settled(request, INIT, lambda answer: answer.error_code)
        self._who = answer.producer_id, answer.producer_epoch

    async def transaction(self, value: bytes) -> None:
        """Send one record, and commit. The epoch belongs to the transaction, so each begins at sequence 0."""
        producer_id, epoch = self._who
        batch = encode_batch(
            [Record(0, int(time.time() * 1000), None, value, ())],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )
        data = [PartitionProduceData(index=self._partition, records=bytes(batch))]
        topics = [TopicProduceData(name=TOPIC, partition_data=data)]
        produce = ProduceRequest(transactional_id=self._name, acks=-1, timeout_ms=30_000, topic_data=topics)
        await self._settled(produce, PRODUCE, lambda answer: answer.responses[0].partition_responses[0].error_code)
        end = EndTxnRequest(transactional_id=self._name, producer_id=producer_id, producer_epoch=epoch, committed=True)
        answer = await self._settled(end, END, lambda answer: answer.error_code)
        self._who = answer.producer_id, answer.producer_epoch

    async def _settled(self, request: Any, version: int, code_of: Any) -> Any:
        patience = time.perf_counter() + PATIENCE_S
        while (code := code_of(answer := await self._client.send(request, version))) in AGAIN:
            assert time.perf_counter() < patience, answer
            self.retries += 1
            await asyncio.sleep(RETRY_S)
        assert code == 0, answer
        return answer

    def close(self) -> None:
        self._client.close()


async def start(target: Target, prefix: str, count: int) -> list[Producer]:
    """Start that many producers."""
    producers = [Producer(target, f"{prefix}-{number}", number % PARTITIONS) for number in range(count)]
    await asyncio.gather(*(producer.start() for producer in producers))
    return producers


async def rush(producers: list[Producer], seconds: float) -> Work:
    """Run all producers without pauses."""
    work = Work()
    end = time.perf_counter() + seconds

    async def one(producer: Producer) -> None:
        while (began := time.perf_counter()) < end:
            await producer.transaction(FILLER)
            work.seconds.append(time.perf_counter() - began)

    for producer in producers:
        producer.retries = 0
    await asyncio.gather(*(one(producer) for producer in producers))
    work.retries = sum(producer.retries for producer in producers)
    return work


async def rate(target: Target, table: Table, count: int, seconds: float) -> None:
    producers = await start(target, f"rush-{count}", count)
    await rush(producers, WARM_UP_S)
    cpu_s, own_cpu_s, began = target.cpu_s(), time.process_time(), time.perf_counter()
    work = await rush(producers, seconds)
    elapsed = time.perf_counter() - began
    done = len(work.seconds)
    table.add(
        f"{count} producer(s)",
        target.name,
        transactions_s=done / elapsed,
        p50_us=work.percentile_us(0.5),
        p99_us=work.percentile_us(0.99),
        cpu_us=(target.cpu_s() - cpu_s) / done * 1e6,
        retries=work.retries / done,
    )
    share = (time.process_time() - own_cpu_s) / elapsed * 100
    table.add(f"load generator with {count} producer(s), share of a core", target.name, percent=share)
    for producer in producers:
        producer.close()


async def read(target: Target, work: Work) -> None:
    """Read partition 0 from its end on, and note the age of each record: its value is the time of its beginning."""
    client = AsyncNodeClient(target.host, target.port, negotiate=False, timeout_s=PATIENCE_S)
    await client.connect()
    position = -1
    while True:
        row = FetchPartition(partition=0, fetch_offset=max(position, 0), partition_max_bytes=LIMIT)
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=LIMIT,
            isolation_level=READ_COMMITTED,
            topics=[FetchTopic(topic=TOPIC, partitions=[row])],
        )
        part = (await client.send(request, FETCH)).responses[0].partitions[0]
        assert part.error_code == 0, part
        if position < 0:
            position = part.last_stable_offset
            continue
        now = time.perf_counter()
        data = bytes(part.records or b"")
        for place, header in batches(data):
            if not header.is_control and header.base_offset >= position:
                values = (record.value for record in records(data, header, LIMIT, place))
                work.seconds += [now - float(value) for value in values if value and value != FILLER]
            position = header.next_offset


async def end_to_end(target: Target, table: Table, seconds: float) -> None:
    (producer,) = await start(target, "paced", 1)
    work = Work()
    reader = asyncio.ensure_future(read(target, work))
    began = time.perf_counter()
    for number in range(int((WARM_UP_S + seconds) * RATE)):
        if number == int(WARM_UP_S * RATE):
            work.seconds.clear()
        await asyncio.sleep(max(0.0, began + number / RATE - time.perf_counter()))
        await producer.transaction(repr(time.perf_counter()).encode())
    await asyncio.sleep(1.0)
    if reader.done():
        reader.result()
    reader.cancel()
    assert len(work.seconds) > seconds * RATE * 0.8, len(work.seconds)
    figures = {"p50_us": work.percentile_us(0.5), "p99_us": work.percentile_us(0.99)}
    table.add(f"end to end, read_committed, {RATE} transactions/s", target.name, **figures)
    producer.close()


async def measure(target: Target, table: Table, seconds: float) -> None:
    for count in PRODUCERS:
        await rate(target, table, count, seconds)
    await end_to_end(target, table, seconds)


def idempotence(target: Target, table: Table, count: int, rounds: int) -> None:
    """Compare the throughput of an idempotent producer with that of a plain one."""
    create_topic(target, "written", 6)
    java_producer(target, "written", count, 100)  # warm
    found: dict[str, list[float]] = {"true": [], "false": []}
    for number in range(rounds):
        for which in ("true", "false") if number % 2 else ("false", "true"):
            figures = java_producer(target, "written", count, 100, f"enable.idempotence={which}")
            found[which].append(figures["records_s"])
            kind = "idempotent" if which == "true" else "plain"
            table.add(f"{count / 1e6:g} M x 100 B, Java producer, {kind}", target.name, **figures)
    share = statistics.median(found["true"]) / statistics.median(found["false"])
    table.add("throughput of the idempotent producer, of the plain one's", target.name, ratio=share)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--quick", action="store_true", help="one round of 5 s each, about three minutes")
    options = parser.parse_args()
    rounds, seconds, count = (1, 5.0, 500_000) if options.quick else (options.rounds, options.seconds, 3_000_000)
    table = Table()
    for number in range(rounds):
        for broker in BROKERS:
            with tempfile.TemporaryDirectory() as directory, broker(Path(directory)) as target:
                create_topic(target, TOPIC, PARTITIONS)
                uvloop.run(measure(target, table, seconds))
                if number == 0:
                    idempotence(target, table, count, 5 if not options.quick else 3)
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, {rounds} round(s)\n")
    print(table.markdown())


if __name__ == "__main__":
    main()
