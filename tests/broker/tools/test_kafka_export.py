"""What `klamm export-kafka` writes, read back as Kafka reads it and taken over by Klamm again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.broker.controller.client_quotas import Alteration
from klamm.broker.controller.credentials import Upsertion
from klamm.broker.quotas.alterations import Op
from klamm.broker.tools.kafka_export import CannotExport, Exported, export_kafka
from klamm.broker.tools.kraft_log import read_state
from klamm.config.broker_config import BrokerConfig
from klamm.protocol.messages.delete_topics import DeleteTopicsRequest
from klamm.protocol.messages.init_producer_id import InitProducerIdRequest
from klamm.storage.checkpoints import MetaProperties, read_offsets
from klamm.storage.filesystem import OsFilesystem
from klamm.storage.log_dir import LogDir
from klamm.storage.paths import TopicPartition
from tests.support.embedded import EmbeddedBroker, batch

METADATA = "__cluster_metadata-0"


def config_of(path: Path, **more: object) -> BrokerConfig:
    return BrokerConfig({"log.dirs": str(path), "node.id": "1"} | {name: str(value) for name, value in more.items()})


def export(path: Path, target: Path) -> Exported:
    return export_kafka(config_of(path), target)


QUOTA = Op("producer_byte_rate", 5000.0, remove=False)


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A stopped broker's directory: topics `t` (two partitions, several segments) and `gone`, which was deleted."""
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", partitions=2, config={"retention.ms": -1, "segment.bytes": 1 << 20})
        broker.create_topic("empty")
        broker.create_topic("gone")
        for _ in range(30):
            broker.produce("t", batch(os.urandom(100_000)))
        broker.produce("t", batch(b"one"), partition=1)
        broker.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        broker.call(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=1000), 5)
        broker.run(broker.broker.controller.alter_client_quotas([Alteration([("user", "é/x")], [QUOTA])]))
    yield tmp_path / "data"


def test_the_metadata_are_those_of_the_store(data: Path, tmp_path: Path) -> None:
    done = export(data, tmp_path / "out")
    assert (done.topic_count, done.partition_count, done.node_id) == (2, 3, 1)
    state, _ = read_state(OsFilesystem(), tmp_path / "out" / METADATA)
    found = {topic.name: topic for topic in state.topics.values()}
    assert {name: sorted(topic.partitions) for name, topic in found.items()} == {"t": [0, 1], "empty": [0]}
    assert state.topic_configs["t"] == {"retention.ms": "-1", "segment.bytes": str(1 << 20)}
    assert state.features["metadata.version"] == 33
    assert state.broker_configs[""] == {"min.insync.replicas": "1"}
    assert state.next_producer_id == 1000
    assert state.client_quotas == {(("user", "é/x"),): {"producer_byte_rate": 5000.0}}
    meta = MetaProperties.parse((tmp_path / "out" / "meta.properties").read_bytes())
    assert (meta.cluster_id, meta.node_id) == (done.cluster_id, 1)
    assert meta.cluster_id == MetaProperties.parse((data / "meta.properties").read_bytes()).cluster_id
    with EmbeddedBroker(tmp_path) as broker:
        topic_id = broker.broker.controller.image.topics["t"].topic_id
    assert found["t"].topic_id == topic_id


def test_partitions_are_complete_and_share_old_segments_only(data: Path, tmp_path: Path) -> None:
    done = export(data, tmp_path / "out")
    for name in ("t-0", "t-1", "empty-0"):
        theirs = {file.name: file.read_bytes() for file in (tmp_path / "out" / name).iterdir()}
        assert theirs == {file.name: file.read_bytes() for file in (data / name).iterdir()}
    logs = sorted((data / "t-0").glob("*.log"))
    assert len(logs) > 2
    shared = [log for log in logs if os.path.samefile(log, tmp_path / "out" / "t-0" / log.name)]
    assert shared == logs[:-1]
    assert done.size.linked_bytes >= sum(log.stat().st_size for log in shared)
    filesystem = OsFilesystem()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        offsets = read_offsets(filesystem, tmp_path / "out" / name)
        assert offsets == read_offsets(filesystem, data / name)
        assert offsets[TopicPartition("t", 0)] == 30
    assert (tmp_path / "out" / ".kafka_cleanshutdown").exists()
    assert not list((tmp_path / "out").rglob("klamm*"))


def test_what_was_exported_can_be_taken_over(data: Path, tmp_path: Path) -> None:
    export(data, tmp_path / "again" / "data")
    with EmbeddedBroker(tmp_path / "again") as broker:
        partitions = broker.broker.partitions.topics["t"].partitions
        assert [p.log.log_end_offset for p in partitions if p.log is not None] == [30, 1]
        assert broker.broker.controller.image.topic_config("t")["retention.ms"] == "-1"
        assert broker.broker.image.client_quotas == {(("user", "é/x"),): {"producer_byte_rate": 5000.0}}
        assert broker.produce("t", batch(b"two"), partition=1).base_offset == 1
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        assert broker.call(request, 4).producer_id == 1000
    with EmbeddedBroker(tmp_path) as broker:
        partition = broker.broker.partitions.get_partition("t", 1)
        assert partition is not None and partition.log is not None
        assert partition.log.log_end_offset == 1


