"""Validation of topics, and the store operations that create, grow and delete them. Pure: image in, change out.

Errors and their order are those of Apache Kafka 4's `ReplicationControlManager`: name, existence, config, then counts
and assignments. Each topic of a request succeeds or fails alone, except that too many partitions fail them all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from klamm.broker.controller.placement import ReplicaPlacer
from klamm.broker.metadata import codec, paths
from klamm.broker.metadata.image import INTERNAL_TOPICS, NO_LEADER, MetadataImage, PartitionImage, TopicImage
from klamm.broker.metadata.store import Create, Delete, Operation, Set
from klamm.protocol.errors import (
    ErrorCode,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicException,
    KafkaError,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from klamm.protocol.wire import ZERO_UUID

MAX_NAME_LENGTH = 249  # a file name of 255, less "-" and a partition number of up to five digits
MAX_PARTITIONS_PER_REQUEST = 10_000
LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
UNSET = -1

Assignment = tuple[int, Sequence[int]]  # partition index, broker ids: the preferred leader first


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created. -1 means the broker's default; a value of None in ``configs`` is an error."""

    name: str
    partition_count: int = UNSET
    replication_factor: int = UNSET
    assignments: Sequence[Assignment] = ()
    configs: Sequence[tuple[str, str | None]] = ()
    clamp: bool = False  # automatic creation: lower the replication factor to the number of live brokers


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """A topic that is to get ``total_count`` partitions; ``assignments`` are those of the new ones, or None."""

    name: str
    total_count: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class TopicKey:
    """A topic to be deleted, by name or by id."""

    name: str | None = None
    topic_id: bytes = ZERO_UUID


@dataclass(frozen=True, slots=True)
class TopicResult:
    """The result for one topic of a request. ``topic`` and ``configs`` are set when it succeeded."""

    name: str | None
    error: KafkaError | None = None
    topic: TopicImage | None = None
    configs: Mapping[str, str] = field(default_factory=dict)
    topic_id: bytes = ZERO_UUID


@dataclass(frozen=True, slots=True)
class Defaults:
    """Defaults for new topics, from the broker's config."""

    partition_count: int
    replication_factor: int


# -- names ------------------------------------------------------------------------------------------------------


def check_name(name: str) -> None:
    """Raise InvalidTopicException unless a topic may have this name (docs/faults.md, network row 35)."""
    if not name:
        raise InvalidTopicException("a topic name must not be empty")
    if name in (".", ".."):
        raise InvalidTopicException(f"a topic name must not be {name!r}")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopicException(f"a topic name of {len(name)} characters is longer than {MAX_NAME_LENGTH}")
    if LEGAL_NAME.fullmatch(name) is None:
        raise InvalidTopicException(
            f"topic name {name!r} has characters other than ASCII letters, digits, '.', '_', '-'"
        )


def collision_key(name: str) -> str:
    """Return the key under which names collide: names that differ in ``.`` and ``_`` only would share a metric."""
    return name.replace(".", "_")


def check_collision(name: str, existing: Iterable[str]) -> None:
    """Raise InvalidTopicException if the name collides with another that exists (row 36)."""
    if "." not in name and "_" not in name:
        return
    key = collision_key(name)
    for other in existing:
        if len(other) == len(name) and other != name and collision_key(other) == key:
            raise InvalidTopicException(f"topic {name!r} collides with the existing topic {other!r}")


# -- creation ---------------------------------------------------------------------------------------------------


