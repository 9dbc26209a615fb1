from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from klamm.broker.controller.configs import ConfigUpdate, KeyUpdate, Op, ResourceType
from klamm.broker.controller.controller import PRODUCER_ID_BLOCK_SIZE
from klamm.broker.controller.features import FeatureUpdate
from klamm.broker.controller.startup import WrongCluster
from klamm.broker.controller.topics import NewPartitions, NewTopic, TopicKey
from klamm.broker.metadata import paths
from klamm.broker.metadata.image import BrokerImage, Endpoint, MetadataImage
from klamm.broker.metadata.sqlite_store import FILE_NAME, SqliteStore
from klamm.protocol.errors import ErrorCode, InvalidUpdateVersion, KafkaStorageError, TopicDeletionDisabled
from klamm.protocol.wire import uuid_from_text
from tests.broker.controller.helpers import controller, run, store_of, stored


def test_a_new_cluster_has_an_id_features_and_a_registered_broker(tmp_path: Path) -> None:
    with controller(tmp_path) as made:
        image = made.image
        assert len(uuid_from_text(image.cluster_id)) == 16
        assert image.controller_id == 1 and set(image.brokers) == {1}
        assert (
            image.features.finalized == {"metadata.version": 33, "group.version": 1, "transaction.version": 2}
            and image.features.epoch == 0
        )
        assert image.broker_configs == {"": {}, "1": {}}
    with controller(tmp_path) as made:
        assert made.image == image
        assert made.controller_epoch == 2


def test_a_given_cluster_id_is_taken_and_another_one_refused(tmp_path: Path) -> None:
    given = "AAECAwQFBgcICQoLDA0ODw"
    with controller(tmp_path, cluster_id=given) as made:
        assert made.image.cluster_id == given
    store = SqliteStore(tmp_path / FILE_NAME)
    store.close()
    with pytest.raises(WrongCluster, match=given), controller(tmp_path, cluster_id="another"):
        pass


def test_the_registration_is_ephemeral_and_can_be_replaced(tmp_path: Path) -> None:
    with controller(tmp_path) as made:
        broker = BrokerImage(1, (Endpoint("PLAINTEXT", "127.0.0.1", 40001),))
        run(made.register(broker))
        assert made.image.brokers == {1: broker}
        assert store_of(made).children(paths.BROKER_IDS) == ["1"]
    store = SqliteStore(tmp_path / FILE_NAME)
    assert store.children(paths.BROKER_IDS) == [] and not store.exists(paths.CONTROLLER)
    store.close()


def test_created_topics_are_durable_before_the_call_returns(tmp_path: Path) -> None:
    with controller(tmp_path) as made:
        results = run(
            made.create_topics([NewTopic("a", 3, configs=[("retention.ms", "5")]), NewTopic("b"), NewTopic("a/b")])
        )
        assert [result.error.code if result.error else 0 for result in results] == [
            0,
            0,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]
        image = made.image
        assert len(image.topics["a"].partitions) == 3 and len(image.topics["b"].partitions) == 1
        assert results[0].topic is image.topics["a"] is image.topics_by_id[results[0].topic_id]
        assert image.topic_configs == {"a": {"retention.ms": "5"}, "b": {}}
    assert stored(tmp_path).topics == image.topics


def test_validate_only_changes_nothing(tmp_path: Path) -> None:
    with controller(tmp_path) as made:
        before = made.image
        results = run(made.create_topics([NewTopic("a", 3)], validate_only=True))
        assert results[0].error is None and results[0].topic is not None
        assert made.image is before and not store_of(made).exists(paths.topic("a"))
        run(made.create_topics([NewTopic("a")]))
        assert run(made.create_partitions([NewPartitions("a", 5)], validate_only=True)) == [None]
        assert len(made.image.topics["a"].partitions) == 1


