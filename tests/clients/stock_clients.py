"""The stock clients behind one face: `produce` sends a list of records, `consume` reads partitions from the beginning.

None of the consumers has a group: each is assigned its partitions. `config` of `produce` is what the tests vary, in
librdkafka's and Java's common names (`acks`, `enable.idempotence`, `compression.type`); every class translates.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from tests.clients.samples import NAMELESS_HEADERS, NOTHING, NULL_HEADERS, TIMESTAMPS, Received, Sent
from tests.support.java_process import JavaProcess

TIMEOUT_S: Final = 30.0

Ends = Mapping[int, int]
"""End offset by partition: a consumer stops when it has reached all of them."""


class StockClient(Protocol):
    """`produce` returns the offset of each record if the client tells it, and None for a client that does not."""

    cannot_send: frozenset[str]

    def produce(
        self, address: str, topic: str, records: Sequence[Sent], config: Mapping[str, str]
    ) -> list[int] | None: ...

    def consume(self, address: str, topic: str, ends: Ends) -> list[Received]: ...


class Confluent:
    """confluent-kafka: librdkafka, as of its wheel. `config` is for all its producers and consumers."""

    cannot_send: frozenset[str] = frozenset()

    def __init__(self, config: Mapping[str, str] | None = None) -> None:
        self._config = dict(config or {})

    def produce(self, address: str, topic: str, records: Sequence[Sent], config: Mapping[str, str]) -> list[int]:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": address, "linger.ms": 5, **self._config, **config})
        offsets: dict[int, int] = {}
        failed: list[object] = []

        def delivered(index: int, error: object, message: Any) -> None:
            offset = message.offset()
            offsets[index] = -1 if offset is None else offset
            if error is not None:
                failed.append(error)

        for index, record in enumerate(records):
            more = {} if record.timestamp is None else {"timestamp": record.timestamp}
            producer.produce(
                topic,
                record.value,
                record.key,
                partition=record.partition,
                headers=list(record.headers),
                on_delivery=lambda error, message, index=index: delivered(index, error, message),
                **more,
            )
        left = producer.flush(TIMEOUT_S)
        assert not left and not failed, f"{left} left, failed: {failed[:3]}"
        return [offsets[index] for index in range(len(records))]

    def consume(self, address: str, topic: str, ends: Ends) -> list[Received]:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "none",  # must be set, is not used
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 20,
                **self._config,
            }
        )
        received = []
        positions = dict.fromkeys(ends, 0)
        end = time.monotonic() + TIMEOUT_S
        try:
            consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
            while any(positions[partition] < ends[partition] for partition in ends):
                message = consumer.poll(0.1)
                assert time.monotonic() < end, f"timed out at {positions} of {ends}"
                if message is None:
                    continue
                assert message.error() is None, message.error()
                positions[message.partition()] = message.offset() + 1
                received.append(
                    Received(
                        message.partition(),
                        message.offset(),
                        message.key(),
                        message.value(),
                        tuple(message.headers() or ()),
                        message.timestamp()[1],
                    )
                )
        finally:
            consumer.close()
        return received


class KafkaPython:
    """kafka-python 3."""

    cannot_send: frozenset[str] = frozenset({NULL_HEADERS, NOTHING})

    def produce(self, address: str, topic: str, records: Sequence[Sent], config: Mapping[str, str]) -> list[int]:
        from kafka import KafkaProducer

        acks: int | str = config.get("acks", "all")
        codec = config.get("compression.type", "none")
        idempotent = config.get("enable.idempotence", "true") == "true"
        producer = KafkaProducer(
            bootstrap_servers=address,
            acks=acks if acks == "all" else int(acks),
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=5,
            max_request_size=4 << 20,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp,
                )
                for record in records
            ]
            producer.flush(TIMEOUT_S)
            return [future.get(TIMEOUT_S).offset for future in futures]
        finally:
            producer.close()

    def consume(self, address: str, topic: str, ends: Ends) -> list[Received]:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(
            bootstrap_servers=address, group_id=None, enable_auto_commit=False, fetch_max_wait_ms=20
        )
        received = []
        positions = dict.fromkeys(ends, 0)
        end = time.monotonic() + TIMEOUT_S
        try:
            partitions = [TopicPartition(topic, partition) for partition in ends]
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            while any(positions[partition] < ends[partition] for partition in ends):
                assert time.monotonic() < end, f"timed out at {positions} of {ends}"
                for record in itertools.chain.from_iterable(consumer.poll(timeout_ms=100).values()):
                    positions[record.partition] = record.offset + 1
                    received.append(
                        Received(
                            record.partition,
                            record.offset,
                            record.key,
                            record.value,
                            tuple(record.headers),
                            record.timestamp,
                        )
                    )
        finally:
            consumer.close()
        return received


class AioKafka:
    """aiokafka."""

    cannot_send: frozenset[str] = frozenset({NOTHING})

    def produce(self, address: str, topic: str, records: Sequence[Sent], config: Mapping[str, str]) -> list[int]:
        return asyncio.run(self._produce(address, topic, records, config))

    async def _produce(self, address: str, topic: str, records: Sequence[Sent], config: Mapping[str, str]) -> list[int]:
        from aiokafka import AIOKafkaProducer

        acks: int | str = config.get("acks", "all")
        codec = config.get("compression.type", "none")
        producer = AIOKafkaProducer(
            bootstrap_servers=address,
            acks=acks if acks == "all" else int(acks),
            compression_type=None if codec == "none" else codec,
            enable_idempotence=config.get("enable.idempotence", "true") == "true",
            linger_ms=5,
        )
        await producer.start()
        try:
            futures = [
                await producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    partition=record.partition,
                    timestamp_ms=record.timestamp,
                    headers=list(record.headers),
                )
                for record in records
            ]
            done = await asyncio.wait_for(asyncio.gather(*futures), TIMEOUT_S)
        finally:
            await producer.stop()
        return [-1 if metadata is None else metadata.offset for metadata in done]

    def consume(self, address: str, topic: str, ends: Ends) -> list[Received]:
        return asyncio.run(asyncio.wait_for(self._consume(address, topic, ends), TIMEOUT_S))

    async def _consume(self, address: str, topic: str, ends: Ends) -> list[Received]:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        consumer = AIOKafkaConsumer(
            bootstrap_servers=address, group_id=None, enable_auto_commit=False, fetch_max_wait_ms=20
        )
        received = []
        positions = dict.fromkeys(ends, 0)
        await consumer.start()
        try:
            partitions = [TopicPartition(topic, partition) for partition in ends]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            while any(positions[partition] < ends[partition] for partition in ends):
                found = await consumer.getmany(timeout_ms=100)
                for record in itertools.chain.from_iterable(found.values()):
                    positions[record.partition] = record.offset + 1
                    received.append(
                        Received(
                            record.partition,
                            record.offset,
                            record.key,
                            record.value,
                            tuple(record.headers),
                            record.timestamp,
                        )
                    )
        finally:
            await consumer.stop()
        return received


class Kcat:
    """kcat with the librdkafka of Debian. Its headers are those of a whole run, so a run sends a few records only."""

    cannot_send: frozenset[str] = frozenset({TIMESTAMPS, NAMELESS_HEADERS})
    _KEY_END = b"<key>"
    _VALUE_END = b"<end>"

    def produce(self, address: str, topic: str, records: Sequence[Sent], config: Mapping[str, str]) -> None:
        options = [f"-X{name}={value}" for name, value in config.items()]
        by_partition = sorted(records, key=lambda record: record.partition)
        for (partition, headers, null), run in itertools.groupby(by_partition, _kind):
            command = ["kcat", "-P", "-b", address, "-t", topic, "-p", str(partition), *options]
            command += ["-K", self._KEY_END.decode(), "-D", self._VALUE_END.decode(), *(["-Z"] if null else [])]
            for name, value in headers:
                command += ["-H", name if value is None else f"{name}={value.decode()}"]
            _run(command, b"".join(map(self._line, run)))

    def _line(self, record: Sent) -> bytes:
        if record.key is None and record.value is not None:
            return record.value + self._VALUE_END
        return (record.key or b"") + self._KEY_END + (record.value or b"") + self._VALUE_END

    def consume(self, address: str, topic: str, ends: Ends) -> list[Received]:
        return [record for partition, end in ends.items() for record in self._consume(address, topic, partition, end)]

    def _consume(self, address: str, topic: str, partition: int, end: int) -> list[Received]:
        command = ["kcat", "-q", "-C", "-b", address, "-t", topic, "-p", str(partition), "-o", "beginning"]
        command += ["-X", "fetch.wait.max.ms=20", "-c", str(end)]
        # The formatted output keeps bytes as they are, the JSON tells null headers from the text "NULL".
        data = _run([*command, "-f", r"%p %o %T %K %S\n%k%s\n"], b"")
        envelopes = _run([*command, "-J"], b"").decode("utf-8", "replace").splitlines()
        received = []
        at = 0
        for envelope in envelopes:
            newline = data.index(b"\n", at)
            number, offset, timestamp, key_size, value_size = map(int, data[at:newline].split())
            key, at = _take(data, newline + 1, key_size)
            value, at = _take(data, at, value_size)
            assert data[at : at + 1] == b"\n"
            at += 1
            flat = json.loads(envelope, strict=False).get("headers", [])
            headers = tuple(
                (name, None if text is None else text.encode())
                for name, text in zip(flat[::2], flat[1::2], strict=True)
            )
            received.append(Received(number, offset, key, value, headers, timestamp))
        assert at == len(data)
        return received


class Java:
    """kafka-clients 4.4, in one JVM for all its questions."""

    cannot_send: frozenset[str] = frozenset()

    def __init__(self, process: JavaProcess) -> None:
        self._process = process

    def produce(self, address: str, topic: str, records: Sequence[Sent], config: Mapping[str, str]) -> list[int]:
        rows = self._ask(
            {
                "do": "produce",
                "config": {"bootstrap.servers": address, "linger.ms": "5", "max.request.size": str(4 << 20), **config},
                "topic": topic,
                "records": [
                    [
                        record.partition,
                        record.timestamp,
                        _encoded(record.key),
                        _encoded(record.value),
                        [[name, _encoded(value)] for name, value in record.headers],
                    ]
                    for record in records
                ],
            }
        )
        assert [row[0] for row in rows] == [record.partition for record in records]
        return [row[1] for row in rows]

    def consume(self, address: str, topic: str, ends: Ends) -> list[Received]:
        rows = self._ask(
            {
                "do": "consume",
                "config": {"bootstrap.servers": address, "fetch.max.wait.ms": "20", "enable.auto.commit": "false"},
                "topic": topic,
                "ends": {str(partition): end for partition, end in ends.items()},
                "timeout_ms": int(TIMEOUT_S * 1000),
            }
        )
        return [
            Received(
                partition,
                offset,
                _decoded(key),
                _decoded(value),
                tuple((name, _decoded(content)) for name, content in headers),
                timestamp,
            )
            for partition, offset, timestamp, _, key, value, headers in rows
        ]

    def _ask(self, question: dict[str, Any]) -> list[Any]:
        answer = self._process.ask(question)
        assert "ok" in answer, answer
        rows = answer["ok"]
        assert isinstance(rows, list)
        return rows


CLIENTS: Final = ("confluent", "kafka-python", "aiokafka", "kcat", "java")


def _kind(record: Sent) -> tuple[int, tuple[tuple[str, bytes | None], ...], bool]:
    """What one run of kcat has in common. Without -Z empty is empty, with it empty is null."""
    return record.partition, record.headers, record.value is None


def _run(command: Sequence[str], data: bytes) -> bytes:
    done = subprocess.run(command, input=data, capture_output=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{command}\n{done.stderr.decode(errors='replace')[-2000:]}"
    return done.stdout


def _take(data: bytes, at: int, size: int) -> tuple[bytes | None, int]:
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
