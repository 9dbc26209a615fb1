"""A broker filled with one of everything, and a look at all that it serves, for comparing before and after a move.

`fill` needs stock clients only, so it fills Klamm and Apache Kafka alike. `look` asks with our own client and takes the
bytes as they are; two looks are equal when every record, offset, timestamp, header, index answer, config and committed
offset is.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.client.blocking import NodeClient
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm.protocol.messages.metadata import MetadataRequest
from klamm.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from klamm.protocol.records.batch import batches
from tests.clients.kafka_tools import KafkaTools
from tests.clients.samples import CODECS
from tests.support.broker_process import wait_for

FIRST_TIMESTAMP: Final = 1_700_000_000_000
SEGMENT: Final = {"segment.bytes": "1048576", "index.interval.bytes": "2048", "retention.ms": "-1"}
TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    "codecs": SEGMENT,
    "table": SEGMENT | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    "trimmed": SEGMENT,
    "retained": SEGMENT | {"retention.bytes": "1048576"},
    "exact": {"message.timestamp.type": "LogAppendTime", "max.message.bytes": "2000000"},
    "paid": SEGMENT,
    "empty": {},
}
PARTITIONS: Final = {"codecs": 3, "empty": 2}
TRIM_OFFSET: Final = 777
GROUPS: Final = {"readers": 41, "others": 1042}
LATEST, EARLIEST, LARGEST = -1, -2, -3
READ_COMMITTED: Final = 1
BROKER: Final = {
    # few partitions of the internal topics, and another number than the default; quick retention and cleaning
    "offsets.topic.num.partitions": "7",
    "transaction.state.log.num.partitions": "3",
    "log.retention.check.interval.ms": "300",
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "100",
    "log.flush.start.offset.checkpoint.interval.ms": "300",
}


# -- filling ----------------------------------------------------------------------------------------------------


def fill(address: str, *, seed: int = 1) -> Producer:
    """One of everything; `wait_until_settled` then waits for what the broker makes of it.

    Returns the producer of the transaction that is never ended: it is to live as long as the broker does.
    """
    admin = AdminClient({"bootstrap.servers": address})
    topics = [NewTopic(name, PARTITIONS.get(name, 1), config=dict(config)) for name, config in TOPICS.items()]
    for made in admin.create_topics(topics).values():
        made.result(60)
    rng = random.Random(seed)
    for number, codec in enumerate(CODECS):
        with _producer(address, {"compression.type": codec}) as producer:
            _codecs(producer, rng, number)
    with _producer(address) as producer:
        _others(producer, rng)
    admin.delete_records([TopicPartition("trimmed", 0, TRIM_OFFSET)])[TopicPartition("trimmed", 0)].result(60)
    for group, offset in GROUPS.items():
        _commit(address, group, offset)
    return _transactions(address)


@contextmanager
def _producer(address: str, config: Mapping[str, object] | None = None) -> Iterator[Producer]:
    settings = {"enable.idempotence": True, "batch.num.messages": 40, "linger.ms": 5, "queue.buffering.max.messages": 0}
    producer = Producer({"bootstrap.servers": address, "log_level": 0, **settings, **(config or {})})
    yield producer
    assert producer.flush(90) == 0


def _codecs(producer: Producer, rng: random.Random, number: int) -> None:
    """Keys, tombstones, headers with and without values, timestamps that go up and down."""
    for index in range(1500):
        producer.produce(
            "codecs",
            key=None if index % 7 == 0 else b"%d" % index,
            value=None if index % 11 == 0 else rng.randbytes(rng.randrange(700)),
            partition=index % 3,
            headers=[("n", b"%d" % number), ("null", None), ("n", b"")] if index % 3 == 0 else [],
            timestamp=FIRST_TIMESTAMP + number * 10_000_000 + index * 1000 + rng.randrange(-5000, 5000),
        )
        producer.poll(0)


def _others(producer: Producer, rng: random.Random) -> None:
    def send(topic: str, index: int, size: int, key: bytes | None = None, *, gone: bool = False) -> None:
        value = None if gone else rng.randbytes(size)
        producer.produce(topic, value, key, timestamp=FIRST_TIMESTAMP + index * 1000, partition=0)
        producer.poll(0)

    for index in range(5000):
        send("table", index, 600, b"key-%d" % rng.randrange(300), gone=rng.random() < 0.1)
    for index in range(3000):
        send("trimmed", index, 800)
        send("retained", index, 1500)
    for index in range(50):
        producer.produce("exact", b"%d" % index, partition=0)


def _commit(address: str, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "log_level": 0})
    places = [TopicPartition("codecs", index, offset + index, f"note {index}") for index in range(3)]

    def is_committed() -> bool:
        """No: the partitions of __consumer_offsets, which it has created, have no leader yet."""
        try:
            consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE):
                raise
            return False
        return True

    wait_for(is_committed, 60, f"the commit of {group}")
    consumer.close()


def _transactions(address: str) -> Producer:
    """Committed, aborted, over and over, and one that stays open."""
    for ending in ("commit", "abort"):
        producer = _transactional(address, ending)
        for round_ in range(5):
            producer.begin_transaction()
            for index in range(20):
                producer.produce("paid", b"%s %d %d" % (ending.encode(), round_, index), partition=0)
            producer.flush(30)
            producer.commit_transaction(60) if ending == "commit" else producer.abort_transaction(60)
    open_one = _transactional(address, "open")
    open_one.begin_transaction()
    open_one.produce("paid", b"undecided", partition=0)
    assert open_one.flush(30) == 0
    with _producer(address) as plain:
        plain.produce("paid", b"not transactional", partition=0)
    return open_one


def _transactional(address: str, name: str) -> Producer:
    """A producer with the longest transaction timeout: the open transaction is to stay open."""
    settings = {"transactional.id": name, "transaction.timeout.ms": 900_000, "log_level": 0}
    producer = Producer({"bootstrap.servers": address, **settings})
    producer.init_transactions(60)
    return producer


# -- looking ----------------------------------------------------------------------------------------------------


@contextmanager
def connected(address: str) -> Iterator[NodeClient]:
    host, _, port = address.rpartition(":")
    with NodeClient(host, int(port), timeout_s=60) as client:
        yield client


def wait_until_settled(address: str, log_dirs: Sequence[Path]) -> None:
    """Wait until retention, compaction and DeleteRecords are done and written down."""

    def is_in(name: str, beginning: str) -> bool:
        files = [log_dir / name for log_dir in log_dirs]
        return any(beginning in file.read_text() for file in files if file.exists())

    def is_compacted() -> bool:
        """Return whether all but the active segment is compacted. It may have been done while the topic was filled."""
        segments = sorted(file for log_dir in log_dirs for file in (log_dir / "table-0").glob("*.log"))
        return is_in("cleaner-offset-checkpoint", f"table 0 {int(segments[-1].stem)}\n")

    with connected(address) as client:
        wait_for(lambda: offset_of(client, "retained", 0, EARLIEST)[0] > 0, 120, "retention")
    wait_for(is_compacted, 120, "compaction")
    wait_for(lambda: is_in("log-start-offset-checkpoint", f"trimmed 0 {TRIM_OFFSET}"), 120, "the log start")


def look(address: str) -> dict[str, Any]:
    """Everything that is served, by a name for people."""
    found: dict[str, Any] = {}
    with connected(address) as client:
        metadata = client.request(MetadataRequest(topics=None), 12)
        for topic in sorted(metadata.topics, key=lambda topic: str(topic.name)):
            name = topic.name
            found[f"{name}: id"] = topic.topic_id
            found[f"{name}: partitions"] = sorted(each.partition_index for each in topic.partitions)
            found[f"{name}: internal"] = topic.is_internal
            found[f"{name}: settings"] = settings_of(client, name)
            if not topic.is_internal:
                for index in found[f"{name}: partitions"]:
                    found |= {f"{name}-{index}: {what}": value for what, value in _partition(client, name, index)}
        for group in GROUPS:
            found[f"group {group}"] = committed(client, group)
    return found


def _partition(client: NodeClient, topic: str, index: int) -> Iterator[tuple[str, object]]:
    start, _ = offset_of(client, topic, index, EARLIEST)
    yield "start", start
    yield "end", offset_of(client, topic, index, LATEST)[0]
    if topic not in ("exact", "table"):  # Kafka finds nothing where compaction has left an empty first segment
        for step in (-6, 0, 500, 1500, 10_000, 15_000, 30_001, 41_000):
            timestamp = FIRST_TIMESTAMP + step * 1000
            yield f"first from {timestamp}", offset_of(client, topic, index, timestamp)
        if topic not in ("paid", "retained", "trimmed"):
            yield "largest timestamp", offset_of(client, topic, index, LARGEST)
    data = read_all(client, topic, index, start)
    yield "batches", [head[:1] + head[2:] for _, head in batches(data)]
    yield "bytes", hashlib.sha256(data).hexdigest()
    answer = read(client, topic, index, start, isolation_level=READ_COMMITTED)
    yield "last stable offset", answer.last_stable_offset
    yield "aborted", [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or []]


def read(client: NodeClient, topic: str, index: int, offset: int, *, isolation_level: int = 0) -> Any:
    """The answer to a fetch of version 11 without a session."""
    wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=64 << 20)
    request = FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=0, isolation_level=isolation_level, session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )  # fmt: skip
    (answer,) = client.request(request, 11).responses[0].partitions
    assert answer.error_code == 0, f"{topic}-{index} from {offset}: {answer.error_code}"
    return answer


def read_all(client: NodeClient, topic: str, index: int, offset: int) -> bytes:
    """All batches from an offset on, as they are."""
    found = bytearray()
    while data := bytes(read(client, topic, index, offset).records or b""):
        found += data
        offset = max(head.next_offset for _, head in batches(data))
    return bytes(found)


def offset_of(client: NodeClient, topic: str, index: int, timestamp: int) -> tuple[int, int]:
    """Offset and timestamp of the answer to ListOffsets, once the partition has its leader."""
    wanted = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
    answers: list[Any] = []

    def has_leader() -> bool:
        answers[:] = client.request(request, 7).topics[0].partitions
        return answers[0].error_code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE)

    wait_for(has_leader, 120, f"the leader of {topic}-{index}")
    (answer,) = answers
    assert answer.error_code == 0, f"{topic}-{index} at {timestamp}: {answer.error_code}"
    return answer.offset, answer.timestamp


def wait_until_decided(client: NodeClient, topic: str, index: int) -> None:
    """Wait until the last marker is written: that of a commit follows the answer to the producer."""

    def is_decided() -> bool:
        end, _ = offset_of(client, topic, index, LATEST)
        answer = read(client, topic, index, end, isolation_level=READ_COMMITTED)
        return bool(answer.last_stable_offset == answer.high_watermark == end)

    wait_for(is_decided, 30, "the end of all transactions")


def settings_of(client: NodeClient, topic: str) -> dict[str, str | None]:
    """What the topic itself sets."""
    resource = DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=None)
    (result,) = client.request(DescribeConfigsRequest(resources=[resource]), 4).results
    return {config.name: config.value for config in result.configs if config.config_source == 1}


def committed(client: NodeClient, group: str) -> dict[str, tuple[int, str | None]]:
    """What the group has committed, once its coordinator has loaded it."""
    names = [OffsetFetchRequestTopic(name="codecs", partition_indexes=[0, 1, 2])]
    answers: list[Any] = []

    def is_loaded() -> bool:
        answers[:] = [client.request(OffsetFetchRequest(group_id=group, topics=names), 7)]
        return answers[0].error_code not in (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NOT_COORDINATOR,
        )

    wait_for(is_loaded, 120, f"group {group} is loaded")
    (answer,) = answers
    assert answer.error_code == 0, answer
    return {
        f"{topic.name}-{each.partition_index}": (each.committed_offset, each.metadata)
        for topic in answer.topics
        for each in topic.partitions
    }


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the differences, in lines."""
    return [
        f"{name}: {str(before.get(name))[:300]} became {str(after.get(name))[:300]}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def dump(tools: KafkaTools, root: Path, *, at_least: int = 20) -> None:
    """All files of all topics under Kafka's own checks; there are that many logs."""
    files = sorted(file for file in root.rglob("*") if file.is_file() and not file.parent.name.startswith("__cluster"))
    logs = [file for file in files if file.suffix == ".log"]
    indexes = [file for file in files if file.suffix in (".index", ".timeindex")]
    assert len(logs) >= at_least
    tools.dump_log(logs, "--deep-iteration")
    tools.dump_log(indexes, "--verify-index-only")
    tools.dump_log(indexes, "--index-sanity-check")
    tools.dump_log([file for file in files if file.suffix in (".snapshot", ".txnindex")])
