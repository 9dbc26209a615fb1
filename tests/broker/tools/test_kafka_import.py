"""Log directories of Apache Kafka become Klamm's: the records served then, messages, and untouched files."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.broker.metadata.acl_nodes import acl_of
from klamm.broker.security.authorizer.acls import Acl
from klamm.broker.server import CannotStart, Server
from klamm.broker.tools.kafka_export import export_kafka
from klamm.broker.tools.kraft_log import read_state
from klamm.config.broker_config import BrokerConfig
from klamm.protocol.cluster_metadata.access import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    EntityData,
    UserScramCredentialRecord,
)
from klamm.protocol.cluster_metadata.cluster import FeatureLevelRecord, ProducerIdsRecord
from klamm.protocol.cluster_metadata.topics import ConfigRecord, PartitionChangeRecord
from klamm.protocol.messages.init_producer_id import InitProducerIdRequest
from klamm.protocol.schema import Message
from klamm.protocol.scram import ScramCredential
from klamm.storage.filesystem import OsFilesystem
from klamm.storage.paths import TopicPartition
from tests.broker.tools.kafka_directory import (
    CLUSTER_ID,
    METADATA,
    make_directory,
    make_partition,
    metadata_log,
    topic_id,
    topic_records,
    write_metadata,
    write_snapshot,
)
from tests.support.embedded import EmbeddedBroker, batch

T = topic_id(1)
OTHER_DIRECTORY = "AAAAAAAAAAAAAAAAAAAAZw"


def kraft(path: Path, *more: Message, partitions: int = 2, **topic: object) -> Path:
    """A directory with the topic `t` of three records in each partition."""
    directory = make_directory(path)
    for index in range(partitions):
        make_partition(directory, f"t-{index}", topic=T)
    write_metadata(directory, [*topic_records("t", T, partitions, **topic), *more])  # type: ignore[arg-type]
    return directory


def contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def topics(broker: EmbeddedBroker) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in broker.broker.controller.image.topics.items()}


def ends(broker: EmbeddedBroker, topic: str) -> list[int | None]:
    found = broker.broker.partitions.topics[topic].partitions
    return [partition.log.log_end_offset if partition.log is not None else None for partition in found]


def test_topics_ids_configs_and_records_are_taken_over_and_go_on(tmp_path: Path) -> None:
    features = FeatureLevelRecord(name="metadata.version", feature_level=29)
    gone = PartitionChangeRecord(partition_id=1, topic_id=T, isr=[], leader=-1)
    kraft(tmp_path / "data", features, gone, config={"retention.ms": "-1", "segment.bytes": "1048576"})
    untouched = contents(tmp_path / "data" / METADATA) | {"meta": (tmp_path / "data/meta.properties").read_bytes()}
    with EmbeddedBroker(tmp_path) as broker:
        image = broker.broker.controller.image
        assert image.cluster_id == CLUSTER_ID
        assert topics(broker) == {"t": 2}
        assert image.topics["t"].topic_id == T
        assert [(p.leader, p.isr, p.leader_epoch) for p in image.topics["t"].partitions] == [(1, (1,), 5), (1, (1,), 6)]
        assert image.topic_config("t") == {"retention.ms": "-1", "segment.bytes": "1048576"}
        assert ends(broker, "t") == [3, 3]
        assert broker.produce("t", batch(b"new"), partition=1).base_offset == 3
    assert (
        contents(tmp_path / "data" / METADATA) | {"meta": (tmp_path / "data/meta.properties").read_bytes()} == untouched
    )
    with EmbeddedBroker(tmp_path) as broker:
        assert ends(broker, "t") == [3, 4]
        assert [p.leader_epoch for p in broker.broker.controller.image.topics["t"].partitions] == [5, 6]


def test_once_taken_over_our_store_rules(tmp_path: Path) -> None:
    kraft(tmp_path / "data")
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("ours")
    (tmp_path / "data" / METADATA / f"{0:020d}.log").write_bytes(metadata_log(topic_records("x", topic_id(7), 1)))
    with EmbeddedBroker(tmp_path) as broker:
        assert topics(broker) == {"t": 2, "ours": 1}


def test_a_snapshot_with_what_came_after_it(tmp_path: Path) -> None:
    data = make_directory(tmp_path / "data")
    make_partition(data, "t-0", topic=T)
    (data / METADATA).mkdir()
    write_snapshot(data / METADATA, topic_records("t", T, 1), 50)
    config = [ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5000")]
    (data / METADATA / f"{50:020d}.log").write_bytes(metadata_log(config, base_offset=50))
    with EmbeddedBroker(tmp_path) as broker:
        assert broker.broker.controller.image.topic_config("t") == {"retention.ms": "5000"}
        assert ends(broker, "t") == [3]


def test_producer_ids_go_on_above_those_given(tmp_path: Path) -> None:
    kraft(tmp_path / "data", ProducerIdsRecord(broker_id=1, next_producer_id=7000))
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    with EmbeddedBroker(tmp_path) as broker:
        assert broker.call(request, 4).producer_id == 7000
    with EmbeddedBroker(tmp_path) as broker:
        assert broker.call(request, 4).producer_id == 8000


def test_configs_that_cannot_be_are_left_out_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def config(kind: int, name: str, key: str, value: str) -> ConfigRecord:
        return ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)

    kraft(
        tmp_path / "data",
        config(2, "t", "retention.ms", "soon"),
        config(2, "t", "max.message.bytes", "2000000"),
        config(4, "", "min.insync.replicas", "1"),
        config(4, "1", "log.retention.ms", "never"),
        config(4, "2", "log.retention.ms", "1000"),
    )
    with EmbeddedBroker(tmp_path) as broker:
        image = broker.broker.controller.image
        assert image.topic_config("t") == {"max.message.bytes": "2000000"}
        assert {name: dict(values) for name, values in image.broker_configs.items() if values} == {
            "": {"min.insync.replicas": "1"}
        }
    assert "topic t: retention.ms=soon is not imported" in caplog.text
    assert "broker 1: the dynamic config log.retention.ms is not imported" in caplog.text


def test_scram_credentials_come_along(tmp_path: Path) -> None:
    record = UserScramCredentialRecord(
        name="a/b c", mechanism=2, salt=b"salt", stored_key=b"k" * 64, server_key=b"s" * 64, iterations=8192
    )
    kraft(tmp_path / "data", record)
    for _ in range(2):
        with EmbeddedBroker(tmp_path) as broker:
            expected = ScramCredential(b"salt", b"k" * 64, b"s" * 64, 8192)
            assert broker.broker.image.scram == {("a/b c", 2): expected}


def test_client_quotas_are_taken_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def quota(key: str, value: float, name: str | None) -> ClientQuotaRecord:
        return ClientQuotaRecord(entity=[EntityData(entity_type="user", entity_name=name)], key=key, value=value)

    good = quota("producer_byte_rate", 1000.0, "a/b"), quota("request_percentage", 12.5, None)
    kraft(tmp_path / "data", *good, quota("producer_byte_rate", -1.0, "bad"))
    expected = {(("user", "a/b"),): {"producer_byte_rate": 1000.0}, (("user", None),): {"request_percentage": 12.5}}
    for _ in range(2):
        with EmbeddedBroker(tmp_path) as broker:
            assert broker.broker.image.client_quotas == expected
    assert "producer_byte_rate=-1.0 of (('user', 'bad'),) is not imported" in caplog.text


def test_what_has_no_place_here_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kraft(
        tmp_path / "data", ConfigRecord(resource_type=32, resource_name="g", name="share.auto.offset.reset", value="x")
    )
    with EmbeddedBroker(tmp_path) as broker:
        assert ends(broker, "t") == [3, 3]
    assert "group configs: 1 of them are not imported" in caplog.text


def test_acls_are_taken_over_and_exported(tmp_path: Path) -> None:
    record = AccessControlEntryRecord(
        id=topic_id(9), resource_type=2, resource_name="t", pattern_type=3, principal="User:a", host="10.0.0.0/8",
        operation=3, permission_type=3,
    )  # fmt: skip
    kraft(tmp_path / "data", record)
    for _ in range(2):  # also by the next start, out of the store
        with EmbeddedBroker(tmp_path) as broker:
            assert broker.broker.image.acls == {topic_id(9): Acl(2, "t", 3, "User:a", "10.0.0.0/8", 3, 3)}
    export_kafka(BrokerConfig({"log.dirs": str(tmp_path / "data")}), tmp_path / "out")
    state, _ = read_state(OsFilesystem(), tmp_path / "out" / "__cluster_metadata-0")
    assert state.acls == {topic_id(9): acl_of(record)}


def test_a_node_that_had_company_goes_on_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = make_directory(tmp_path / "data")
    make_partition(data, "t-0", topic=T)
    records = topic_records("t", T, 1, replicas=(2, 1, 3)) + topic_records("far", topic_id(2), 4, replicas=(2, 3))
    mixed = topic_records("mixed", topic_id(3), 2, replicas=(1, 2))
    mixed[2].replicas = [2, 3]  # type: ignore[attr-defined]
    make_partition(data, "mixed-0", topic=topic_id(3))
    write_metadata(data, [*records, *mixed])
    with EmbeddedBroker(tmp_path) as broker:
        assert topics(broker) == {"t": 1, "mixed": 2}
        assert broker.broker.controller.image.topics["t"].partitions[0].replicas == (1,)
        assert ends(broker, "mixed") == [3, 0]
    assert "1 topic(s) without a replica on this node are left out: far" in caplog.text
    assert "1 partition(s) without a replica on this node begin empty: mixed-1" in caplog.text
    assert "2 partition(s) had replicas on other nodes, too: the one here goes on alone" in caplog.text


def test_several_log_dirs_and_one_that_is_missing(tmp_path: Path) -> None:
    first = make_directory(tmp_path / "a")
    second = make_directory(tmp_path / "b", directory_id=OTHER_DIRECTORY)
    make_partition(first, "t-0", topic=T)
    make_partition(second, "t-1", topic=T, count=5)
    records = topic_records("t", T, 1) + topic_records("t", T, 2, directory_id=OTHER_DIRECTORY)[2:]
    write_metadata(first, records)
    config = {"log.dirs": f"{first},{second}"}
    with EmbeddedBroker(tmp_path, config) as broker:
        assert ends(broker, "t") == [3, 5]
    alone = make_directory(tmp_path / "c")
    make_partition(alone, "t-0", topic=T)
    write_metadata(alone, records)
    with EmbeddedBroker(tmp_path, {"log.dirs": alone}) as broker:
        assert ends(broker, "t") == [3, None]
        lost = broker.broker.partitions.get_partition("t", 1)
        assert lost is not None
        assert f"directory.id={OTHER_DIRECTORY}" in lost.offline_reason


def test_a_partition_that_kafka_had_not_made_yet_is_made(tmp_path: Path) -> None:
    data = kraft(tmp_path / "data", *topic_records("young", topic_id(2), 2))
    assert not (data / "young-0").exists()
    with EmbeddedBroker(tmp_path) as broker:
        assert ends(broker, "young") == [0, 0]


def test_one_that_is_missing_although_a_checkpoint_knows_it_is_offline(tmp_path: Path) -> None:
    data = kraft(tmp_path / "data")
    for file in (data / "t-1").iterdir():
        file.unlink()
    (data / "t-1").rmdir()
    with EmbeddedBroker(tmp_path) as broker:
        assert ends(broker, "t") == [3, None]


def test_a_new_directory_beside_kafkas_may_come_first(tmp_path: Path) -> None:
    data = kraft(tmp_path / "kafka")
    with EmbeddedBroker(tmp_path, {"log.dirs": f"{tmp_path / 'new'},{data}"}) as broker:
        assert broker.broker.controller.image.cluster_id == CLUSTER_ID
        assert ends(broker, "t") == [3, 3]


def test_the_metadata_log_may_be_elsewhere(tmp_path: Path) -> None:
    data = make_directory(tmp_path / "data")
    make_partition(data, "t-0", topic=T)
    elsewhere = make_directory(tmp_path / "metadata")
    write_metadata(elsewhere, topic_records("t", T, 1, config={"retention.ms": "77"}))
    with EmbeddedBroker(tmp_path, {"metadata.log.dir": elsewhere}) as broker:
        assert broker.broker.controller.image.topic_config("t") == {"retention.ms": "77"}


def open_server(path: Path, **config: object) -> str:
    """Why the server does not start; everything is let go of."""
    originals = {"log.dirs": str(path), "node.id": "1"} | {name: str(value) for name, value in config.items()}
    server = Server(BrokerConfig(originals))
    with pytest.raises(CannotStart) as caught:
        server.open()
    server.leave()
    return str(caught.value)


def test_two_metadata_logs_need_a_choice(tmp_path: Path) -> None:
    first, second = kraft(tmp_path / "a"), make_directory(tmp_path / "b", directory_id=OTHER_DIRECTORY)
    write_metadata(second, topic_records("old", topic_id(5), 1))
    reason = open_server(Path(f"{first},{second}"))
    assert "name the one that Kafka used last with metadata.log.dir" in reason
    with EmbeddedBroker(tmp_path, {"log.dirs": f"{first},{second}", "metadata.log.dir": second}) as broker:
        assert topics(broker) == {"old": 1}


def test_another_node_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    data = kraft(tmp_path / "data")
    before = contents(data)
    server = Server(BrokerConfig({"log.dirs": str(data), "node.id": "5"}))
    with pytest.raises(CannotStart, match=r"node\.id=1, but this is node 5: set node\.id=1"):
        server.open()
    server.leave()
    after = contents(data)
    after.pop(".lock", None)
    assert after == before


def test_damaged_metadata_are_refused_and_kafkas_files_stay(tmp_path: Path) -> None:
    data = kraft(tmp_path / "data")
    log = data / METADATA / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[80] ^= 1
    log.write_bytes(bytes(content) + metadata_log(topic_records("u", topic_id(2), 1), base_offset=99))
    before = contents(data)
    assert "damaged at position 0" in open_server(data)
    after = contents(data)
    assert {name: after[name] for name in before} == before
    log.write_bytes(metadata_log(topic_records("t", T, 2)))
    with EmbeddedBroker(tmp_path) as broker:
        assert ends(broker, "t") == [3, 3]


def test_a_directory_that_was_ours_with_its_store_lost_is_not_guessed_from(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = kraft(tmp_path / "data")
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("ours")
    for file in data.glob("klamm-metadata.db*"):
        file.unlink()
    with EmbeddedBroker(tmp_path) as broker:
        assert topics(broker) == {}
    assert "these log directories were Klamm's before" in caplog.text
    assert (data / "t-0").is_dir() and (data / "ours-0").is_dir()


def test_a_crash_before_the_transaction_leaves_it_to_be_done_again(tmp_path: Path) -> None:
    data = kraft(tmp_path / "data")
    server = Server(BrokerConfig({"log.dirs": str(data), "node.id": "1"}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("klamm.broker.tools.kafka_import._operations", crash)
        with pytest.raises(KeyboardInterrupt):
            server.open()
    for log_dir in server._log_dirs:
        log_dir.close(clean=False)
    with EmbeddedBroker(tmp_path) as broker:
        assert topics(broker) == {"t": 2}
        assert ends(broker, "t") == [3, 3]


def crash(*_: object) -> None:
    raise KeyboardInterrupt


def test_kafkas_own_topics_come_along_as_they_are(tmp_path: Path) -> None:
    data = make_directory(tmp_path / "data")
    for index in range(7):
        make_partition(data, f"__consumer_offsets-{index}", topic=topic_id(2), count=0)
    config = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
    write_metadata(data, topic_records("__consumer_offsets", topic_id(2), 7, config=config))
    with EmbeddedBroker(tmp_path) as broker:
        assert topics(broker) == {"__consumer_offsets": 7}
        assert broker.broker.partitions.topics["__consumer_offsets"].internal
        assert broker.broker.controller.image.topic_config("__consumer_offsets") == config


# -- the ZooKeeper era ------------------------------------------------------------------------------------------


def test_directories_of_the_zookeeper_era(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = make_directory(tmp_path / "data", zookeeper=True)
    make_partition(data, "t-0", topic=T, epoch=9, producer_id=4321)
    make_partition(data, "t-2", topic=T, epoch=3)
    make_partition(data, "old-topic-0", topic=None)
    make_partition(data, "table-0", topic=topic_id(3))
    (data / "cleaner-offset-checkpoint").write_text("0\n1\ntable 0 2\n")
    with EmbeddedBroker(tmp_path) as broker:
        image = broker.broker.controller.image
        assert image.cluster_id == CLUSTER_ID
        assert topics(broker) == {"old-topic": 1, "t": 3, "table": 1}
        assert image.topics["t"].topic_id == T
        assert [partition.leader_epoch for partition in image.topics["t"].partitions] == [10, 0, 4]
        assert ends(broker, "t") == [3, 0, 3]
        assert ends(broker, "old-topic") == [3]
        assert image.topic_config("table") == {"cleanup.policy": "compact"}
        assert image.topic_config("t") == {"retention.ms": "-1", "retention.bytes": "-1"}
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        assert broker.call(request, 4).producer_id > 4321
        old_id = image.topics["old-topic"].topic_id
    assert "the settings of the topics are not known here" in caplog.text
    assert "1 partition(s) are not in these log directories, and begin empty: t-1" in caplog.text
    assert "directory.id=" in (data / "meta.properties").read_text()
    with EmbeddedBroker(tmp_path) as broker:
        assert broker.broker.controller.image.topics["old-topic"].topic_id == old_id
        assert broker.broker.partitions.logs.log_dirs[0].logs[TopicPartition("old-topic", 0)].topic_id == old_id


def test_producers_after_the_last_snapshot_are_found_when_it_was_not_closed(tmp_path: Path) -> None:
    data = make_directory(tmp_path / "data", zookeeper=True)
    make_partition(data, "t-0", topic=T, producer_id=5_000_000)
    (data / ".kafka_cleanshutdown").unlink()
    for snapshot in (data / "t-0").glob("*.snapshot"):
        snapshot.unlink()
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    with EmbeddedBroker(tmp_path) as broker:
        assert broker.call(request, 4).producer_id > 5_000_000


def test_partitions_that_disagree_about_their_topic(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = make_directory(tmp_path / "data", zookeeper=True)
    for index, topic in enumerate((T, topic_id(2), T)):
        make_partition(data, f"t-{index}", topic=topic)
    with EmbeddedBroker(tmp_path) as broker:
        assert broker.broker.controller.image.topics["t"].topic_id == T
        assert ends(broker, "t") == [3, None, 3]
    assert "topic t: its partitions have 2 topic ids" in caplog.text


def test_internal_topics_of_the_zookeeper_era_are_compacted(tmp_path: Path) -> None:
    data = make_directory(tmp_path / "data", zookeeper=True)
    for index in range(3):
        make_partition(data, f"__consumer_offsets-{index}", topic=topic_id(2), count=0)
    with EmbeddedBroker(tmp_path) as broker:
        config = broker.broker.controller.image.topic_config("__consumer_offsets")
        assert config["cleanup.policy"] == "compact"
        assert broker.broker.partitions.topics["__consumer_offsets"].internal


def test_an_empty_directory_takes_nothing_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        assert topics(broker) == {}
    assert "imported from" not in caplog.text