def test_too_many_partitions_fail_the_whole_request(tmp_path: Path) -> None:
    with controller(tmp_path) as made:
        results = run(made.create_topics([NewTopic("small"), NewTopic("large", 1_000_000)]))
        assert [result.error.code for result in results if result.error] == [ErrorCode.POLICY_VIOLATION] * 2
        run(made.create_topics([NewTopic("small")]))
        errors = run(made.create_partitions([NewPartitions("small", 1_000_000)]))
        assert errors[0] is not None and errors[0].code == ErrorCode.POLICY_VIOLATION
        assert len(made.image.topics["small"].partitions) == 1


def test_partitions_are_added_after_the_existing_ones(tmp_path: Path) -> None:
    with controller(tmp_path) as made:
        run(made.create_topics([NewTopic("a", 2), NewTopic("b")]))
        old = made.image.topics["a"]
        errors = run(made.create_partitions([NewPartitions("a", 4), NewPartitions("nobody", 4)]))
        assert [error.code if error else 0 for error in errors] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        new = made.image.topics["a"]
        assert new.partitions[:2] == old.partitions and [p.index for p in new.partitions] == [0, 1, 2, 3]
        assert new.topic_id == old.topic_id
    assert stored(tmp_path).topics["a"] == new


def test_listeners_are_called_in_order(tmp_path: Path) -> None:
    seen: list[str] = []

    async def main() -> None:
        with controller(tmp_path) as made:

            async def prepare(old: MetadataImage, new: MetadataImage) -> None:
                assert store_of(made).exists(paths.topic("a")) and made.image is old
                await asyncio.sleep(0)
                seen.append("prepare")

            def on_image(old: MetadataImage, new: MetadataImage) -> None:
                assert "a" not in old.topics and made.image is new and "a" in new.topics
                seen.append("on_image")

            async def settle() -> None:
                seen.append("settle")

            made.add_listener(on_image, prepare, settle)
            await made.create_topics([NewTopic("a")])
            seen.append("returned")

    run(main())
    assert seen == ["prepare", "on_image", "settle", "returned"]


def test_a_listener_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    seen = []

    def fail(old: MetadataImage, new: MetadataImage) -> None:
        raise RuntimeError("on purpose")

    with controller(tmp_path) as made:
        made.add_listener(fail)
        made.add_listener(lambda old, new: seen.append(set(new.topics)))
        run(made.create_topics([NewTopic("a")]))
    assert seen == [{"a"}]


def test_a_change_that_cannot_be_stored_is_not_made(tmp_path: Path) -> None:
    with controller(tmp_path) as made:
        before = made.image
        store_of(made).arm(0)
        with pytest.raises(KafkaStorageError, match="no space"):
            run(made.create_topics([NewTopic("a")]))
        assert made.image is before
        assert run(made.create_topics([NewTopic("a")]))[0].error is None


def test_a_caller_that_goes_away_does_not_stop_a_change_half_way(tmp_path: Path) -> None:
    async def main() -> None:
        with controller(tmp_path) as made:
            call = asyncio.create_task(made.create_topics([NewTopic("a")]))
            await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            await made.create_topics([NewTopic("b")])
            assert set(made.image.topics) == {"a", "b"}

    run(main())
    assert set(stored(tmp_path).topics) == {"a", "b"}


def test_concurrent_creations_of_one_topic_make_it_once(tmp_path: Path) -> None:
    async def main() -> None:
        with controller(tmp_path) as made:
            results = await asyncio.gather(*(made.create_topics([NewTopic("a")]) for _ in range(5)))
            codes = [result[0].error.code if result[0].error else 0 for result in results]
            assert sorted(codes) == [0] + [ErrorCode.TOPIC_ALREADY_EXISTS] * 4

    run(main())


# -- automatic creation -----------------------------------------------------------------------------------------


def test_automatic_creation_shares_the_work(tmp_path: Path) -> None:
    async def main() -> None:
        with controller(tmp_path, {"num.partitions": "4", "default.replication.factor": "3"}) as made:
            store_of(made).arm()
            errors = await asyncio.gather(*(made.auto_create(["a", f"t{number}", "a/b"]) for number in range(50)))
            assert all(set(error) == {"a/b"} for error in errors)
            assert errors[0]["a/b"].code == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert set(made.image.topics) == {"a", *(f"t{number}" for number in range(50))}
            assert len(made.image.topics["a"].partitions) == 4
            assert made.image.topics["a"].partitions[0].replicas == (1,)
            assert store_of(made).count <= 2
            assert await made.auto_create(["a"]) == {}

    run(main())


