"""Kill rounds: producers with acks=all write without pause while the broker dies and comes back, again and again.

What must hold at the end, and is checked record by record: every acknowledged record is there, at the acknowledged
offset; nothing is there twice; the records of a producer stand in its order; offsets have no holes; the log ends where
the broker says. Two producers write: librdkafka's idempotent one, and one of our own that keeps several batches in
flight and repeats them unchanged, sequence for sequence, until it has their acknowledgement.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka import Message, Producer

from klamm.client.blocking import NodeClient
from klamm.client.errors import ClientError
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.protocol.messages.init_producer_id import InitProducerIdRequest
from klamm.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.protocol.records.batch import Record, batches, crc_is_valid, encode_batch, records
from tests.faults.network_cases import Broker
from tests.support.broker_process import BrokerFailed, BrokerProcess, wait_for

Place = tuple[str, int]  # topic, partition

TOPICS = {"alpha": 3, "beta": 2, "gamma": 1}
PLACES: list[Place] = [(topic, index) for topic, count in TOPICS.items() for index in range(count)]
CONFIG = {
    "log.segment.bytes": 1 << 20,
    "log.index.interval.bytes": 1024,
    "log.flush.offset.checkpoint.interval.ms": 200,
    "auto.create.topics.enable": "false",
}
MIN_ACKED = 100  # a round with fewer acknowledged records shows nothing
IN_FLIGHT = 5
READ_BYTES = 8 << 20


@dataclass
class Ledger:
    """The acknowledged records: (producer, sequence) by place and offset."""

    acked: dict[Place, dict[int, tuple[str, int]]] = field(default_factory=lambda: defaultdict(dict))
    count: int = 0
    failures: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def ack(self, place: Place, offset: int, producer: str, sequence: int) -> None:
        with self.lock:
            before = self.acked[place].setdefault(offset, (producer, sequence))
            if before != (producer, sequence):
                self.failures.append(f"{place}: offset {offset} acknowledged to {before} and to {(producer, sequence)}")
            self.count += 1

    def fail(self, text: str) -> None:
        with self.lock:
            self.failures.append(text)


def value_of(producer: str, sequence: int, rng: random.Random) -> bytes:
    return f"{producer} {sequence} ".encode() + b"." * rng.choice((10, 100, 1000, 5000))


class LibrdkafkaProducer(threading.Thread):
    """A thread with librdkafka's idempotent producer, which retries on its own."""

    def __init__(self, address: str, ledger: Ledger, rng: random.Random) -> None:
        super().__init__(name="librdkafka", daemon=True)
        self._ledger = ledger
        self._rng = rng
        self._sequences: dict[Place, int] = defaultdict(int)
        self.stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "compression.type": "lz4",
                "delivery.timeout.ms": 300_000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "queue.buffering.max.messages": 2000,
                "log_level": 0,
                "error_cb": self._on_error,
            }
        )

    def _on_error(self, error: ConfluentError) -> None:
        if error.fatal():
            self._ledger.fail(f"librdkafka: {error}")

    def run(self) -> None:
        while not self.stopping.is_set():
            place = self._rng.choice(PLACES)
            sequence = self._sequences[place]
            try:
                self._producer.produce(
                    place[0],
                    value_of(self.name, sequence, self._rng),
                    partition=place[1],
                    on_delivery=lambda error, message, sequence=sequence: self._delivered(error, message, sequence),
                )
            except BufferError:
                self._producer.poll(0.05)
            else:
                self._sequences[place] += 1
                self._producer.poll(0)
        if self._producer.flush(60):
            self._ledger.fail("librdkafka: not everything was delivered at the end")

    def _delivered(self, error: ConfluentError | None, message: Message, sequence: int) -> None:
        if error is not None:
            self._ledger.fail(f"librdkafka: {message.topic()}-{message.partition()} sequence {sequence}: {error}")
            return
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None and partition is not None and offset is not None
        self._ledger.ack((topic, partition), offset, self.name, sequence)