class TopicPlanner:
    """The plan of new topics against one image; it includes topics planned earlier in the same request."""

    def __init__(
        self,
        image: MetadataImage,
        defaults: Defaults,
        *,
        check_config: Callable[[Mapping[str, str]], None],
        new_topic_id: Callable[[], bytes],
        placer: ReplicaPlacer,
        reserved: Iterable[str] = (),
        count: Callable[[int], None] | None = None,
    ) -> None:
        """`count` is called with the number of partitions of each topic; it may refuse, see `quotas.charge`."""
        self._image = image
        self._defaults = defaults
        self._check_config = check_config
        self._new_topic_id = new_topic_id
        self._placer = placer
        self._count = count
        self._names = dict.fromkeys([*image.topics, *reserved])

    def create(self, new: NewTopic) -> TopicResult:
        """Plan one topic. The result has the topic or the error."""
        try:
            check_name(new.name)
            if new.name in self._names:
                raise TopicAlreadyExists(f"topic {new.name!r} already exists")
            check_collision(new.name, self._names)
            configs = self._configs(new)
            replicas = self._replicas(new)
            if self._count is not None:
                self._count(len(replicas))
        except KafkaError as error:
            return TopicResult(new.name, error.without_frames())
        live = self._image.brokers
        partitions = tuple(new_partition(index, assigned, live) for index, assigned in enumerate(replicas))
        topic = TopicImage(new.name, self._new_topic_id(), partitions, new.name in INTERNAL_TOPICS)
        self._names[new.name] = None
        return TopicResult(new.name, None, topic, configs, topic.topic_id)

    def _configs(self, new: NewTopic) -> dict[str, str]:
        configs = {}
        for name, value in new.configs:
            if value is None:
                raise InvalidConfig(f"topic config {name} must have a value")
            configs[name] = value
        if configs:
            self._check_config(configs)
        return configs

    def _replicas(self, new: NewTopic) -> list[tuple[int, ...]]:
        """Return the replicas of every partition, by index."""
        if new.assignments:
            return self._assigned(new)
        factor, count = new.replication_factor, new.partition_count
        if factor < UNSET or factor == 0:
            raise InvalidReplicationFactor("the replication factor must be above 0, or -1 for the default")
        if count < UNSET or count == 0:
            raise InvalidPartitions("the number of partitions must be above 0, or -1 for the default")
        count = self._defaults.partition_count if count == UNSET else count
        live = len(self._image.brokers)
        if factor == UNSET:
            factor = min(self._defaults.replication_factor, live)
        elif new.clamp:
            factor = min(factor, live)
        check_factor(factor, live)
        return self._placer.place(self._image.brokers, count, factor)

    def _assigned(self, new: NewTopic) -> list[tuple[int, ...]]:
        if new.replication_factor != UNSET:
            raise InvalidRequest("with a manual assignment the replication factor must be -1")
        if new.partition_count != UNSET:
            raise InvalidRequest("with a manual assignment the number of partitions must be -1")
        replicas: dict[int, tuple[int, ...]] = {}
        factor: int | None = None
        for index, assigned in new.assignments:
            if index in replicas:
                raise InvalidReplicaAssignment(f"partition {index} is assigned more than once")
            replicas[index] = check_assignment(assigned, self._image, factor)
            factor = len(assigned)
        if sorted(replicas) != list(range(len(replicas))):
            raise InvalidReplicaAssignment("the partitions assigned must be consecutive and start at 0")
        return [replicas[index] for index in range(len(replicas))]


def check_partition_total(count: int) -> None:
    """Raise PolicyViolation if a request would create too many partitions at once (row 37)."""
    if count > MAX_PARTITIONS_PER_REQUEST:
        raise PolicyViolation(f"{count} partitions in one request are more than {MAX_PARTITIONS_PER_REQUEST}")


def check_factor(factor: int, live: int) -> None:
    """Raise InvalidReplicationFactor unless there are enough live brokers."""
    if not 1 <= factor <= live:
        raise InvalidReplicationFactor(
            f"cannot place {max(factor, 1)} replica(s) of each partition: {live} broker(s) are registered"
        )


def check_assignment(assigned: Sequence[int], image: MetadataImage, factor: int | None) -> tuple[int, ...]:
    """Return the replicas of one partition from a manual assignment. Raises InvalidReplicaAssignment."""
    if not assigned:
        raise InvalidReplicaAssignment("a manual assignment has an empty list of replicas")
    for broker in assigned:
        if broker not in image.brokers:
            raise InvalidReplicaAssignment(f"a manual assignment names broker {broker}, which is not registered")
    if len(set(assigned)) != len(assigned):
        raise InvalidReplicaAssignment(f"the manual assignment {list(assigned)} names a broker more than once")
    if factor is not None and len(assigned) != factor:
        raise InvalidReplicaAssignment(
            f"a manual assignment has {len(assigned)} replica(s), the other partitions have {factor}"
        )
    return tuple(assigned)


def new_partition(index: int, replicas: tuple[int, ...], live: Iterable[int]) -> PartitionImage:
    """Return a new partition: the live replicas are in sync, the first of them leads."""
    isr = tuple(replica for replica in replicas if replica in live)
    offline = tuple(replica for replica in replicas if replica not in live)
    return PartitionImage(index, isr[0] if isr else NO_LEADER, 0, replicas, isr or replicas, offline)


def creation(topic: TopicImage, configs: Mapping[str, str], controller_epoch: int) -> list[Operation]:
    """Return the store operations that create the topic."""
    operations: list[Operation] = [
        Create(paths.topic_config(topic.name), codec.config_value(configs)),
        Create(paths.topic(topic.name), codec.topic_value(topic)),
    ]
    operations += _partition_creations(topic.name, topic.partitions, controller_epoch)
    return operations


def _partition_creations(name: str, partitions: Iterable[PartitionImage], controller_epoch: int) -> list[Operation]:
    return [
        Create(
            paths.partition_state(name, partition.index),
            codec.partition_value(partition, controller_epoch),
            make_parents=True,
        )
        for partition in partitions
    ]