def test_scram_credentials_go_out_and_come_back(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        upsertion = Upsertion("a", 1, 4096, b"salt", bytes(32))
        assert broker.run(broker.broker.controller.alter_scram([], [upsertion])) == {"a": None}
        credentials = broker.broker.image.scram
    export(tmp_path / "data", tmp_path / "again" / "data")
    with EmbeddedBroker(tmp_path / "again") as broker:
        assert broker.broker.image.scram == credentials and len(credentials) == 1


def test_our_directories_stay_as_they_are(data: Path, tmp_path: Path) -> None:
    def look() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in data.rglob("*") if path.is_file() and "-wal" not in path.name}

    before = look()
    export(data, tmp_path / "out")
    after = look()
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert {Path(name).name for name in changed} <= {"klamm-metadata.db", "klamm-metadata.db-shm"}


def test_klamms_own_settings_are_left_out_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", config={"klamm.acks.fsync": "true", "retention.ms": "1000"})
    export(tmp_path / "data", tmp_path / "out")
    state, _ = read_state(OsFilesystem(), tmp_path / "out" / METADATA)
    assert state.topic_configs["t"] == {"retention.ms": "1000"}
    assert "t: klamm.acks.fsync=true is Klamm's own, left out" in caplog.text


def test_several_log_dirs_become_one(tmp_path: Path) -> None:
    both = {"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"}
    with EmbeddedBroker(tmp_path, both) as broker:
        broker.create_topic("t", partitions=4)
        for index in range(4):
            for _ in range(index + 1):
                broker.produce("t", batch(b"v"), partition=index)
    export(Path(both["log.dirs"]), tmp_path / "again" / "data")
    assert len(list((tmp_path / "a").glob("t-*"))) == 2
    with EmbeddedBroker(tmp_path / "again") as broker:
        partitions = broker.broker.partitions.topics["t"].partitions
        assert [p.log.log_end_offset for p in partitions if p.log is not None] == [1, 2, 3, 4]


def test_after_a_crash_the_logs_are_recovered_first(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path)
    broker.__enter__()
    broker.create_topic("t")
    broker.produce("t", batch(b"kept"))
    broker.crash()
    log = tmp_path / "data" / "t-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes() + b"torn")
    export(tmp_path / "data", tmp_path / "out")
    whole = (tmp_path / "out" / "t-0" / f"{0:020d}.log").read_bytes()
    assert log.read_bytes() == whole
    assert not whole.endswith(b"torn")


def test_an_offline_partition_is_reported(data: Path, tmp_path: Path) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    log = min((data / "t-0").glob("*.log"))
    content = bytearray(log.read_bytes())
    content[5000] ^= 1
    log.write_bytes(content)
    for name in ("recovery-point-offset-checkpoint",):
        (data / name).write_text("0\n0\n")
    with pytest.raises(CannotExport, match="a partition is offline"):
        export(data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_missing_partition_is_reported(data: Path, tmp_path: Path) -> None:
    for file in (data / "t-1").iterdir():
        file.unlink()
    (data / "t-1").rmdir()
    with pytest.raises(CannotExport, match=r"1 partition\(s\) are missing: t-1"):
        export(data, tmp_path / "out")


def test_a_broker_that_runs_is_not_exported(data: Path, tmp_path: Path) -> None:
    """The lock is the process's, so another one has to try."""
    held = LogDir.open(data, node_id=1)
    done = run_command(str(tmp_path / "out"), data)
    held.leave()
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"klamm: {data}: another process holds .lock\n"


def run_command(target: str, data: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "klamm", "export-kafka", target, "--override", f"log.dirs={data}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_command_says_how_to_go_on(data: Path, tmp_path: Path) -> None:
    done = run_command(str(tmp_path / "out"), data)
    assert (done.returncode, done.stderr) == (0, "")
    assert "topics=2 partitions=3 linked_bytes=" in done.stdout
    assert f"node.id=1 log.dirs={tmp_path / 'out'} and controller.quorum.voters=1@" in done.stdout


@pytest.mark.parametrize("where", ["full", "inside", "nothing", "not ours"])
def test_where_it_cannot_be(data: Path, tmp_path: Path, where: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "not ours").mkdir()
    source = {"nothing": tmp_path / "missing", "not ours": tmp_path / "not ours"}.get(where, data)
    target = {"full": tmp_path / "full", "inside": data / "out"}.get(where, tmp_path / "out")
    reason = {
        "full": "not empty",
        "inside": "inside the log directory",
        "nothing": "no log directory of Klamm",
        "not ours": "no log directory of Klamm",
    }[where]
    with pytest.raises(CannotExport, match=reason):
        export(source, target)
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "missing").exists()
    assert not (data / "out").exists()