class OwnProducer(threading.Thread):
    """A thread that sends up to IN_FLIGHT batches for one place, and repeats them unchanged over new connections.

    It ends when all are acknowledged.
    """

    def __init__(self, broker: BrokerProcess, ledger: Ledger, rng: random.Random) -> None:
        super().__init__(name="own", daemon=True)
        self._broker = broker
        self._ledger = ledger
        self._rng = rng
        self._sequences: dict[Place, int] = defaultdict(int)
        self.stopping = threading.Event()
        self._client: NodeClient | None = None
        self._producer_id = -1

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self._write(self._rng.choice(PLACES))
        except Exception as error:
            self._ledger.fail(f"own producer: {error!r}")
        finally:
            if self._client is not None:
                self._client.close()

    def _connect(self) -> NodeClient:
        while self._client is None:
            client = NodeClient("127.0.0.1", self._broker.port, timeout_s=30)
            try:
                client.choose_version(ProduceRequest)
                if self._producer_id < 0:
                    answer = client.request(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000))
                    assert answer.error_code == 0, answer
                    self._producer_id = answer.producer_id
                self._client = client
            except ClientError:
                client.close()
                time.sleep(0.01)
        return self._client

    def _write(self, place: Place) -> None:
        self._connect()
        first = self._sequences[place]
        requests: list[tuple[int, int, ProduceRequest]] = []
        for _ in range(self._rng.randint(1, IN_FLIGHT)):
            count = self._rng.randint(1, 20)
            requests.append((first, count, self._request(place, first, count)))
            first += count
        self._sequences[place] = first
        while requests:
            client = self._connect()
            try:
                for _, _, request in requests:
                    client.send(request, 9)
                while requests:
                    sequence, count, _ = requests[0]
                    answer = client.receive().responses[0].partition_responses[0]
                    if answer.error_code:
                        raise AssertionError(f"{place} sequence {sequence}: {answer}")
                    for index in range(count):
                        self._ledger.ack(place, answer.base_offset + index, self.name, sequence + index)
                    requests.pop(0)
            except ClientError:
                client.close()
                self._client = None

    def _request(self, place: Place, first: int, count: int) -> ProduceRequest:
        now_ms = int(time.time() * 1000)
        batch = encode_batch(
            [Record(n, now_ms, None, value_of(self.name, first + n, self._rng)) for n in range(count)],
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=first,
        )
        data = [PartitionProduceData(index=place[1], records=batch)]
        return ProduceRequest(
            acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=place[0], partition_data=data)]
        )


class KillRounds:
    """One campaign; `run` does the rounds, `verify` reads everything."""

    def __init__(self, directory: Path, rng: random.Random, config: dict[str, object] | None = None) -> None:
        self.rng = rng
        self.broker = BrokerProcess(directory / "data", {**CONFIG, **(config or {})})
        self.ledger = Ledger()
        self.void = 0
        self.kills_while_starting = 0

    def run(self, rounds: int, *, terminate_every: int = 5) -> None:
        """Run `rounds` that count; every so many is a SIGTERM, which must leave nothing to recover."""
        self.broker.start()
        with Broker(self.broker.port) as peer:
            for topic, count in TOPICS.items():
                assert peer.create(topic, partitions=count) == 0
        producers = [
            LibrdkafkaProducer(self.broker.address, self.ledger, random.Random(self.rng.random())),
            OwnProducer(self.broker, self.ledger, random.Random(self.rng.random())),
        ]
        for producer in producers:
            producer.start()
        done = 0
        while done < rounds:
            if self._round(terminate=done % terminate_every == terminate_every - 1):
                done += 1
            else:
                self.void += 1
                assert self.void <= rounds, "more void rounds than others"
        for producer in producers:
            producer.stopping.set()
        for producer in producers:
            producer.join(90)
            assert not producer.is_alive(), f"{producer.name} did not come to its end"

    def _round(self, *, terminate: bool) -> bool:
        before = self.ledger.count
        wait_for(lambda: self.ledger.count > before or bool(self.ledger.failures), 30, "the first acknowledgement")
        time.sleep(self.rng.uniform(0.05, 1.0))
        broker = self.broker
        if terminate:
            started = time.monotonic()
            assert broker.terminate() == 0
            assert time.monotonic() - started < 10
        else:
            broker.kill()
        acked = self.ledger.count - before
        assert not self.ledger.failures, self.ledger.failures[:5]
        logged = len(broker.log())
        if not terminate and self.rng.random() < 0.3:
            self._kill_while_starting()
        broker.restart()
        news = broker.log()[logged:]
        assert ("not closed cleanly" in news) is not terminate, news
        return acked >= MIN_ACKED

    def _kill_while_starting(self) -> None:
        """Recovery, too, may be cut short."""
        delay_s = self.rng.uniform(0.02, 0.3)
        done = threading.Event()

        def kill() -> None:
            if not done.wait(delay_s):
                os.kill(self.broker.pid, signal.SIGKILL)

        # The process is there once `start` is waiting for its line; a start that is faster than the delay lives on.
        killer = threading.Thread(target=self._after_spawn, args=(kill,), daemon=True)
        killer.start()
        try:
            self.broker.start()
            done.set()
            killer.join()
        except BrokerFailed:
            killer.join()
            self.kills_while_starting += 1
        if self.broker._process is not None:
            self.broker.kill()

    def _after_spawn(self, action: object) -> None:
        assert callable(action)
        wait_for(lambda: self.broker._process is not None, what="the process")
        action()

    # -- what must hold

    def verify(self) -> dict[str, int]:
        """Read everything and compare; return the facts for the report."""
        assert not self.ledger.failures, self.ledger.failures[:5]
        log = self.broker.log()
        assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:3000]
        assert "offline" not in log, [line for line in log.splitlines() if "offline" in line][:3]
        total = segments = 0
        with NodeClient("127.0.0.1", self.broker.port) as client:
            for place in PLACES:
                found = read_all(client, place)
                check_place(place, found, self.ledger.acked[place])
                total += len(found)
                segments += len(list((self.broker.data / f"{place[0]}-{place[1]}").glob("*.log")))
        return {
            "records": total,
            "acknowledged": self.ledger.count,
            "segments": segments,
            "void rounds": self.void,
            "killed while starting": self.kills_while_starting,
        }


