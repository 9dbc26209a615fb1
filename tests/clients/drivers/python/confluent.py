"""confluent-kafka: librdkafka, as of its wheel. `config` of a question is librdkafka's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from lines import HEARTBEAT_MS, SESSION_MS, TIMEOUT_S, Reading, row, sent, serve

CLASSIC = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
members: list[Consumer] = []
producers: list[Producer] = []
revoked: list[list[int]] = []


def hello(_: dict[str, Any]) -> dict[str, Any]:
    return {
        "version": confluent_kafka.__version__,
        "codecs": CODECS,
        "protocols": ["classic", "consumer"],
        "cannot": {},
    }


def produce(question: dict[str, Any]) -> list[int]:
    producer = Producer({"bootstrap.servers": question["address"], "linger.ms": 5, **question["config"]})
    return _send(producer, question)


def _send(producer: Producer, question: dict[str, Any]) -> list[int]:
    records = sent(question)
    offsets: dict[int, int] = {}
    failed: list[object] = []

    def delivered(index: int, error: object, message: Any) -> None:
        offset = message.offset()
        offsets[index] = -1 if offset is None else offset
        if error is not None:
            failed.append(error)

    for index, (partition, timestamp, key, value, headers) in enumerate(records):
        producer.produce(
            question["topic"],
            value,
            key,
            partition=partition,
            headers=headers,
            on_delivery=lambda error, message, index=index: delivered(index, error, message),
            **({} if timestamp is None else {"timestamp": timestamp}),
        )
    left = producer.flush(TIMEOUT_S)
    assert not left and not failed, f"{left} left, failed: {failed[:3]}"
    return [offsets[index] for index in range(len(records))]


def _row(message: Any) -> list[Any]:
    return row(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        message.headers() or (),
    )


def _assigned_consumer(question: dict[str, Any]) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": question["address"],
            "group.id": "none",  # must be set, is not used
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 20,
            **question["config"],
        }
    )


def consume(question: dict[str, Any]) -> list[Any]:
    reading = Reading(question)
    consumer = _assigned_consumer(question)
    try:
        consumer.assign([TopicPartition(question["topic"], number, at) for number, at in reading.positions.items()])
        while not reading.is_done():
            message = consumer.poll(0.1)
            if message is not None:
                assert message.error() is None, message.error()
                reading.add(_row(message))
    finally:
        consumer.close()
    return reading.rows


def offset_for_time(question: dict[str, Any]) -> int | None:
    consumer = _assigned_consumer(question)
    try:
        wanted = TopicPartition(question["topic"], question["partition"], question["timestamp"])
        (found,) = consumer.offsets_for_times([wanted], TIMEOUT_S)
    finally:
        consumer.close()
    assert found.error is None, found.error
    return found.offset if found.offset >= 0 else None


def open_member(question: dict[str, Any]) -> None:
    member = Consumer(
        {
            "bootstrap.servers": question["address"],
            "group.id": question["group"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **({} if "group.protocol" in question["config"] else CLASSIC),
            **question["config"],
        }
    )

    def on_revoke(_: object, partitions: Iterable[Any]) -> None:
        revoked.append(sorted(partition.partition for partition in partitions))

    member.subscribe([question["topic"]], on_revoke=on_revoke)
    members.append(member)


def poll(question: dict[str, Any]) -> dict[str, Any]:
    rows = []
    for message in members[0].consume(500, question["timeout_ms"] / 1000):
        error = message.error()
        assert error is None or error.retriable() or "TRANSPORT" in error.name() or "DOWN" in error.name(), error
        if error is None:
            rows.append(_row(message))
    given_up, revoked[:] = list(revoked), []
    assigned = [partition.partition for partition in members[0].assignment()]
    return {"rows": rows, "revoked": given_up, "assigned": assigned}


def commit(_: dict[str, Any]) -> None:
    try:
        given_up = members[0].commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._NO_OFFSET:  # nothing was polled
            raise
    else:
        for partition in given_up:
            assert partition.error is None, partition.error


def close(_: dict[str, Any]) -> None:
    members.pop().close()


def begin(question: dict[str, Any]) -> None:
    if not producers:
        producers.append(Producer({"bootstrap.servers": question["address"], "transactional.id": question["id"]}))
        producers[0].init_transactions(TIMEOUT_S)
    producers[0].begin_transaction()


def send(question: dict[str, Any]) -> None:
    _send(producers[0], question)


def end(question: dict[str, Any]) -> None:
    if question["positions"]:
        positions = members[0].position(members[0].assignment())
        producers[0].send_offsets_to_transaction(positions, members[0].consumer_group_metadata(), TIMEOUT_S)
    if question["commit"]:
        producers[0].commit_transaction(TIMEOUT_S)
    else:
        producers[0].abort_transaction(TIMEOUT_S)


serve(
    {
        "hello": hello,
        "produce": produce,
        "consume": consume,
        "offset_for_time": offset_for_time,
        "open": open_member,
        "poll": poll,
        "commit": commit,
        "close": close,
        "begin": begin,
        "send": send,
        "end": end,
    }
)
