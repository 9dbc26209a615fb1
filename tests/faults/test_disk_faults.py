"""Storage rows of docs/faults.md in which single calls of a real process fail, or it dies before one of them.

`tests/support/faulty_disk.py` makes the calls fail. The rows that only need other bytes on the disk are in
`test_storage_damage.py`, those of full disks in `test_disk_full.py`; docs/faults.md lists them all.
"""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from klamm.protocol.errors import ErrorCode
from tests.faults.campaign import LONG, seeded
from tests.faults.damage import contents, record
from tests.faults.network_cases import Broker, one
from tests.support.broker_process import BrokerFailed, BrokerProcess, wait_for
from tests.support.faulty_disk import FaultyDisk

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
CONFIG = {"log.segment.bytes": 1 << 20, "auto.create.topics.enable": "false"}
EXISTS = ErrorCode.TOPIC_ALREADY_EXISTS


@dataclass
class Room:
    """A broker on a disk that may fail, and an idempotent producer of numbered records."""

    process: BrokerProcess
    disk: FaultyDisk
    producer_id: int = -1
    acked: dict[str, int] = field(default_factory=dict)

    def write(self, peer: Broker, topic: str, count: int = 1) -> int | str:
        """Write until one is refused; return the last answer."""
        if self.producer_id < 0:
            self.producer_id, _ = peer.producer()
        code: int | str = 0
        for _ in range(count):
            number = self.acked.get(topic, 0)
            code = peer.produce(record(self.producer_id, number), topic=topic)
            if code != 0:
                break
            self.acked[topic] = number + 1
        return code

    def all_there(self, peer: Broker, topic: str) -> None:
        """Check that each acknowledged record is at its place; others may follow, in order."""
        found = contents(peer, topic=topic)
        assert found == list(range(len(found))) and len(found) >= self.acked.get(topic, 0)
        self.acked[topic] = len(found)

    def restart(self) -> Broker:
        """Kill the broker, and start it with a good disk."""
        if self.process._process is not None:
            self.process.kill()
        self.disk.rules()
        self.process.restart()
        return Broker(self.process.port, 30)


@contextmanager
def room(tmp_path: Path, **config: object) -> Iterator[Room]:
    data = tmp_path / "data"
    disk = FaultyDisk(tmp_path, root=data)
    process = BrokerProcess(data, {**CONFIG, **config}, prefix=disk.prefix)
    try:
        yield Room(process.start(), disk)
    finally:
        if process._process is not None:
            process.kill()
    assert "Traceback" not in process.log()


@contextmanager
def filled(tmp_path: Path, **config: object) -> Iterator[tuple[Room, Broker]]:
    with room(tmp_path, **config) as made, Broker(made.process.port, 30) as peer:
        for topic in ("victim", "bystander"):
            assert peer.create(topic) == 0
            assert made.write(peer, topic, 20) == 0
        yield made, peer


# -- row 23


@pytest.mark.parametrize("call", ["create", "pwrite"])
def test_row_23_no_space_for_indexes_snapshots_and_checkpoints_does_not_stop_the_data(
    tmp_path: Path, call: str
) -> None:
    config = {"log.flush.offset.checkpoint.interval.ms": 100, "log.index.interval.bytes": 1000}
    with filled(tmp_path, **config) as (made, peer):
        names = (".index", ".timeindex", ".snapshot", "-checkpoint")
        made.disk.rules(*(f"{errno.ENOSPC} {call} {name}" for name in names))
        assert made.write(peer, "victim", 200) == 0  # four segments
        assert made.write(peer, "bystander") == 0
        assert contents(peer, topic="victim") == list(range(220))
        with made.restart() as again:
            assert contents(again, topic="victim") == list(range(220))
            assert made.write(again, "victim", 2) == 0


