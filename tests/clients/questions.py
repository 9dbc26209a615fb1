"""Questions that have one right answer, most of them about what a broker must refuse; for `test_reference.py`.

`questions(ask)` gives (name, thunk) pairs to be asked in order: later ones build on what earlier ones did.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from klamm.protocol.messages import alter_configs, describe_configs, elect_leaders, incremental_alter_configs
from klamm.protocol.messages.alter_configs import AlterConfigsRequest
from klamm.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from klamm.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from klamm.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from klamm.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from klamm.protocol.messages.describe_cluster import DescribeClusterRequest
from klamm.protocol.messages.describe_configs import DescribeConfigsRequest
from klamm.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from klamm.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from klamm.protocol.messages.elect_leaders import ElectLeadersRequest
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from klamm.protocol.messages.init_producer_id import InitProducerIdRequest
from klamm.protocol.messages.list_config_resources import ListConfigResourcesRequest
from klamm.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from klamm.protocol.records.batch import Record, encode_batch
from tests.support.broker_process import wait_for

Ask = Callable[[Any, int], Any]
Question = tuple[str, Callable[[], Any]]

TIMEOUT_MS: Final = 5000
NO_SUCH_ID: Final = bytes(range(16))
EPOCH_MS: Final = 1_700_000_000_000
TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
ONE: Final = {"num_partitions": 1, "replication_factor": 1}
DEFAULTS: Final = {"num_partitions": -1, "replication_factor": -1}


def questions(ask: Ask) -> Iterator[Question]:
    yield from _topics(ask)
    yield from _produce(ask)
    yield from _fetch(ask)
    yield from _offsets(ask)
    yield from _delete_records(ask)
    yield from _configs(ask)
    yield from _cluster(ask)


def _ready(ask: Ask, topics: list[str], *, partition: int = 0) -> bool:
    """Return whether the topics have a leader: with Apache Kafka that takes a moment."""
    wanted = [ListOffsetsPartition(partition_index=partition, timestamp=-1)]
    rows = [ListOffsetsTopic(name=name, partitions=wanted) for name in topics]
    response = ask(ListOffsetsRequest(replica_id=-1, topics=rows), 8)
    return not any(topic.partitions[0].error_code for topic in response.topics)


def _topics(ask: Ask) -> Iterator[Question]:
    def create(*topics: CreatableTopic, validate_only: bool = False) -> Any:
        request = CreateTopicsRequest(topics=list(topics), timeout_ms=TIMEOUT_MS, validate_only=validate_only)
        return ask(request, 7)

    def topic(name: str, **options: Any) -> CreatableTopic:
        return CreatableTopic(name=name, **{**ONE, **options})

    def configured(name: str, **config: str | None) -> CreatableTopic:
        configs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in config.items()]
        return topic(name, configs=configs)

    def assigned(name: str, *replicas: tuple[int, list[int]], **options: int) -> CreatableTopic:
        rows = [CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in replicas]
        return topic(name, **{**DEFAULTS, **options}, assignments=rows)

    yield "create", lambda: create(topic("a"), topic("b", num_partitions=3, replication_factor=-1))
    yield "create with defaults", lambda: create(topic("c", **DEFAULTS), topic("x"))
    yield "create again", lambda: create(topic("a"))
    yield "create twice in one", lambda: create(topic("twice"), topic("twice"))
    names = ("", ".", "..", "a/b", "n" * 250, "n" * 249, "a.b")
    yield "create by names", lambda: create(*[topic(name) for name in names])
    yield "create a collision", lambda: create(topic("a_b"))
    sizes = [("s1", 1, 2), ("s2", 1, 0), ("s3", 0, 1), ("s4", -2, 1)]
    yield "create by sizes", lambda: create(*[topic(n, num_partitions=p, replication_factor=r) for n, p, r in sizes])
    yield "create validate only", lambda: create(topic("validated"), validate_only=True)
    yield "create nothing", create
    yield (
        "create assigned",
        lambda: create(
            assigned("as1", (0, [1])),
            assigned("as2", (0, [1]), num_partitions=1, replication_factor=1),
            assigned("as3", (1, [1])),
            assigned("as4", (0, [9])),
            assigned("as5", (0, [1, 1])),
            assigned("as6", (0, [])),
        ),
    )
    yield (
        "create configured",
        lambda: create(
            configured("c1", retention_ms="-1", cleanup_policy="compact"),
            configured("c2", no_such_key="1"),
            configured("c3", retention_ms="x"),
            configured("c4", retention_ms=None),
            configured("c5", cleanup_policy="sometimes"),
            configured("c6", min_insync_replicas="0"),
            configured("c7", segment_bytes="10"),
            configured("c8", compression_type="zstd", compression_zstd_level="99"),
        ),
    )
    yield (
        "create for produce",
        lambda: create(
            configured("compacted", cleanup_policy="compact"),
            configured("in time", message_timestamp_before_max_ms="1000"),
            configured("in-time", message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000"),
            configured("two-in-sync", min_insync_replicas="2"),
            configured("append-time", message_timestamp_type="LogAppendTime"),
        ),
    )

    made = ["a", "b", "c", "x", "as1", "c1", "compacted", "in-time", "two-in-sync", "append-time"]
    yield "all are ready", lambda: wait_for(lambda: _ready(ask, made), what="topics are ready")

    def delete(*topics: DeleteTopicState) -> Any:
        return ask(DeleteTopicsRequest(topics=list(topics), timeout_ms=TIMEOUT_MS), 6)

    def named(name: str | None, topic_id: bytes = bytes(16)) -> DeleteTopicState:
        return DeleteTopicState(name=name, topic_id=topic_id)

    yield "delete", lambda: delete(named("x"), named("no-such"))
    yield "delete the empty name", lambda: delete(named(""))
    yield "delete twice in one", lambda: delete(named("c1"), named("c1"))
    yield "delete by unknown id", lambda: delete(named(None, NO_SUCH_ID))
    yield "delete by name and id", lambda: delete(named("a", NO_SUCH_ID))
    yield "delete by neither", lambda: delete(named(None))
    yield "delete v1", lambda: ask(DeleteTopicsRequest(topic_names=["no-such"], timeout_ms=TIMEOUT_MS), 1)

    def add(*topics: tuple[Any, ...], validate_only: bool = False) -> Any:
        rows = [
            CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=[CreatePartitionsAssignment(broker_ids=ids) for ids in replicas] if replicas else None,
            )
            for name, count, *replicas in topics
        ]
        return ask(CreatePartitionsRequest(topics=rows, timeout_ms=TIMEOUT_MS, validate_only=validate_only), 3)

    yield "add partitions", lambda: add(("b", 4), ("no-such", 2), ("a", 1), ("c", 0))
    yield "take partitions", lambda: add(("b", 2))
    yield "a negative count of partitions", lambda: add(("b", -1))
    yield "add partitions twice in one", lambda: add(("b", 6), ("b", 7))
    yield "add assigned", lambda: add(("as1", 2, [1]))
    yield "add too few assigned", lambda: add(("as1", 4, [1]))
    yield "add assigned to nobody", lambda: add(("as1", 3, [7]))
    yield "add validate only", lambda: add(("a", 5), validate_only=True)

    yield (
        "more are ready",
        lambda: wait_for(lambda: _ready(ask, ["b", "as1"], partition=1), what="partitions are ready"),
    )

    def metadata(version: int, *topics: MetadataRequestTopic) -> Any:
        return ask(MetadataRequest(topics=list(topics), allow_auto_topic_creation=False), version).topics

    wanted = [MetadataRequestTopic(name=name) for name in ("a", "a/b", "no-such")]
    yield "metadata", lambda: metadata(9, *wanted)
    yield "metadata by name and id", lambda: metadata(12, MetadataRequestTopic(name="a", topic_id=NO_SUCH_ID))

    def describe(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit
        )
        if cursor is not None:
            request.cursor = Cursor(topic_name=cursor[0], partition_index=cursor[1])
        return ask(request, 0)

    yield "describe partitions", lambda: describe("b", "a", "no-such", "a/")
    yield "describe up to a limit", lambda: describe("b", "a", limit=2)
    yield "describe from a cursor", lambda: describe("b", "a", limit=2, cursor=("b", 1))
    yield "describe from a negative cursor", lambda: describe("b", limit=2, cursor=("b", -1))
    yield "describe nothing", lambda: describe("b", limit=0)


def _produce(ask: Ask) -> Iterator[Question]:
    def produce(
        records: bytes | None, *, acks: int = -1, topic: str = "a", index: int = 0, again: bytes | None = None
    ) -> Any:
        data = [PartitionProduceData(index=index, records=records)]
        request = ProduceRequest(
            acks=acks, timeout_ms=TIMEOUT_MS, topic_data=[TopicProduceData(name=topic, partition_data=data)]
        )
        return ask(request, 9)

    def batch(**options: Any) -> bytes:
        return bytes(encode_batch([Record(0, EPOCH_MS, b"k", b"v"), Record(1, EPOCH_MS + 1, b"l", b"w")], **options))

    def idempotent(producer_id: int, epoch: int, sequence: int, **options: Any) -> bytes:
        return batch(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **options)

    now_ms = int(time.time() * 1000)
    yield "produce", lambda: produce(batch())
    for acks in (2, -2):
        yield f"produce acks={acks}", lambda acks=acks: produce(batch(), acks=acks)
    yield "produce to no topic", lambda: produce(batch(), topic="no-such")
    for index in (7, -1):
        yield f"produce to partition {index}", lambda index=index: produce(batch(), index=index)
    yield "produce nothing", lambda: produce(b"")
    yield "produce garbage", lambda: produce(b"x" * 100)
    yield "produce a bad crc", lambda: produce(batch()[:-1] + b"z")
    yield "produce two batches", lambda: produce(batch() + batch())
    yield "produce a short batch", lambda: produce(batch()[:-5])
    yield "produce a control batch", lambda: produce(batch(control=True))
    yield "produce any first sequence", lambda: produce(idempotent(77, 0, 5))
    for name, sequence in (("first", 0), ("same", 0), ("next", 2), ("gap", 9)):
        yield f"produce {name} sequence", lambda sequence=sequence: produce(idempotent(78, 0, sequence))
    yield "produce a newer epoch", lambda: produce(idempotent(78, 2, 0))
    yield "produce an older epoch", lambda: produce(idempotent(78, 1, 0))
    yield "produce a newer epoch in the middle", lambda: produce(idempotent(78, 3, 4))
    yield "produce transactional", lambda: produce(idempotent(79, 0, 0, transactional=True))
    yield "produce too much", lambda: produce(bytes(encode_batch([Record(0, now_ms, None, b"x" * 1_100_000)])))
    keys = [Record(index, now_ms, key, b"v") for index, key in enumerate((None, b"k", None))]
    yield "produce without key to a compacted topic", lambda: produce(bytes(encode_batch(keys)), topic="compacted")
    times = [Record(index, now_ms + delta, b"k", b"v") for index, delta in enumerate((-(10**9), 0, 10**9))]
    yield "produce out of time", lambda: produce(bytes(encode_batch(times)), topic="in-time")
    for acks in (-1, 1):
        yield (
            f"produce with few replicas, acks={acks}",
            lambda acks=acks: produce(batch(), topic="two-in-sync", acks=acks),
        )
    parts = [PartitionProduceData(index=index, records=batch()) for index in (1, 0, 9)]
    yield (
        "produce to several",
        lambda: ask(
            ProduceRequest(
                acks=1,
                timeout_ms=TIMEOUT_MS,
                topic_data=[
                    TopicProduceData(name="b", partition_data=parts),
                    TopicProduceData(name="no-such", partition_data=parts[:1]),
                ],
            ),
            9,
        ),
    )
    yield (
        "produce to an unknown id",
        lambda: ask(
            ProduceRequest(
                acks=1,
                timeout_ms=TIMEOUT_MS,
                topic_data=[TopicProduceData(topic_id=NO_SUCH_ID, partition_data=parts[:1])],
            ),
            13,
        ),
    )


def _fetch(ask: Ask) -> Iterator[Question]:
    def fetch(offset: int = 0, partition: int = 0, topic: str = "a", limit: int = 1 << 20, **more: Any) -> Any:
        options = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "session_epoch": -1}
        epochs = {key: more.pop(key) for key in ("current_leader_epoch", "last_fetched_epoch") if key in more}
        wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=limit, **epochs)
        request = FetchRequest(topics=[FetchTopic(topic=topic, partitions=[wanted])], **{**options, **more})
        return ask(request, 12)

    yield "fetch", fetch
    for offset in (-5, 500, 10):
        yield f"fetch from {offset}", lambda offset=offset: fetch(offset)
    yield "fetch from no topic", lambda: fetch(topic="no-such")
    yield "fetch from no partition", lambda: fetch(partition=9)
    yield "fetch with the last epoch", lambda: fetch(last_fetched_epoch=0)
    yield "fetch with a newer epoch", lambda: fetch(current_leader_epoch=5)
    yield "fetch with a newer last epoch", lambda: fetch(current_leader_epoch=0, last_fetched_epoch=5)
    yield "fetch with partition_max_bytes=0", lambda: fetch(limit=0)
    yield "fetch with max_bytes=0", lambda: fetch(max_bytes=0)
    yield "fetch committed", lambda: fetch(isolation_level=1)
    yield "fetch in an unknown session", lambda: fetch(session_epoch=3, session_id=12345)
    yield "fetch and close an unknown session", lambda: fetch(session_epoch=-1, session_id=12345)
    yield "fetch as a debugging consumer", lambda: fetch(replica_id=-2)

    def by_id(session_epoch: int) -> Any:
        topics = [FetchTopic(topic_id=NO_SUCH_ID, partitions=[FetchPartition(partition_max_bytes=1000)])]
        return ask(FetchRequest(max_wait_ms=0, session_epoch=session_epoch, topics=topics), 13)

    yield "fetch by unknown id", lambda: by_id(-1)
    yield "fetch by unknown id in a session", lambda: by_id(0).responses


def _offsets(ask: Ask) -> Iterator[Question]:
    def offset(timestamp: int, topic: str = "a", partition: int = 0, *, count: int = 1, **more: Any) -> Any:
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, **more)
        topics = [ListOffsetsTopic(name=topic, partitions=[wanted] * count)]
        return ask(ListOffsetsRequest(replica_id=-1, topics=topics), 8)

    for timestamp in (-1, -2, -3, -4, -5, -7, -100, 0, EPOCH_MS + 1, 2**62):
        yield f"offset at {timestamp}", lambda timestamp=timestamp: offset(timestamp)
    yield "offset of no topic", lambda: offset(-1, "no-such")
    yield "offset of no partition", lambda: offset(-1, partition=9)
    yield "offset with a newer epoch", lambda: offset(-1, current_leader_epoch=4)
    yield "offset at the largest time of nothing", lambda: offset(-3, "c")
    yield "offset asked for twice", lambda: offset(-1, count=2)

    def end(epoch: int, topic: str = "a", current: int = -1) -> Any:
        wanted = OffsetForLeaderPartition(current_leader_epoch=current, leader_epoch=epoch)
        topics = [OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
        return ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), 4)

    for epoch in (-1, 0, 1, 5):
        yield f"end of epoch {epoch}", lambda epoch=epoch: end(epoch)
    yield "end of the epoch of nothing", lambda: end(0, "c")
    yield "end of an epoch of no topic", lambda: end(0, "no-such")
    yield "end of an epoch with a newer one", lambda: end(0, current=6)


def _delete_records(ask: Ask) -> Iterator[Question]:
    def delete(offset: int, topic: str = "a", partition: int = 0) -> Any:
        wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
        topics = [DeleteRecordsTopic(name=topic, partitions=[wanted])]
        return ask(DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS), 2)

    for offset in (3, 1, 3, 900, -2):
        yield f"delete records before {offset}", lambda offset=offset: delete(offset)
    yield "delete records of no topic", lambda: delete(1, "no-such")
    yield "delete records of no partition", lambda: delete(1, partition=4)
    yield "delete records of a compacted topic", lambda: delete(1, "compacted")
    yield from (("after the deletion: " + name, thunk) for name, thunk in _offsets(ask))
    yield "delete all records", lambda: delete(-1)
    yield from (("after all deletions: " + name, thunk) for name, thunk in [*_offsets(ask), *_fetch(ask)])


def _configs(ask: Ask) -> Iterator[Question]:
    def describe(*resources: tuple[int, str], keys: list[str] | None = None) -> Any:
        rows = [
            describe_configs.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for kind, name in resources
        ]
        return ask(DescribeConfigsRequest(resources=rows, include_synonyms=True), 4)

    yield "describe a topic", lambda: describe((TOPIC, "compacted"), (TOPIC, "append-time"))
    unknown = [(TOPIC, "no-such"), (TOPIC, "a/b"), (BROKER, "7"), (BROKER, "x"), (99, "x"), (0, "x")]
    for kind, name in [*unknown, (BROKER_LOGGER, "x"), (BROKER_LOGGER, "7")]:
        yield f"describe {kind} {name}", lambda kind=kind, name=name: describe((kind, name))
    yield "describe keys", lambda: describe((TOPIC, "a"), keys=["retention.ms", "no.such"])

    def alter(kind: int, name: str, *changes: tuple[str, int, str | None], count: int = 1) -> Any:
        configs = [
            incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ]
        resource = incremental_alter_configs.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=configs
        )
        return ask(IncrementalAlterConfigsRequest(resources=[resource] * count), 1)

    policy, retention = "cleanup.policy", "retention.ms"
    for key, operation, value in [
        (retention, SET, "7"),
        (policy, APPEND, "compact"),
        (policy, APPEND, "compact"),
        (retention, APPEND, "7"),
        (policy, SUBTRACT, "delete"),
        ("no.such", SET, "7"),
        (retention, SET, None),
        (retention, SET, "soon"),
        (policy, SET, "sometimes"),
        ("segment.ms", DELETE, None),
        ("segment.bytes", SET, "10"),
    ]:
        yield (
            f"alter {key} {operation} {value}",
            lambda key=key, operation=operation, value=value: alter(TOPIC, "a", (key, operation, value)),
        )
    yield "alter a key twice", lambda: alter(TOPIC, "a", (retention, SET, "7"), (retention, SET, "8"))
    yield "alter a topic twice", lambda: alter(TOPIC, "a", ("segment.ms", DELETE, None), count=2)
    for kind, name, key, value in [
        (TOPIC, "no-such", retention, "7"),
        (TOPIC, "", retention, "7"),
        (BROKER, "1", "log.dirs", "/x"),
        (BROKER, "1", "my.own", "x"),
        (BROKER, "1", "message.max.bytes", "2000000"),
        (BROKER, "", "listeners", "PLAINTEXT://:1"),
        (BROKER, "", "log.cleaner.threads", "x"),
        (BROKER, "1", "replica.alter.log.dirs.io.max.bytes.per.second", "3MB"),
        (BROKER, "1", "replica.alter.log.dirs.io.max.bytes.per.second", "-1"),
        (BROKER, "7", "log.cleaner.threads", "2"),
        (BROKER, "x", "log.cleaner.threads", "2"),
        (BROKER_LOGGER, "1", "no.such.logger", "INFO"),
        (BROKER_LOGGER, "1", "root", "LOUD"),
        (77, "1", "root", "INFO"),
    ]:
        yield (
            f"alter {kind} {name} {key}",
            lambda kind=kind, name=name, key=key, value=value: alter(kind, name, (key, SET, value)),
        )
    yield "delete the level of the root logger", lambda: alter(BROKER_LOGGER, "1", ("root", DELETE, None))
    yield "append to a level", lambda: alter(BROKER_LOGGER, "1", ("root", APPEND, "INFO"))
    yield "describe altered keys", lambda: describe((TOPIC, "a"))

    def replace(kind: int, name: str, **configs: str | None) -> Any:
        rows = [
            alter_configs.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ]
        resource = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
        return ask(AlterConfigsRequest(resources=[resource]), 2)

    yield "replace the configs", lambda: replace(TOPIC, "a", segment_ms="100000")
    yield "replace the configs by null", lambda: replace(TOPIC, "a", segment_ms=None)
    yield "replace the configs of no topic", lambda: replace(TOPIC, "no-such", segment_ms="1")
    yield "replace the levels", lambda: replace(BROKER_LOGGER, "1", root="INFO")
    yield "describe replaced keys", lambda: describe((TOPIC, "a"))
    for kinds in ([TOPIC], [BROKER], [77]):
        yield f"list resources {kinds}", lambda kinds=kinds: ask(ListConfigResourcesRequest(resource_types=kinds), 1)


def _cluster(ask: Ask) -> Iterator[Question]:
    for endpoint in (1, 2, 9):
        yield f"cluster {endpoint}", lambda endpoint=endpoint: ask(DescribeClusterRequest(endpoint_type=endpoint), 1)
    yield (
        "log dirs",
        lambda: ask(
            DescribeLogDirsRequest(
                topics=[
                    DescribableLogDirTopic(topic="b", partitions=[0, 9]),
                    DescribableLogDirTopic(topic="no-such", partitions=[0]),
                ]
            ),
            4,
        ),
    )

    def elect(kind: int, **topics: list[int]) -> Any:
        wanted = [elect_leaders.TopicPartitions(topic=name, partitions=parts) for name, parts in topics.items()]
        return ask(ElectLeadersRequest(election_type=kind, topic_partitions=wanted, timeout_ms=TIMEOUT_MS), 2)

    yield "elect preferred", lambda: elect(0, b=[0, 9], nowhere=[0])
    yield "elect unclean", lambda: elect(1, b=[0])

    def feature(name: str, level: int, kind: int) -> Any:
        update = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        return ask(UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=[update]), 1)

    yield "an unknown feature", lambda: feature("no.such", 1, 1)
    yield "a feature in an unknown way", lambda: feature("metadata.version", 20, 9)
    yield "a lower feature without downgrade", lambda: feature("metadata.version", 20, 1)
    yield "a feature too high", lambda: feature("metadata.version", 2000, 1)

    def producer(transactional_id: str | None, producer_id: int, epoch: int, timeout_ms: int = 1000) -> Any:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        return ask(request, 4)

    yield "a producer id without epoch", lambda: producer(None, 5, -1)
    yield "a producer with an empty transactional id", lambda: producer("", -1, -1)
    yield "a producer with a long timeout", lambda: producer("t", -1, -1, 10**9)
