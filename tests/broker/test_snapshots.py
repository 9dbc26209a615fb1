"""`klamm snapshot` and `klamm restore` beside a real broker process and stock clients."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from klamm.__main__ import main
from klamm.broker.server import Server
from klamm.broker.tools.manifest import CannotBackUp
from klamm.broker.tools.restore import restore_snapshot
from klamm.config.load import load
from klamm.storage import paths as storage_paths
from klamm.storage.clock import SystemClock
from klamm.storage.filesystem import OsFile, OsFilesystem, OsLock
from klamm.storage.log.results import DamagedRange
from klamm.storage.scrub import scrub_state
from klamm.storage.scrub.scrub_state import KnownDamage, ScrubState
from tests.support.broker_process import BrokerProcess

CONFIG = {"segment.bytes": "1048576", "retention.ms": "-1"}


def klamm(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def create(broker: BrokerProcess, topic: str, partitions: int, config: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(topic, partitions, config=config)])[topic].result(30)


def values(broker: BrokerProcess, topic: str, partition: int, isolation: str = "read_uncommitted") -> list[bytes]:
    """Return the values of all records there are."""
    settings = {"bootstrap.servers": broker.address, "group.id": "none", "isolation.level": isolation}
    consumer = Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[bytes] = []
    while True:
        message = consumer.poll(30)
        assert message is not None, "the end of the partition"
        if message.error() is not None:
            consumer.close()
            return found
        found.append(bytes(message.value() or b""))


class Counting(threading.Thread):
    """A thread that produces 0, 1, 2, ... until it is stopped; `acknowledged` of them are in the log for sure."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 1})
        self._ending = threading.Event()
        self.acknowledged = 0

    def run(self) -> None:
        number = 0
        while not self._ending.is_set():
            self._producer.produce("t", b"%d" % number * 100, partition=0, on_delivery=self._delivered)
            number += 1
            self._producer.poll(0.0005 if number % 50 else 0.01)
        self._producer.flush(30)

    def _delivered(self, error: object, message: Message) -> None:
        assert error is None, error
        self.acknowledged += 1

    def await_more(self, count: int) -> None:
        wanted = self.acknowledged + count
        reached = threading.Event()
        while self.acknowledged < wanted:
            reached.wait(0.01)

    def stop(self) -> None:
        self._ending.set()
        self.join(60)


def test_a_running_broker_is_no_obstacle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, target = tmp_path / "data", tmp_path / "restored"
    snapshots = [tmp_path / f"snapshot-{number}" for number in range(3)]
    at_least = []
    with BrokerProcess(data) as broker:
        create(broker, "t", 1, CONFIG)
        counting = Counting(broker.address)
        counting.start()
        try:
            for snapshot in snapshots:
                counting.await_more(3000)
                at_least.append(counting.acknowledged)
                assert klamm("snapshot", snapshot, "--override", f"log.dirs={data}") == 0
        finally:
            counting.stop()
        everything = values(broker, "t", 0)
        assert broker.terminate() == 0
    assert len(everything) == counting.acknowledged
    for number, snapshot in enumerate(snapshots):
        assert klamm("verify", "--deep", "--log-dirs", snapshot) == 0
        renaming = ("--rename", f"t=t-{number}")
        assert klamm("restore", snapshot, *renaming, "--override", f"log.dirs={target}") == 0
    output = capsys.readouterr().out
    assert output.count("took_ms=") == 6
    with BrokerProcess(target) as broker:
        for number, count in enumerate(at_least):
            found = values(broker, f"t-{number}", 0)
            assert len(found) >= count
            assert found == everything[: len(found)]


def test_what_a_topic_is_comes_back_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, target, snapshot = tmp_path / "data", tmp_path / "restored", tmp_path / "snapshot"
    with BrokerProcess(data) as broker:
        create(broker, "t", 2, CONFIG)
        create(broker, "other", 1, {})
        _write_transactions(broker)
        assert klamm("snapshot", snapshot, "--topics", "t,oth.*", "--override", f"log.dirs={data}") == 0
        (before,) = [topic for topic in _topics(snapshot) if topic["name"] == "t"]
    assert klamm("restore", snapshot, "--topics", "t", "--override", f"log.dirs={target}") == 0
    assert "aborted_transactions=1" in capsys.readouterr().out
    with BrokerProcess(target) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        assert set(admin.list_topics(timeout=10).topics) == {"t"}
        resource = ConfigResource(ConfigResource.Type.TOPIC, "t")
        configs = admin.describe_configs([resource])[resource].result(30)
        assert {key: configs[key].value for key in CONFIG} == CONFIG
        assert values(broker, "t", 0, "read_committed") == [b"committed"]
        assert values(broker, "t", 0) == [b"committed", b"aborted", b"open"]
        producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True})
        for number in range(3):
            producer.produce("t", b"new-%d" % number, partition=0)
            assert producer.flush(30) == 0
        assert values(broker, "t", 0, "read_committed") == [b"committed", b"new-0", b"new-1", b"new-2"]
        assert klamm("snapshot", tmp_path / "again", "--override", f"log.dirs={target}") == 0
    assert _topics(tmp_path / "again")[0]["topic_id"] == before["topic_id"]


