"""A rolling restart: the members of a group go and come back one after the other under load, and the broker is killed.

Every member is librdkafka in a thread: it processes what it polls, then commits it. `Ledger` sees it all: owners of
partitions, processed records, committed offsets. What must hold, and is checked while it runs or at the end: each
acknowledged record is processed at least once; no committed offset goes back; and where assignments are sticky, a
restart moves at most twice the partitions of the member that was restarted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from klamm.client.blocking import NodeClient
from klamm.client.errors import ClientError
from klamm.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.clients.raw import create
from tests.support.broker_process import BrokerProcess, wait_for

TOPIC: Final = "rolled"
GROUP: Final = "rolling"
CONFIG: Final = {
    "group.initial.rebalance.delay.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 500,
}
CLASSIC: Final = {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 300}
PROTOCOLS: Final[Mapping[str, Mapping[str, Any]]] = {
    "eager": {**CLASSIC, "partition.assignment.strategy": "range"},
    "cooperative": {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}
STICKY: Final = ("cooperative", "consumer")
SETTLE_S: Final = 90.0
AGAIN: Final = {  # the next owner repeats a commit refused with one of these
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._ASSIGNMENT_LOST,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._DESTROY,
}


@dataclass
class Ledger:
    """The observations of the members and the producer. `moves` counts the partitions that got another owner."""

    owner: dict[int, str] = field(default_factory=dict)
    last_owner: dict[int, str] = field(default_factory=dict)
    moves: int = 0
    processed: dict[int, set[int]] = field(default_factory=dict)
    acked: dict[int, set[int]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def assign(self, member: str, partitions: Iterable[int]) -> None:
        with self.lock:
            for partition in partitions:
                self.owner[partition] = member
                if self.last_owner.get(partition) not in (None, member):
                    self.moves += 1
                self.last_owner[partition] = member

    def revoke(self, member: str, partitions: Iterable[int]) -> None:
        with self.lock:
            for partition in partitions:
                if self.owner.get(partition) == member:
                    del self.owner[partition]

    def shares(self) -> dict[str, int]:
        """How many partitions each member has."""
        with self.lock:
            owners = list(self.owner.values())
        return {owner: owners.count(owner) for owner in owners}

    def fail(self, text: str) -> None:
        with self.lock:
            self.failures.append(text)


class RollingMember(threading.Thread):
    """A thread that polls, processes and commits, until it is made to leave."""

    def __init__(self, name: str, address: str, config: Mapping[str, Any], ledger: Ledger) -> None:
        super().__init__(name=name, daemon=True)
        self._ledger = ledger
        self._leaving = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": GROUP,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
                **config,
            }
        )
        self._consumer.subscribe([TOPIC], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)

    def _on_assign(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._ledger.assign(self.name, [partition.partition for partition in partitions])

    def _on_revoke(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._ledger.revoke(self.name, [partition.partition for partition in partitions])

    def leave(self) -> None:
        self._leaving.set()
        self.join(SETTLE_S)
        if self.is_alive():
            self._ledger.fail(f"{self.name} does not come to its end")

    def run(self) -> None:
        try:
            while not self._leaving.is_set():
                self._process(self._consumer.consume(200, 0.1))
        except Exception as error:
            self._ledger.fail(f"{self.name}: {error!r}")
        finally:
            self._consumer.close()

    def _process(self, messages: list[Message]) -> None:
        good = [message for message in messages if self._is_record(message)]
        positions: dict[int, int] = {}
        with self._ledger.lock:
            for message in good:
                partition, offset = message.partition(), message.offset()
                assert partition is not None and offset is not None
                self._ledger.processed.setdefault(partition, set()).add(offset)
                positions[partition] = offset + 1
        if positions:
            self._commit([TopicPartition(TOPIC, partition, offset) for partition, offset in positions.items()])

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        if error is not None and not error.retriable() and error.code() not in AGAIN:
            self._ledger.fail(f"{self.name}: {error}")
        return error is None

    def _commit(self, offsets: list[TopicPartition]) -> None:
        try:
            results = self._consumer.commit(offsets=offsets, asynchronous=False) or []
            errors = [one.error for one in results if one.error is not None]
        except KafkaException as error:
            errors = [error.args[0]]
        for one in errors:
            if one.code() not in AGAIN:
                self._ledger.fail(f"{self.name}: commit: {one}")


class Load(threading.Thread):
    """An idempotent producer that fills all partitions at a steady rate."""

    def __init__(self, address: str, partitions: int, ledger: Ledger, rate: int) -> None:
        super().__init__(name="load", daemon=True)
        self._ledger = ledger
        self._partitions = partitions
        self._rate = rate
        self.stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "delivery.timeout.ms": 300_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        number = 0
        while not self.stopping.wait(0.05):
            for _ in range(self._rate // 20):
                self._producer.produce(
                    TOPIC, b"%d" % number, partition=number % self._partitions, on_delivery=self._delivered
                )
                number += 1
            self._producer.poll(0)
        if self._producer.flush(SETTLE_S):
            self._ledger.fail("not everything was delivered")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is not None or partition is None or offset is None:
            self._ledger.fail(f"delivery: {error}")
            return
        with self._ledger.lock:
            self._ledger.acked.setdefault(partition, set()).add(offset)


class CommitWatch(threading.Thread):
    """A thread that asks for the committed offsets all the time."""

    def __init__(self, broker: BrokerProcess, partitions: int, ledger: Ledger) -> None:
        super().__init__(name="commits", daemon=True)
        self._broker = broker
        self._ledger = ledger
        self._topics = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=list(range(partitions)))]
        self.committed: dict[int, int] = {}
        self.stopping = threading.Event()
        self.answers = 0

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                with NodeClient(self._broker.host, self._broker.port, timeout_s=10) as client:
                    while not self.stopping.wait(0.1):
                        self._look(client.request(OffsetFetchRequest(group_id=GROUP, topics=self._topics), 7))
            except ClientError:
                self.stopping.wait(0.05)  # the broker is away

    def _look(self, response: Any) -> None:
        if response.error_code:
            return  # the group is being loaded
        self.answers += 1
        for partition in response.topics[0].partitions:
            index, offset = partition.partition_index, partition.committed_offset
            before = self.committed.get(index, -1)
            if offset < before:
                self._ledger.fail(f"partition {index}: the committed offset went back from {before} to {offset}")
            self.committed[index] = offset


class RollingRestart:
    """One campaign with one protocol."""

    def __init__(self, directory: Path, protocol: str, members: int, partitions: int) -> None:
        self.protocol = protocol
        self.partitions = partitions
        self.share = partitions // members
        self.broker = BrokerProcess(directory / "data", CONFIG)
        self.ledger = Ledger()
        self.names = [f"member-{number:02}" for number in range(members)]
        self.members: dict[str, RollingMember] = {}
        self.moved: list[int] = []

    def run(self, restarts: int, *, rate: int, kill_every: int) -> None:
        self.broker.start()
        with NodeClient(self.broker.host, self.broker.port) as client:
            create(client, TOPIC, self.partitions)
        load = Load(self.broker.address, self.partitions, self.ledger, rate)
        watch = CommitWatch(self.broker, self.partitions, self.ledger)
        for name in self.names:
            self._join(name)
        self._settle()
        load.start()
        watch.start()
        for number in range(restarts):
            self._restart(self.names[number % len(self.names)], taken_over=number % 2 == 0)
            if number % kill_every == kill_every - 1:
                self._kill()
        load.stopping.set()
        load.join(SETTLE_S)
        wait_for(self._all_processed, SETTLE_S, "every record processed")
        wait_for(lambda: self._all_committed(watch.committed), SETTLE_S, "every record committed")
        watch.stopping.set()
        watch.join(SETTLE_S)
        for member in self.members.values():
            member.leave()
        assert watch.answers > restarts
        assert self.broker.terminate() == 0

    def _join(self, name: str) -> None:
        self.members[name] = RollingMember(name, self.broker.address, PROTOCOLS[self.protocol], self.ledger)
        self.members[name].start()

    def _restart(self, name: str, *, taken_over: bool) -> None:
        self.ledger.moves = 0
        self.members.pop(name).leave()
        if taken_over:  # the others have its part before it is back
            wait_for(lambda: len(self.ledger.owner) == self.partitions, SETTLE_S, f"the part of {name} taken over")
        self._join(name)
        self._settle()
        self.moved.append(self.ledger.moves)

    def _settle(self) -> None:
        """Wait until every member has its share, and for a heartbeat or two more."""
        even = dict.fromkeys(self.names, self.share)
        wait_for(lambda: bool(self.ledger.failures) or self.ledger.shares() == even, SETTLE_S, "a balanced group")
        assert not self.ledger.failures, self.ledger.failures[:5]

    def _kill(self) -> None:
        self.broker.kill()
        self.broker.restart()
        before = sum(map(len, list(self.ledger.processed.values())))
        wait_for(lambda: sum(map(len, list(self.ledger.processed.values()))) > before, SETTLE_S, "life after the kill")
        self._settle()

    def _all_processed(self) -> bool:
        with self.ledger.lock:
            return all(
                offsets <= self.ledger.processed.get(index, set()) for index, offsets in self.ledger.acked.items()
            )

    def _all_committed(self, committed: Mapping[int, int]) -> bool:
        with self.ledger.lock:
            return all(committed.get(index, -1) > max(offsets) for index, offsets in self.ledger.acked.items())

    def verify(self) -> dict[str, Any]:
        assert not self.ledger.failures, self.ledger.failures[:5]
        log = self.broker.log()
        assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:3000]
        if self.protocol in STICKY:
            assert max(self.moved) >= self.share, f"nothing moved: {self.moved}"
            assert max(self.moved) <= 2 * self.share, f"moved {self.moved}, each member has {self.share}"
        return {"records": sum(map(len, self.ledger.acked.values())), "moved by each restart": self.moved}
