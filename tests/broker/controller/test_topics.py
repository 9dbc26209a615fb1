from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.broker.controller.topics import (
    NewPartitions,
    NewTopic,
    TopicKey,
    check_collision,
    check_name,
    resolve_deletions,
)
from klamm.broker.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from klamm.protocol.errors import ErrorCode, InvalidTopicException
from tests.broker.controller.helpers import controller, run

BROKERS = [BrokerImage(2), BrokerImage(3)]


@pytest.mark.parametrize("name", ["a", "a" * 249, "A.b-c_9", "...", "-", "__consumer_offsets"])
def test_legal_names(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "a" * 250, "é", "a b", "a\0", "a\n", "\u0661", "\ufffd"]
)
def test_illegal_names(name: str) -> None:
    with pytest.raises(InvalidTopicException):
        check_name(name)


@given(st.text(alphabet="ab._", min_size=1, max_size=4), st.text(alphabet="ab._", min_size=1, max_size=4))
def test_names_collide_when_they_differ_in_dots_and_underscores_only(one: str, other: str) -> None:
    collide = one != other and one.replace(".", "_") == other.replace(".", "_")
    try:
        check_collision(one, [other])
        refused = False
    except InvalidTopicException:
        refused = True
    assert refused == collide


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic("old"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic("with_dot"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, 9), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, 3), ErrorCode.NONE),
        (NewTopic("t", 1, 9, clamp=True), ErrorCode.NONE),
        (NewTopic("t", configs=[("retention.ms", "1")]), ErrorCode.NONE),
        (NewTopic("t", configs=[("retention.ms", None)]), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs=[("retention.ms", "soon")]), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs=[("nonsense", "1")]), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", assignments=[(0, [2, 1]), (1, [3, 2])]), ErrorCode.NONE),
        (NewTopic("t", 2, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", -1, 1, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", assignments=[(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [1]), (0, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [1]), (2, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [1, 1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [7])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [1]), (1, [1, 2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_creation(tmp_path: Path, new: NewTopic, code: int) -> None:
    with controller(tmp_path, others=BROKERS) as made:
        run(made.create_topics([NewTopic("old", 1, 1), NewTopic("with.dot", 1, 1)]))
        result = run(made.create_topics([new]))[0]
        assert (result.error.code if result.error else 0) == code
        assert (new.name in made.image.topics) == (code in (0, ErrorCode.TOPIC_ALREADY_EXISTS))


def test_names_of_one_request_collide_too(tmp_path: Path) -> None:
    with controller(tmp_path) as made:
        results = run(made.create_topics([NewTopic("a.b"), NewTopic("a_b"), NewTopic("a.b")]))
        codes = [result.error.code if result.error else 0 for result in results]
        assert codes == [0, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_ALREADY_EXISTS]


def test_an_assignment_is_taken_as_it_is(tmp_path: Path) -> None:
    with controller(tmp_path, others=BROKERS) as made:
        run(made.create_topics([NewTopic("t", assignments=[(1, [3, 2]), (0, [2, 1])])]))
        assert made.image.topics["t"].partitions == (
            PartitionImage(0, 2, 0, (2, 1), (2, 1)),
            PartitionImage(1, 3, 0, (3, 2), (3, 2)),
        )


def test_the_default_replication_factor_is_clamped_and_an_explicit_one_is_not(tmp_path: Path) -> None:
    with controller(tmp_path, {"default.replication.factor": "3"}) as made:
        results = run(made.create_topics([NewTopic("a"), NewTopic("b", 1, 3)]))
        assert results[0].topic is not None and results[0].topic.partitions[0].replicas == (1,)
        assert results[1].error is not None and results[1].error.code == ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewPartitions("t", 4), ErrorCode.NONE),
        (NewPartitions("t", 4, [[1, 2], [3, 1]]), ErrorCode.NONE),
        (NewPartitions("nobody", 4), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (NewPartitions("t", 2), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", -1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 4, [[1, 2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, [[1, 2], [3, 1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, [[]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, [[1, 9]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 20_000), ErrorCode.POLICY_VIOLATION),
    ],
)
def test_growth(tmp_path: Path, new: NewPartitions, code: int) -> None:
    with controller(tmp_path, others=BROKERS) as made:
        run(made.create_topics([NewTopic("t", 2, 2)]))
        error = run(made.create_partitions([new]))[0]
        assert (error.code if error else 0) == code
        partitions = made.image.topics["t"].partitions
        assert len(partitions) == (2 if code else new.total_count)
        assert all(len(partition.replicas) == 2 for partition in partitions)


def test_what_is_to_be_deleted() -> None:
    topics = [TopicImage(name, name.encode() * 16, ()) for name in "abc"]
    image = MetadataImage().with_topics(topics)
    keys = [
        TopicKey("a"),
        TopicKey(topic_id=b"b" * 16),
        TopicKey("c"),
        TopicKey(topic_id=b"c" * 16),
        TopicKey("a", b"a" * 16),
        TopicKey(),
        TopicKey("nobody"),
    ]
    results = resolve_deletions(image, keys)
    assert [result.error.code if result.error else 0 for result in results] == [
        ErrorCode.NONE,  # the fifth key, with a name and an id, does not count
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,  # c twice, by name and by id
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [result.name for result in results] == ["a", "b", "c", "c", "a", None, "nobody"]