def test_automatic_creation_can_be_turned_off(tmp_path: Path) -> None:
    with controller(tmp_path, {"auto.create.topics.enable": "false"}) as made:
        assert run(made.auto_create(["a"])) == {}
        assert not made.image.topics


def test_internal_topics_are_made_by_their_own_keys(tmp_path: Path) -> None:
    with controller(tmp_path, {"offsets.topic.num.partitions": "7"}) as made:
        assert run(made.auto_create(["__consumer_offsets"])) == {}
        topic = made.image.topics["__consumer_offsets"]
        assert topic.internal and len(topic.partitions) == 7
        assert made.image.topic_config("__consumer_offsets")["cleanup.policy"] == "compact"


# -- deletion ---------------------------------------------------------------------------------------------------


def test_a_deleted_topic_is_gone_for_good_and_its_name_is_free(tmp_path: Path) -> None:
    async def main() -> None:
        with controller(tmp_path) as made:
            first = (await made.create_topics([NewTopic("a", 2), NewTopic("b")]))[0]
            results = await made.delete_topics([TopicKey("a"), TopicKey("nobody"), TopicKey(topic_id=b"x" * 16)])
            codes = [result.error.code if result.error else 0 for result in results]
            assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID]
            assert results[0].topic_id == first.topic_id
            assert set(made.image.topics) == {"b"} and len(made.image.topics_by_id) == 1
            again = (await made.create_topics([NewTopic("a")]))[0]
            assert again.error is None and again.topic_id != first.topic_id
            await made.delete_topics([TopicKey(topic_id=again.topic_id)])
            store = store_of(made)
            assert store.children(paths.TOPICS) == store.children(paths.TOPIC_CONFIGS) == ["b"]
            assert store.children(paths.DELETE_TOPICS) == []

    run(main())


def test_deletion_can_be_turned_off(tmp_path: Path) -> None:
    with controller(tmp_path, {"delete.topic.enable": "false"}) as made, pytest.raises(TopicDeletionDisabled):
        run(made.delete_topics([TopicKey("a")]))


def test_logs_go_before_the_nodes_and_a_crash_between_is_made_good(tmp_path: Path) -> None:
    """The second transaction fails, as if the process had died there."""
    removed: list[set[str]] = []

    def on_image(old: MetadataImage, new: MetadataImage) -> None:
        removed.append(set(old.topics) - set(new.topics))

    async def die() -> None:
        with controller(tmp_path) as made:
            await made.create_topics([NewTopic("a"), NewTopic("b")])
            made.add_listener(on_image)
            store_of(made).arm(1)
            with pytest.raises(KafkaStorageError):
                await made.delete_topics([TopicKey("a")])
            assert "a" not in made.image.topics
            taken = (await made.create_topics([NewTopic("a")]))[0]
            assert taken.error is not None and taken.error.code == ErrorCode.TOPIC_ALREADY_EXISTS

    async def go_on() -> None:
        with controller(tmp_path) as made:
            assert set(made.image.topics) == {"a", "b"}
            made.add_listener(on_image)
            await made.finish_deletions()
            assert set(made.image.topics) == {"b"}
            assert (await made.create_topics([NewTopic("a")]))[0].error is None

    run(die())
    run(go_on())
    assert removed == [{"a"}, {"a"}, set()]
    assert set(stored(tmp_path).topics) == {"a", "b"}


def test_logs_that_do_not_go_keep_the_mark(tmp_path: Path) -> None:
    async def settle() -> None:
        raise OSError("the disk")

    async def main() -> None:
        with controller(tmp_path) as made:
            await made.create_topics([NewTopic("a")])
            made.add_listener(lambda old, new: None, settle=settle)
            with pytest.raises(OSError, match="the disk"):
                await made.delete_topics([TopicKey("a")])
            assert store_of(made).children(paths.DELETE_TOPICS) == ["a"]

    run(main())