# -- rows 25, 26, 27


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS], ids=["EIO", "EROFS"])
def test_row_25_a_write_that_fails_takes_one_partition_offline(tmp_path: Path, code: int) -> None:
    with filled(tmp_path) as (made, peer):
        made.disk.rules(f"{code} pwrite /victim-0/")
        assert made.write(peer, "victim") == STORAGE_ERROR
        made.disk.rules()
        assert made.write(peer, "victim") == STORAGE_ERROR  # until it is recovered
        assert made.write(peer, "bystander", 5) == 0
        assert contents(peer, topic="bystander") == list(range(25))
        with made.restart() as again:
            made.all_there(again, "victim")
            assert made.write(again, "victim", 5) == 0


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_row_26_a_failed_fsync_acks_nothing_and_is_never_tried_again(tmp_path: Path, code: int) -> None:
    config = {"klamm.acks.fsync": "true", "log.flush.offset.checkpoint.interval.ms": 100}
    with filled(tmp_path, **config) as (made, peer):
        made.disk.rules(f"{code} sync /victim-0/", "trace sync .log")
        assert made.write(peer, "victim") == STORAGE_ERROR
        made.disk.rules("trace sync .log")  # the disk says that all is well again
        made.disk.traced()
        for topic in ("victim", "bystander"):  # one file system, one truth
            assert made.write(peer, topic) == STORAGE_ERROR
        time.sleep(0.5)  # a few checkpoints
        assert made.process.terminate() == 0
        assert made.disk.traced() == []
        with made.restart() as again:
            for topic in ("victim", "bystander"):
                made.all_there(again, topic)
                assert made.write(again, topic, 5) == 0


def test_row_27_what_cannot_be_read_is_a_storage_error_of_its_partition(tmp_path: Path) -> None:
    with filled(tmp_path) as (made, peer):
        assert made.write(peer, "victim", 100) == 0
        made.disk.rules(f"{errno.EIO} pread /victim-0/")
        assert peer.fetch(topic="victim") == STORAGE_ERROR
        assert contents(peer, topic="bystander") == list(range(20))
        made.disk.rules()
        with Broker(made.process.port, 30) as later:
            assert contents(later, topic="victim") == list(range(120))


def test_row_27_what_cannot_be_sent_closes_the_connection_and_nothing_else(tmp_path: Path) -> None:
    with filled(tmp_path) as (made, peer):
        made.disk.rules(f"{errno.EIO} sendfile /victim-0/")
        assert peer.fetch(topic="victim") in (STORAGE_ERROR, "closed")
        with Broker(made.process.port, 30) as other:
            assert contents(other, topic="bystander") == list(range(20))
            made.disk.rules()
            assert contents(other, topic="victim") == list(range(20))


# -- row 28


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE], ids=["EMFILE", "ENFILE"])
def test_row_28_no_descriptor_for_a_roll_is_refused_and_passes(tmp_path: Path, code: int) -> None:
    with filled(tmp_path) as (made, peer):
        made.disk.rules(f"{code} create /victim-0/")
        assert made.write(peer, "victim", 100) == STORAGE_ERROR
        assert 20 < made.acked["victim"] < 100
        assert made.write(peer, "bystander") == 0
        made.disk.rules()
        assert made.write(peer, "victim", 50) == 0
        made.all_there(peer, "victim")


# -- row 31


@pytest.mark.parametrize("days", [1, -1])
def test_row_31_a_clock_that_jumps_a_day_deletes_nothing_and_ends_no_group(tmp_path: Path, days: int) -> None:
    config = {"log.retention.ms": 3_600_000, "log.retention.check.interval.ms": 50, "log.segment.delete.delay.ms": 0}
    with filled(tmp_path, **config) as (made, peer):
        assert made.write(peer, "victim", 100) == 0
        consumer = Consumer(
            {
                "bootstrap.servers": made.process.address,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
            }
        )
        consumer.subscribe(["victim"])
        first = consumer.poll(30)
        assert first is not None and first.error() is None and first.offset() == 0
        made.disk.rules(f"clock {days * 86_400}")
        for expected in range(1, 120):
            message = consumer.poll(10)
            assert message is not None and message.error() is None and message.offset() == expected
        time.sleep(1)  # twenty checks
        assert contents(peer, topic="victim") == list(range(120))
        assert consumer.assignment() == [TopicPartition("victim", 0)]
        consumer.commit(asynchronous=False)
        consumer.close()