# -- growth -----------------------------------------------------------------------------------------------------


def grow(image: MetadataImage, new: NewPartitions, placer: ReplicaPlacer) -> TopicImage:
    """Return the topic with its new partitions. Raises a KafkaError."""
    topic = image.topics.get(new.name)
    if topic is None:
        raise UnknownTopicOrPartition(f"there is no topic {new.name!r}")
    present = len(topic.partitions)
    if new.total_count == present:
        raise InvalidPartitions(f"topic {new.name!r} already has {present} partition(s)")
    if new.total_count < present:
        raise InvalidPartitions(
            f"topic {new.name!r} has {present} partition(s); {new.total_count} would not be an increase"
        )
    added = new.total_count - present
    check_partition_total(added)
    factor = len(topic.partitions[0].replicas)
    if new.assignments is None:
        check_factor(factor, len(image.brokers))
        replicas = placer.place(image.brokers, added, factor)
    else:
        if len(new.assignments) != added:
            raise InvalidReplicaAssignment(f"{added} partition(s) to add, but {len(new.assignments)} assignment(s)")
        replicas = [check_assignment(assigned, image, factor) for assigned in new.assignments]
    partitions = tuple(
        new_partition(present + position, assigned, image.brokers) for position, assigned in enumerate(replicas)
    )
    return replace(topic, partitions=topic.partitions + partitions)


def growth(old: TopicImage, new: TopicImage, controller_epoch: int) -> list[Operation]:
    """Return the store operations that add the partitions of ``new`` that ``old`` lacks."""
    added = new.partitions[len(old.partitions) :]
    operations: list[Operation] = [Set(paths.topic(new.name), codec.topic_value(new))]
    return operations + _partition_creations(new.name, added, controller_epoch)


# -- deletion ---------------------------------------------------------------------------------------------------


def resolve_deletions(image: MetadataImage, keys: Sequence[TopicKey]) -> list[TopicResult]:
    """Find the topics of the keys. A topic that is named twice is not deleted; invalid keys do not count."""
    results = [_resolve(image, key) for key in keys]
    counts = Counter((result.name, result.topic_id) for result in results if _makes_sense(result))
    return [
        _unique(result) if _makes_sense(result) and counts[result.name, result.topic_id] > 1 else result
        for result in results
    ]


def _makes_sense(result: TopicResult) -> bool:
    return result.error is None or result.error.code != ErrorCode.INVALID_REQUEST


def _unique(result: TopicResult) -> TopicResult:
    what = f"topic {result.name!r}" if result.name else "the topic id"
    return TopicResult(result.name, InvalidRequest(f"{what} is named more than once"), topic_id=result.topic_id)


def _resolve(image: MetadataImage, key: TopicKey) -> TopicResult:
    if key.name is not None and key.topic_id != ZERO_UUID:
        return TopicResult(
            key.name, InvalidRequest("a topic is deleted by name or by id, not both"), topic_id=key.topic_id
        )
    if key.name is None and key.topic_id == ZERO_UUID:
        return TopicResult(None, InvalidRequest("neither the name nor the id of a topic is given"))
    if key.name is None:
        topic = image.topics_by_id.get(key.topic_id)
        if topic is None:
            return TopicResult(None, UnknownTopicId("there is no topic with this id"), topic_id=key.topic_id)
    else:
        topic = image.topics.get(key.name)
        if topic is None:
            return TopicResult(key.name, UnknownTopicOrPartition(f"there is no topic {key.name!r}"))
    return TopicResult(topic.name, None, topic, topic_id=topic.topic_id)


def counted(results: Iterable[TopicResult], count: Callable[[int], None]) -> list[TopicResult]:
    """Return the deletions; those that `count` refuses, called with their number of partitions, have its error."""
    return [_counted(result, count) for result in results]


def _counted(result: TopicResult, count: Callable[[int], None]) -> TopicResult:
    if result.topic is not None:
        try:
            count(len(result.topic.partitions))
        except KafkaError as error:
            return TopicResult(result.name, error.without_frames(), topic_id=result.topic_id)
    return result


def deletion_mark(name: str) -> Operation:
    """Return the first step: from here on the topic does not exist, and its deletion is finished even after a crash."""
    return Create(paths.delete_topic(name))


def deletion(name: str, exists: Callable[[str], bool]) -> list[Operation]:
    """Return the last step, after the logs are deleted."""
    operations = [
        Delete(paths.topic(name), recursive=True),
        Delete(paths.topic_config(name)),
        Delete(paths.delete_topic(name)),
    ]
    return [operation for operation in operations if exists(operation.path)]