def test_a_mark_without_a_topic_is_removed(tmp_path: Path) -> None:
    with controller(tmp_path) as made:
        store_of(made).create(paths.delete_topic("ghost"))
    with controller(tmp_path) as made:
        run(made.finish_deletions())
        assert store_of(made).children(paths.DELETE_TOPICS) == []


# -- epochs, ids, features, configs -----------------------------------------------------------------------------


def test_an_unclean_stop_gives_every_partition_a_new_leader_epoch(tmp_path: Path) -> None:
    with controller(tmp_path) as made:
        run(made.create_topics([NewTopic("a", 2)]))
    epochs = []
    for clean in (True, False, False, True):
        with controller(tmp_path, clean=clean) as made:
            epochs.append([partition.leader_epoch for partition in made.image.topics["a"].partitions])
            assert made.image.topics_by_id[made.image.topics["a"].topic_id] is made.image.topics["a"]
    assert epochs == [[0, 0], [1, 1], [2, 2], [2, 2]]


def test_producer_ids_come_in_blocks_that_are_never_given_twice(tmp_path: Path) -> None:
    async def two() -> list[tuple[int, int]]:
        with controller(tmp_path, clean=False) as made:
            return list(await asyncio.gather(made.allocate_producer_ids(), made.allocate_producer_ids()))

    size = PRODUCER_ID_BLOCK_SIZE
    assert size == 1000
    assert sorted(run(two())) == [(0, size), (size, size)]
    assert sorted(run(two())) == [(2 * size, size), (3 * size, size)]


def test_a_damaged_producer_id_block_gives_no_ids(tmp_path: Path) -> None:
    with controller(tmp_path) as made:
        run(made.allocate_producer_ids())
        store_of(made).set(paths.PRODUCER_ID_BLOCK, b'{"block_start":"0"}')
        with pytest.raises(KafkaStorageError, match="latest_producer_id_block"):
            run(made.allocate_producer_ids())


def test_features_change_all_or_none_and_count_the_epoch(tmp_path: Path) -> None:
    with controller(tmp_path) as made:
        made.supported_features = {**made.supported_features, "some.version": (0, 1)}
        before = made.image
        with pytest.raises(InvalidUpdateVersion):
            run(made.update_features([FeatureUpdate("some.version", 1), FeatureUpdate("nonsense", 1)]))
        run(made.update_features([FeatureUpdate("some.version", 1)], validate_only=True))
        assert made.image is before
        run(made.update_features([FeatureUpdate("some.version", 1)]))
        assert made.image.features.finalized == {**before.features.finalized, "some.version": 1}
        assert made.image.features.epoch == 1
        run(made.update_features([FeatureUpdate("some.version", 1)]))
        assert made.image.features.epoch == 1
    assert stored(tmp_path).features == made.image.features


def test_dynamic_broker_configs_are_in_effect_at_once_and_after_a_restart(tmp_path: Path) -> None:
    def update(name: str, value: str) -> ConfigUpdate:
        return ConfigUpdate(ResourceType.BROKER, name, [KeyUpdate("message.max.bytes", Op.SET, value)])

    seen: list[int] = []
    with controller(tmp_path, {"message.max.bytes": "5000"}) as made:
        made.add_listener(lambda old, new: seen.append(made.config.integer("message.max.bytes")))
        assert run(made.update_configs([update("", "6000")])) == [None]
        assert run(made.update_configs([update("1", "7000")])) == [None]
        assert run(made.update_configs([update("1", "8000")], validate_only=True)) == [None]
    assert seen == [6000, 7000]
    with controller(tmp_path, {"message.max.bytes": "5000"}) as made:
        assert made.config.integer("message.max.bytes") == 7000
        assert made.image.broker_configs == {"": {"message.max.bytes": "6000"}, "1": {"message.max.bytes": "7000"}}


def test_the_metadata_offset_grows(tmp_path: Path) -> None:
    with controller(tmp_path) as made:
        before = run(made.metadata_offset())
        run(made.create_topics([NewTopic("a")]))
        assert run(made.metadata_offset()) == before + 1
