"""aiokafka, on a loop in a thread of its own: it must run while no question is asked."""

from __future__ import annotations

import asyncio
import itertools
import threading
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

from lines import HEARTBEAT_MS, SESSION_MS, TIMEOUT_S, Answer, Reading, row, security, sent, serve

warnings.simplefilter("ignore")

import aiokafka  # noqa: E402
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition, codec  # noqa: E402
from aiokafka.coordinator.assignors.range import RangePartitionAssignor  # noqa: E402

loop = asyncio.new_event_loop()
members: list[AIOKafkaConsumer] = []
producers: list[AIOKafkaProducer] = []
starting: list[asyncio.Future[Any]] = []


async def hello(_: dict[str, Any]) -> dict[str, Any]:
    known = [name for name in ("gzip", "snappy", "lz4", "zstd") if getattr(codec, f"has_{name}")()]
    return {"version": aiokafka.__version__, "codecs": ["none", *known], "cannot": {}}


async def produce(question: dict[str, Any]) -> list[int]:
    config = question["config"]
    acks = config.get("acks", "all")
    name = config.get("compression.type", "none")
    producer = AIOKafkaProducer(
        bootstrap_servers=question["address"],
        acks=acks if acks == "all" else int(acks),
        compression_type=None if name == "none" else name,
        enable_idempotence=config.get("enable.idempotence", "true") == "true",
        linger_ms=5,
        **security(config),
    )
    try:
        await producer.start()
        return await _send(producer, question)
    finally:
        await producer.stop()


async def _send(producer: AIOKafkaProducer, question: dict[str, Any]) -> list[int]:
    futures = [
        await producer.send(
            question["topic"], value=value, key=key, partition=partition, timestamp_ms=timestamp, headers=headers
        )
        for partition, timestamp, key, value, headers in sent(question)
    ]
    done = await asyncio.wait_for(asyncio.gather(*futures), TIMEOUT_S)
    return [-1 if metadata is None else metadata.offset for metadata in done]


def _rows(polled: Any) -> list[list[Any]]:
    return [
        row(record.partition, record.offset, record.timestamp, record.key, record.value, record.headers)
        for record in itertools.chain.from_iterable(polled.values())
    ]


def _assigned_consumer(question: dict[str, Any]) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        bootstrap_servers=question["address"],
        group_id=None,
        enable_auto_commit=False,
        fetch_max_wait_ms=20,
        isolation_level=question["config"].get("isolation.level", "read_uncommitted"),
    )


async def consume(question: dict[str, Any]) -> list[Any]:
    reading = Reading(question)
    consumer = _assigned_consumer(question)
    await consumer.start()
    try:
        consumer.assign([TopicPartition(question["topic"], partition) for partition in reading.positions])
        for partition, offset in reading.positions.items():
            consumer.seek(TopicPartition(question["topic"], partition), offset)
        while not reading.is_done():
            for received in _rows(await consumer.getmany(timeout_ms=100)):
                reading.add(received)
    finally:
        await consumer.stop()
    return reading.rows


async def offset_for_time(question: dict[str, Any]) -> int | None:
    consumer = _assigned_consumer(question)
    await consumer.start()
    try:
        wanted = TopicPartition(question["topic"], question["partition"])
        found = (await consumer.offsets_for_times({wanted: question["timestamp"]}))[wanted]
    finally:
        await consumer.stop()
    return None if found is None else int(found.offset)


async def open_member(question: dict[str, Any]) -> None:
    """`start` returns when the group has formed, which may need other members: it goes on in the background."""
    member = AIOKafkaConsumer(
        question["topic"],
        bootstrap_servers=question["address"],
        group_id=question["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=(RangePartitionAssignor,),  # what all makes know
    )
    members.append(member)
    starting.append(asyncio.ensure_future(member.start()))


async def poll(question: dict[str, Any]) -> dict[str, Any]:
    await asyncio.wait(starting, timeout=question["timeout_ms"] / 1000)
    if not starting[0].done():
        return {"rows": []}
    await starting[0]
    return {"rows": _rows(await members[0].getmany(timeout_ms=question["timeout_ms"]))}


async def commit(_: dict[str, Any]) -> None:
    await members[0].commit()


async def close(_: dict[str, Any]) -> None:
    await starting.pop()
    await members.pop().stop()


async def begin(question: dict[str, Any]) -> None:
    if not producers:
        producers.append(AIOKafkaProducer(bootstrap_servers=question["address"], transactional_id=question["id"]))
        await producers[0].start()
    await producers[0].begin_transaction()


async def send(question: dict[str, Any]) -> None:
    await _send(producers[0], question)


async def end(question: dict[str, Any]) -> None:
    if question["positions"]:
        member = members[0]
        positions = {partition: await member.position(partition) for partition in member.assignment()}
        await producers[0].send_offsets_to_transaction(positions, question["group"])
    if question["commit"]:
        await producers[0].commit_transaction()
    else:
        await producers[0].abort_transaction()


def on_loop(work: Callable[[dict[str, Any]], Coroutine[Any, Any, Any]]) -> Answer:
    return lambda question: asyncio.run_coroutine_threadsafe(work(question), loop).result()


threading.Thread(target=loop.run_forever, daemon=True).start()
serve(
    {
        "hello": on_loop(hello),
        "produce": on_loop(produce),
        "consume": on_loop(consume),
        "offset_for_time": on_loop(offset_for_time),
        "open": on_loop(open_member),
        "poll": on_loop(poll),
        "commit": on_loop(commit),
        "close": on_loop(close),
        "begin": on_loop(begin),
        "send": on_loop(send),
        "end": on_loop(end),
    }
)