# -- rows 32 and 33: kill -9 before the n-th change that an operation makes on the disk

Operation = Callable[[Room, Broker], None]


def roll(made: Room, peer: Broker) -> None:
    made.write(peer, "victim", 60)


def create(made: Room, peer: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": made.process.address, "log_level": 0})
    with suppress(KafkaException):
        admin.create_topics([NewTopic("new", 2)], request_timeout=3)["new"].result(5)


def delete(made: Room, peer: Broker) -> None:
    delete_topic(made, "victim")


def delete_topic(made: Room, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": made.process.address, "log_level": 0})
    with suppress(KafkaException):  # killed
        admin.delete_topics([topic], request_timeout=3)[topic].result(5)


def add_partitions(made: Room, peer: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": made.process.address, "log_level": 0})
    with suppress(KafkaException):
        admin.create_partitions([NewPartitions("victim", 3)], request_timeout=3)["victim"].result(5)


def transaction(made: Room, peer: Broker) -> None:
    """Commit one, abort the next."""
    producer = Producer(
        {"bootstrap.servers": made.process.address, "transactional.id": "x", "log_level": 0, "socket.timeout.ms": 3000}
    )
    with suppress(KafkaException):
        producer.init_transactions(5)
        for name in (b"committed", b"aborted"):
            producer.begin_transaction()
            producer.produce("txn", name)
            producer.flush(3)
            producer.commit_transaction(5) if name == b"committed" else producer.abort_transaction(5)


OPERATIONS: dict[str, Operation] = {
    "roll": roll,
    "create": create,
    "delete": delete,
    "add partitions": add_partitions,
    "transaction": transaction,
}
SAMPLED = 1
"""Steps of each operation before which `make test` kills; `make faults` takes them all."""


def steps_of(tmp_path: Path, operation: Operation) -> int:
    with filled(tmp_path) as (made, peer):
        prepare(made, peer, operation)
        made.disk.rules("trace * /")
        made.disk.traced()
        operation(made, peer)
        return len(made.disk.traced())


def prepare(made: Room, peer: Broker, operation: Operation) -> None:
    if operation is transaction:
        assert peer.create("txn") == 0
        warm = Producer({"bootstrap.servers": made.process.address, "transactional.id": "warm"})
        warm.init_transactions(60)  # the topic of the coordinator is there


def check(made: Room, peer: Broker, operation: Operation) -> None:
    """After the start that follows the kill: nothing lost, nothing half, and the operation can be done again."""
    made.all_there(peer, "bystander")
    assert made.write(peer, "bystander") == 0
    if operation is create:  # row 33
        assert peer.create("new", partitions=2) in (0, EXISTS)
        for partition in range(2):
            wait_for(lambda index=partition: peer.produce(one(), topic="new", partition=index) == 0, 10, "row 33")
        return
    if operation is delete:
        if peer.create("victim") == EXISTS:
            made.all_there(peer, "victim")
            delete_topic(made, "victim")
            assert peer.create("victim") == 0
        assert peer.end_offset("victim") == 0
        made.acked["victim"] = 0
        made.producer_id = -1
        made.acked.pop("bystander")
        assert made.write(peer, "victim") == 0
        return
    made.all_there(peer, "victim")
    assert made.write(peer, "victim", 3) == 0
    if operation is add_partitions:
        add_partitions(made, peer)
        for partition in range(1, 3):
            wait_for(lambda index=partition: peer.produce(one(), topic="victim", partition=index) == 0, 10, "it")
    if operation is transaction:
        transaction(made, peer)  # fences, ends open transactions, does both again
        assert committed(made) <= {b"committed"} and committed(made)


def committed(made: Room) -> set[bytes]:
    """What a read_committed consumer sees of the transactions."""
    consumer = Consumer(
        {
            "bootstrap.servers": made.process.address,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("txn", 0, 0)])
    found = set()
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.add(message.value())
    assert message is not None, "no end in 30 s: a transaction was left open"
    consumer.close()
    return found


@pytest.mark.parametrize("name", OPERATIONS)
def test_rows_32_33_kill_9_before_each_change_on_the_disk(tmp_path: Path, name: str) -> None:
    operation = OPERATIONS[name]
    (tmp_path / "steps").mkdir()
    steps = steps_of(tmp_path / "steps", operation)
    chosen = range(steps) if LONG else sorted(seeded(f"kill -9, {name}").sample(range(steps), min(SAMPLED, steps)))
    print(f"{name}: {steps} steps, killed before {list(chosen)}")
    assert steps > 5
    for step in chosen:
        directory = tmp_path / str(step)
        directory.mkdir()
        with filled(directory) as (made, peer):
            prepare(made, peer, operation)
            made.disk.rules(f"kill * / {step}")
            operation(made, peer)
            process = made.process._process
            assert process is not None
            process.wait(30)
            with made.restart() as again:
                check(made, again, operation)


@pytest.mark.parametrize("call", ["rename", "unlink"])
def test_a_topic_that_cannot_be_deleted_does_not_keep_the_broker_from_the_others(tmp_path: Path, call: str) -> None:
    with filled(tmp_path) as (made, _):
        path = "/victim-0" if call == "rename" else "/victim-0."
        made.disk.rules(f"{errno.EIO} {call} {path}")
        delete_topic(made, "victim")
        assert made.process.terminate() == 0
        made.process.restart()
        with Broker(made.process.port, 30) as again:
            made.all_there(again, "bystander")
            assert made.write(again, "bystander") == 0
        assert made.process.terminate() == 0
        made.disk.rules()
        made.process.restart()
        with Broker(made.process.port, 30) as again:
            assert again.create("victim") == 0 and again.end_offset("victim") == 0
        assert not list(made.process.data.glob("victim-0.*"))
        assert made.process.terminate() == 0


# -- row 21


def test_row_21_a_torn_write_of_the_offsets_never_takes_an_acked_commit(tmp_path: Path) -> None:
    rng = random.Random(21)
    with filled(tmp_path, **{"offsets.topic.num.partitions": 1}) as (made, _):
        address = made.process.address
        last = 0
        for round_number in range(3):
            consumer = Consumer({"bootstrap.servers": address, "group.id": "g"})
            for offset in range(last + 1, last + 4):
                consumer.commit(offsets=[TopicPartition("victim", 0, offset)], asynchronous=False)
                last = offset
            consumer.close()
            made.process.kill()
            (segment,) = (made.process.data / "__consumer_offsets-0").glob("*.log")
            with segment.open("ab") as out:  # the write that was under way
                out.write(segment.read_bytes()[: rng.randrange(1, 60)] if round_number else rng.randbytes(50))
            with made.restart():
                consumer = Consumer({"bootstrap.servers": address, "group.id": "g"})
                (found,) = consumer.committed([TopicPartition("victim", 0)], 30)
                consumer.close()
                assert found.offset == last


def test_row_21_a_torn_write_of_the_metadata_keeps_every_topic(tmp_path: Path) -> None:
    with filled(tmp_path) as (made, _):
        made.process.kill()
        for file in made.process.data.glob("klamm-metadata.db-wal"):
            with file.open("ab") as out:
                out.write(bytes(range(256)) * 3)
        with made.restart() as again:
            for topic in ("victim", "bystander"):
                made.all_there(again, topic)
                assert made.write(again, topic) == 0


def test_a_broker_that_cannot_read_its_metadata_says_so_and_ends(tmp_path: Path) -> None:
    with filled(tmp_path) as (made, _):
        assert made.process.terminate() == 0
        made.disk.rules(f"{errno.EIO} pread klamm-metadata.db")
        with pytest.raises(BrokerFailed, match="exit code 3"):
            made.process.start()