def check_place(place: Place, found: list[tuple[str, int]], acked: dict[int, tuple[str, int]]) -> None:
    """`found` are (producer, sequence) by offset, from 0 on."""
    for offset, record in acked.items():
        assert offset < len(found), f"{place}: lost {record}, acknowledged at {offset}; the log ends at {len(found)}"
        assert found[offset] == record, f"{place}: offset {offset} was acknowledged to {record}, has {found[offset]}"
    sequences: dict[str, list[int]] = defaultdict(list)
    for producer, sequence in found:
        sequences[producer].append(sequence)
    for producer, order in sequences.items():
        expected = list(range(len(order)))
        wrong = next((n for n, (a, b) in enumerate(zip(order, expected, strict=True)) if a != b), None)
        assert wrong is None, f"{place}: {producer}: record {wrong} has sequence {order[wrong]}"


def read_all(client: NodeClient, place: Place) -> list[tuple[str, int]]:
    """(producer, sequence) of every record by offset; offsets are 0, 1, 2 and so on, up to the log end."""
    topic, index = place
    end = log_end(client, place)
    found: list[tuple[str, int]] = []
    while len(found) < end:
        wanted = FetchPartition(partition=index, fetch_offset=len(found), partition_max_bytes=READ_BYTES)
        topics = [FetchTopic(topic=topic, partitions=[wanted])]
        answer = client.request(FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=READ_BYTES, topics=topics), 11)
        data = answer.responses[0].partitions[0]
        assert data.error_code == 0, f"{place}: offset {len(found)}: error {data.error_code}"
        before = len(found)
        content = bytes(data.records)
        for position, head in batches(content):
            assert crc_is_valid(content, head, position), f"{place}: batch at {head.base_offset} has a wrong CRC"
            for record in records(content, head, 1 << 27, position):
                if record.offset < before:
                    continue
                assert record.offset == len(found), f"{place}: offset {record.offset} where {len(found)} is due"
                assert record.value is not None
                producer, sequence, _ = record.value.split(b" ", 2)
                found.append((producer.decode(), int(sequence)))
        assert len(found) > before, f"{place}: nothing at {before} although the log ends at {end}"
    assert len(found) == end
    return found


def log_end(client: NodeClient, place: Place) -> int:
    partition = ListOffsetsPartition(partition_index=place[1], timestamp=-1)
    topics = [ListOffsetsTopic(name=place[0], partitions=[partition])]
    answer = client.request(ListOffsetsRequest(replica_id=-1, topics=topics), 5).topics[0].partitions[0]
    assert answer.error_code == 0, answer
    return int(answer.offset)