def _write_transactions(broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": "tx"})
    producer.init_transactions(30)
    endings: list[tuple[bytes, Callable[[], object]]] = [
        (b"committed", lambda: producer.commit_transaction(30)),
        (b"aborted", lambda: producer.abort_transaction(30)),
        (b"open", lambda: None),
    ]
    for value, end in endings:
        producer.begin_transaction()
        producer.produce("t", value, partition=0)
        producer.flush(30)
        end()


def _topics(snapshot: Path) -> list[dict[str, object]]:
    topics = json.loads((snapshot / "klamm-snapshot.json").read_text())["topics"]
    assert isinstance(topics, list)
    return topics


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """The data of a broker that has stopped, with a topic of one partition."""
    with BrokerProcess(tmp_path / "data") as broker:
        create(broker, "t", 1, {})
        producer = Producer({"bootstrap.servers": broker.address})
        producer.produce("t", b"v", partition=0)
        producer.flush(30)
    return tmp_path / "data"


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line with which it is refused."""
    assert klamm(*arguments) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("klamm: ") and captured.err.count("\n") == 1
    return captured.err.removeprefix("klamm: ").rstrip()


def test_a_stopped_broker(stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot, where = tmp_path / "snapshot", ("--override", f"log.dirs={stopped}")
    assert klamm("snapshot", snapshot, *where) == 0
    capsys.readouterr()
    assert refusal(capsys, "snapshot", snapshot, *where) == f"{snapshot}: not empty"
    assert "inside the log directory" in refusal(capsys, "snapshot", stopped / "x", *where)
    assert "no topic is named 'nope'" in refusal(capsys, "snapshot", tmp_path / "b", "--topics", "nope", *where)
    assert "no log directory" in refusal(capsys, "snapshot", tmp_path / "b", "--override", f"log.dirs={tmp_path / 'x'}")
    assert refusal(capsys, "restore", snapshot, *where).startswith("the topic t exists; ")
    assert "no snapshot" in refusal(capsys, "restore", tmp_path, *where)
    assert "'x' is not among" in refusal(capsys, "restore", snapshot, "--rename", "x=y", *where)
    assert "name" in refusal(capsys, "restore", snapshot, "--rename", "t=a b", *where)
    assert (stopped / ".kafka_cleanshutdown").exists()
    assert klamm("restore", snapshot, "--rename", "t=u", *where) == 0
    capsys.readouterr()
    assert klamm("verify", "--log-dirs", stopped) == 0
    capsys.readouterr()
    with BrokerProcess(stopped) as broker:
        assert values(broker, "t", 0) == values(broker, "u", 0) == [b"v"]
        assert "held by a running broker" in refusal(capsys, "verify", "--log-dirs", stopped)
        assert "another process" in refusal(capsys, "restore", snapshot, "--rename", "t=w", *where)


def test_a_broker_that_was_killed_has_to_start_first(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--override", f"log.dirs={stopped}")
    assert klamm("snapshot", tmp_path / "snapshot", *where) == 0
    (stopped / ".kafka_cleanshutdown").unlink()
    capsys.readouterr()
    assert "has not stopped cleanly" in refusal(capsys, "snapshot", tmp_path / "b", *where)
    assert "has not stopped cleanly" in refusal(capsys, "restore", tmp_path / "snapshot", "--rename", "t=u", *where)


def test_a_restore_that_fails_leaves_nothing(stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot, where = tmp_path / "snapshot", ("--override", f"log.dirs={stopped}")
    assert klamm("snapshot", snapshot, *where) == 0
    log = snapshot / "t-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-1])
    capsys.readouterr()
    before = sorted(os.listdir(stopped))
    assert "ends at offset 0, but 1 was taken" in refusal(capsys, "restore", snapshot, "--rename", "t=u", *where)
    assert sorted(os.listdir(stopped)) == before
    with BrokerProcess(stopped) as broker:
        assert values(broker, "t", 0) == [b"v"]
        assert "u" not in AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=10).topics


class Dying(OsFilesystem):
    """A filesystem that does no change any more from the n-th one on: the state after a process was killed there."""

    __slots__ = ("changes", "last")

    def __init__(self, last: int) -> None:
        super().__init__()
        self.changes = 0
        self.last = last

    def _change(self) -> None:
        self.changes += 1
        if self.changes > self.last:
            raise OSError(errno.EIO, "dead")

    def open_file(self, path: Path, *, create: bool = False) -> OsFile:
        self._change()
        return super().open_file(path, create=create)

    def make_directories(self, path: Path) -> None:
        self._change()
        super().make_directories(path)

    def rename(self, old: Path, new: Path) -> None:
        self._change()
        super().rename(old, new)

    def hard_link(self, path: Path, new: Path) -> None:
        self._change()
        super().hard_link(path, new)

    def unlink(self, path: Path) -> None:
        self._change()
        super().unlink(path)

    def remove_directory(self, path: Path) -> None:
        self._change()
        super().remove_directory(path)

    def lock_file(self, path: Path) -> OsLock:
        return OsLock(OsFilesystem().open_file(path, create=True))


def test_a_crash_while_restoring_leaves_all_or_nothing(stopped: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot"
    assert klamm("snapshot", snapshot, "--override", f"log.dirs={stopped}") == 0
    outcomes = []
    for last in range(1000):
        data = Path(shutil.copytree(stopped, tmp_path / f"data-{last}"))
        config = load(None, [f"log.dirs={data}", "klamm.metrics.listener=none"], {})
        filesystem = Dying(last)
        try:
            restore_snapshot(
                config, snapshot, None, {"t": "u"},
                filesystem=filesystem, clock=SystemClock(), random_bytes=os.urandom,
            )  # fmt: skip
        except CannotBackUp as error:
            outcomes.append(False)
            assert "dead" in str(error)
        else:
            outcomes.append(True)
        server = Server(config)
        server.open()
        broker = server.wire()
        restored = "u" in broker.controller.image.topics
        for topic in ("t", "u") if restored else ("t",):
            partition = broker.partitions.get_partition(topic, 0)
            assert partition is not None
            log = partition.online_log()
            assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (0, 1, 1)
        server.close()
        assert restored or not outcomes[-1]
        if filesystem.changes <= last:
            break
        shutil.rmtree(data)
    assert outcomes.count(False) > 15
    assert outcomes == sorted(outcomes), "once it is done, it stays done"


def test_known_damage_goes_with_a_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, snapshot = tmp_path / "data", tmp_path / "snapshot"
    with BrokerProcess(data) as broker:
        create(broker, "t", 2, CONFIG)
        producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
        for number in range(15):
            producer.produce("t", b"%d" % number + bytes(100_000), partition=1)
            producer.flush(30)
        assert broker.terminate() == 0
    (topic_id,) = {line.split(": ")[1] for line in (data / "t-1/partition.metadata").read_text().splitlines()[1:]}
    known = DamagedRange(0, 300_000, 400_000, 3, 4, "wrong CRC")
    gone = DamagedRange(0, 1 << 30, (1 << 30) + 1, 9, 10, "of a segment that was replaced")
    partition = storage_paths.TopicPartition("t", 1)
    state = ScrubState(
        damage=[KnownDamage(partition, topic_id, (known, gone)), KnownDamage(partition, "another", (known,))]
    )
    scrub_state.save(OsFilesystem(), data, state)
    where = ("--override", f"log.dirs={data}")
    assert klamm("snapshot", snapshot, *where) == 0
    line = "known to be damaged, and not served: t-1 offsets [3, 4)\n"
    assert capsys.readouterr().err == line
    assert scrub_state.load(OsFilesystem(), snapshot).damage == [KnownDamage(partition, topic_id, (known,))]
    assert klamm("restore", snapshot, "--rename", "t=u", *where) == 0
    assert capsys.readouterr().err == line.replace("t-1", "u-1")
    assert len(scrub_state.load(OsFilesystem(), data).damage) == 3
    with BrokerProcess(data) as broker:
        assert "u-1: known to be damaged, not served: segment=0 offsets=[3, 4)" in broker.log()


def test_no_damage_is_no_file(stopped: Path, tmp_path: Path) -> None:
    assert klamm("snapshot", tmp_path / "snapshot", "--override", f"log.dirs={stopped}") == 0
    assert not (tmp_path / "snapshot" / storage_paths.SCRUB).exists()
