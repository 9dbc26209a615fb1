from __future__ import annotations

from klamm.broker.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage


def topic(name: str, *, count: int = 2, topic_id: bytes | None = None) -> TopicImage:
    partitions = tuple(PartitionImage(index, 1, 0, (1,), (1,)) for index in range(count))
    return TopicImage(name, topic_id or name.encode().ljust(16, b"\0"), partitions)


def test_a_new_image_leaves_the_old_one_as_it_was_and_shares_the_rest() -> None:
    old = MetadataImage().with_topics([topic("a")], {"a": {"retention.ms": "1"}})
    new = old.with_topics([topic("b")])
    assert set(old.topics) == {"a"} and set(old.topics_by_id) == {old.topics["a"].topic_id}
    assert set(new.topics) == set(new.topic_configs) == {"a", "b"}
    assert new.topics["a"] is old.topics["a"]
    assert new.topic_configs["a"] == {"retention.ms": "1"} and new.topic_configs["b"] == {}


def test_topics_leave_with_their_ids_and_configs() -> None:
    image = MetadataImage().with_topics([topic("a"), topic("b")]).without_topics(["a"])
    assert set(image.topics) == set(image.topic_configs) == {"b"}
    assert set(image.topics_by_id) == {image.topics["b"].topic_id}


def test_a_topic_of_the_same_name_and_another_id_replaces_the_old_id() -> None:
    image = MetadataImage().with_topics([topic("a")])
    image = image.with_topics([topic("a", topic_id=b"y" * 16)])
    assert set(image.topics_by_id) == {b"y" * 16}


def test_a_replica_is_offline_while_its_broker_is_not_registered() -> None:
    image = MetadataImage().with_topics([topic("a")])
    away = image.with_brokers({2: BrokerImage(2)})
    assert [partition.offline for partition in away.topics["a"].partitions] == [(1,), (1,)]
    back = away.with_brokers({1: BrokerImage(1), 2: BrokerImage(2)})
    assert back.topics["a"] == image.topics["a"]
    assert back.topics_by_id[image.topics["a"].topic_id] is back.topics["a"]


def test_a_registration_that_moves_no_replica_keeps_the_topics() -> None:
    image = MetadataImage().with_topics([topic("a")]).with_brokers({1: BrokerImage(1)})
    assert image.with_brokers({1: BrokerImage(1, rack="r")}).topics is image.topics


def test_configs_and_partitions_that_are_not_there_are_empty() -> None:
    image = MetadataImage().with_topics([topic("a")])
    assert image.topic_config("b") == {} and image.broker_config("7") == {}
    assert image.partition("a", 1) is image.topics["a"].partitions[1]
    assert image.partition("a", 2) is None and image.partition("a", -1) is None and image.partition("b", 0) is None
