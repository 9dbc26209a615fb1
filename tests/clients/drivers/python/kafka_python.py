"""kafka-python, from 1.4.7 to 3."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

from lines import HEARTBEAT_MS, SESSION_MS, TIMEOUT_S, Reading, row, security, sent, serve

warnings.simplefilter("ignore")

import kafka  # noqa: E402
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition, codec  # noqa: E402

MAJOR = int(kafka.__version__.partition(".")[0])
BEFORE_TRANSACTIONS = {
    "transactions": "transactions came with 2.1",
    "markers": "transactions came with 2.1, and its consumer takes their markers for records",
}
CANNOT = {} if MAJOR >= 3 else BEFORE_TRANSACTIONS
members: list[KafkaConsumer] = []
producers: list[KafkaProducer] = []


def hello(_: dict[str, Any]) -> dict[str, Any]:
    known = [name for name in ("gzip", "snappy", "lz4", "zstd") if getattr(codec, f"has_{name}", bool)()]
    return {"version": kafka.__version__, "codecs": ["none", *known], "cannot": CANNOT}


def produce(question: dict[str, Any]) -> list[int]:
    config = question["config"]
    acks = config.get("acks", "all")
    name = config.get("compression.type", "none")
    more: dict[str, Any] = {}
    if MAJOR >= 3:
        more["enable_idempotence"] = config.get("enable.idempotence", "true") == "true"
        more["bootstrap_timeout_ms"] = int(config.get("max.block.ms", 30_000))
    producer = KafkaProducer(
        bootstrap_servers=question["address"],
        acks=acks if acks == "all" else int(acks),
        compression_type=None if name == "none" else name,
        linger_ms=5,
        max_request_size=4 << 20,
        **more,
        **security(config),
    )
    try:
        return _send(producer, question)
    finally:
        producer.close()


def _send(producer: KafkaProducer, question: dict[str, Any]) -> list[int]:
    futures = [
        producer.send(
            question["topic"], value=value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp
        )
        for partition, timestamp, key, value, headers in sent(question)
    ]
    producer.flush(TIMEOUT_S)
    return [future.get(TIMEOUT_S).offset for future in futures]


def _rows(polled: Any) -> list[list[Any]]:
    return [
        row(record.partition, record.offset, record.timestamp, record.key, record.value, record.headers)
        for record in itertools.chain.from_iterable(polled.values())
    ]


def _assigned_consumer(question: dict[str, Any]) -> KafkaConsumer:
    isolation = question["config"].get("isolation.level")
    return KafkaConsumer(
        bootstrap_servers=question["address"],
        group_id=None,
        enable_auto_commit=False,
        fetch_max_wait_ms=20,
        **({"isolation_level": isolation} if isolation and MAJOR >= 3 else {}),
    )


def consume(question: dict[str, Any]) -> list[Any]:
    reading = Reading(question)
    consumer = _assigned_consumer(question)
    try:
        consumer.assign([TopicPartition(question["topic"], partition) for partition in reading.positions])
        for partition, offset in reading.positions.items():
            consumer.seek(TopicPartition(question["topic"], partition), offset)
        while not reading.is_done():
            for received in _rows(consumer.poll(timeout_ms=100)):
                reading.add(received)
    finally:
        consumer.close()
    return reading.rows


def offset_for_time(question: dict[str, Any]) -> int | None:
    consumer = _assigned_consumer(question)
    try:
        wanted = TopicPartition(question["topic"], question["partition"])
        found = consumer.offsets_for_times({wanted: question["timestamp"]})[wanted]
    finally:
        consumer.close()
    return None if found is None else int(found.offset)


def open_member(question: dict[str, Any]) -> None:
    members.append(
        KafkaConsumer(
            question["topic"],
            bootstrap_servers=question["address"],
            group_id=question["group"],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
    )


def poll(question: dict[str, Any]) -> dict[str, Any]:
    return {"rows": _rows(members[0].poll(timeout_ms=question["timeout_ms"]))}


def commit(_: dict[str, Any]) -> None:
    members[0].commit()


def close(_: dict[str, Any]) -> None:
    members.pop().close(autocommit=False)


def begin(question: dict[str, Any]) -> None:
    if not producers:
        producers.append(KafkaProducer(bootstrap_servers=question["address"], transactional_id=question["id"]))
        producers[0].init_transactions()
    producers[0].begin_transaction()


def send(question: dict[str, Any]) -> None:
    _send(producers[0], question)


def end(question: dict[str, Any]) -> None:
    if question["positions"]:
        member = members[0]
        positions = {one: OffsetAndMetadata(member.position(one), "", -1) for one in member.assignment()}
        producers[0].send_offsets_to_transaction(positions, member.group_metadata())
    if question["commit"]:
        producers[0].commit_transaction()
    else:
        producers[0].abort_transaction()


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
