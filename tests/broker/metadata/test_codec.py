from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.broker.controller.topics import creation
from klamm.broker.metadata import codec, paths
from klamm.broker.metadata.image import (
    BrokerImage,
    Endpoint,
    FeaturesImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from klamm.broker.metadata.sqlite_store import FILE_NAME, SqliteStore
from klamm.broker.metadata.store import StoreCorrupt
from klamm.protocol.wire import uuid_to_text

TOPIC = TopicImage(
    "flights",
    bytes(range(16)),
    (PartitionImage(0, 1, 4, (1, 2), (1,), (2,)), PartitionImage(1, -1, 0, (2,), (2,), (2,))),
)
BROKER = BrokerImage(1, (Endpoint("PLAINTEXT", "::1", 9092), Endpoint("INSIDE", "h", 9093, "SSL")), "rack-a")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / FILE_NAME)
    for path in paths.SKELETON:
        store.create(path, make_parents=True)
    yield store
    store.close()


def test_what_is_stored_is_loaded_again(store: SqliteStore) -> None:
    store.multi(creation(TOPIC, {"retention.ms": "5"}, controller_epoch=3))
    store.create(paths.broker_id(1), codec.broker_value(BROKER, 17), ephemeral=True)
    store.create(paths.broker_config(""), codec.config_value({"message.max.bytes": "9"}))
    store.create(paths.broker_config("1"), codec.config_value({}))
    store.create(paths.FEATURES, codec.features_value({"metadata.version": 33}))
    store.set(paths.FEATURES, codec.features_value({"metadata.version": 33, "group.version": 1}))
    assert codec.load_image(store, cluster_id="c", controller_id=1) == MetadataImage(
        cluster_id="c",
        controller_id=1,
        brokers={1: BROKER},
        topics={"flights": TOPIC},
        topics_by_id={TOPIC.topic_id: TOPIC},
        topic_configs={"flights": {"retention.ms": "5"}},
        broker_configs={"": {"message.max.bytes": "9"}, "1": {}},
        features=FeaturesImage({"metadata.version": 33, "group.version": 1}, 1),
    )


def test_nodes_have_the_paths_and_the_json_of_kafka(store: SqliteStore) -> None:
    store.multi(creation(TOPIC, {"retention.ms": "5"}, controller_epoch=3))
    topic = paths.from_json("", store.get("/brokers/topics/flights").value)
    assert topic == {
        "version": 3,
        "topic_id": uuid_to_text(TOPIC.topic_id),
        "partitions": {"0": [1, 2], "1": [2]},
        "adding_replicas": {},
        "removing_replicas": {},
    }
    assert paths.from_json("", store.get("/brokers/topics/flights/partitions/0/state").value) == {
        "controller_epoch": 3,
        "leader": 1,
        "version": 1,
        "leader_epoch": 4,
        "isr": [1],
    }
    config = paths.from_json("", store.get("/config/topics/flights").value)
    assert config == {"version": 1, "config": {"retention.ms": "5"}}
    assert paths.broker_config("") == "/config/brokers/<default>"


def test_a_topic_with_a_dash_or_dot_is_not_taken_for_another(store: SqliteStore) -> None:
    names = ["a", "a-b", "a.b", "a0", "partitions"]
    for number, name in enumerate(names):
        partition = PartitionImage(0, 1, number, (1,), (1,))
        store.multi(creation(TopicImage(name, bytes([number]) * 16, (partition,)), {}, 1))
    image = codec.load_image(store)
    assert {name: topic.partitions[0].leader_epoch for name, topic in image.topics.items()} == {
        name: number for number, name in enumerate(names)
    }


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/brokers/topics/flights", b"{"),
        ("/brokers/topics/flights", b"[]"),
        ("/brokers/topics/flights", b'{"partitions":{"0":[1]},"topic_id":"short"}'),
        ("/brokers/topics/flights", b'{"partitions":{"0":[1],"5":[1]},"topic_id":"AAECAwQFBgcICQoLDA0ODw"}'),
        ("/brokers/topics/flights", b'{"partitions":{"0":[1],"1":[1],"2":[1]},"topic_id":"AAECAwQFBgcICQoLDA0ODw"}'),
        ("/brokers/topics/flights", b'{"partitions":{"0":7},"topic_id":"AAECAwQFBgcICQoLDA0ODw"}'),
        ("/brokers/topics/flights/partitions/0/state", b'{"leader":1}'),
        ("/brokers/topics/flights/partitions/0/state", b"\xff"),
        ("/config/topics/flights", b'{"version":1}'),
        ("/config/topics/flights", b'{"version":1,"config":[]}'),
        ("/feature", b'{"features":{"metadata.version":"x"}}'),
        ("/brokers/ids/1", b'{"listener_security_protocol_map":{},"endpoints":["P://h:1"]}'),
    ],
)
def test_a_node_of_another_shape_is_corrupt_and_named(store: SqliteStore, path: str, value: bytes) -> None:
    store.multi(creation(TOPIC, {}, 1))
    store.create("/feature", codec.features_value({}))
    store.create("/brokers/ids/1", codec.broker_value(BROKER, 0))
    store.set(path, value)
    with pytest.raises(StoreCorrupt, match=path.removesuffix("/partitions/0/state")):
        codec.load_image(store)


def test_a_partition_without_state_is_corrupt(store: SqliteStore) -> None:
    store.multi(creation(TOPIC, {}, 1))
    store.delete("/brokers/topics/flights/partitions/1", recursive=True)
    with pytest.raises(StoreCorrupt, match="partitions/1/state is missing"):
        codec.load_image(store)
