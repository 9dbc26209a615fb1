"""Apache Kafka's own tools copy records exactly once while the broker and the copiers are killed, again and again.

VerifiableProducer fills a topic; a TransactionalMessageCopier for each partition copies it into another, positions and
records in one transaction, some of which it aborts; a VerifiableConsumer reads the copy meanwhile, committed records
only. At the end each partition of the copy must equal the original, record by record, and the reader must have seen
just that.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, TopicPartition

from klamm.client.blocking import NodeClient
from klamm.protocol.messages.describe_groups import DescribeGroupsRequest
from klamm.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.clients.raw import create
from tests.support.broker_process import BrokerProcess, wait_for
from tests.support.jars import classpath, jar, java
from tests.support.transactions import Client

PACKAGE = "org.apache.kafka.tools."
PARTITIONS = 2
ORIGINAL, COPY = "original", "copy"
PATIENCE_S = 120.0
COPIERS = "copiers"
INIT_VERSION = 5
DESCRIBE_VERSION = LEAVE_VERSION = 5
MAX_PAUSE_S = 0.05
MOST_STOPPED_S = 20.0
"""A copier that is stopped while it commits gives up after a minute; a busy machine takes half of that to start one."""
Records = list[list[bytes]]  # the values of each partition, in their order


class Tool:
    """One of Kafka's tools in a JVM of its own; what it prints are JSON lines."""

    def __init__(self, directory: Path, name: str, *arguments: str, class_path: str) -> None:
        self.name = name
        self.events: list[dict[str, Any]] = []
        self.records = 0  # different ones that a VerifiableConsumer has had
        self._errors = directory / f"{name}.err"
        command = [java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", class_path]
        with self._errors.open("a") as errors:
            self.process = subprocess.Popen(
                [*command, PACKAGE + name, *arguments], stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        places: set[tuple[int, int]] = set()
        for line in self.process.stdout:
            if not (line.startswith("{") and line.endswith("}\n")):
                continue  # the last one of the dead may be cut short
            event = json.loads(line)
            self.events.append(event)
            if event.get("name") == "record_data":
                places.add((event["partition"], event["offset"]))
                self.records = len(places)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def finish(self) -> None:
        """Wait until it has ended by itself. Raises AssertionError for an exit code other than 0."""
        code = self.process.wait(PATIENCE_S)
        self._reader.join()
        assert code == 0, f"{self.name} ended with {code}\n{self._errors.read_text()[-3000:]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *what: object) -> None:
        self.kill()


class Copying:
    """One campaign: `seed`, `copy`, `verify`."""

    def __init__(
        self,
        directory: Path,
        rng: random.Random,
        count: int,
        transaction_size: int,
        *,
        group_mode: bool,
        reader_protocol: str,
        old_client: bool = False,
    ) -> None:
        self.directory = directory
        self.rng = rng
        self.count = count
        self.transaction_size = transaction_size
        self.group_mode = group_mode
        self.reader_protocol = reader_protocol
        # With the client of 3.9 in front of its own the copier speaks version 1 of the protocol.
        self._copier_path = classpath("tools", *([jar("clients-old", "kafka-clients-")] if old_client else []))
        self.broker = BrokerProcess(directory / "data", {"group.initial.rebalance.delay.ms": "0"})
        self.copiers: list[Tool] = []
        self.done = [0] * PARTITIONS  # transactions that dead copiers had committed

    # -- the tools ----------------------------------------------------------------------------------------------

    def _properties(self, name: str, **values: object) -> str:
        file = self.directory / f"{name}.properties"
        file.write_text("".join(f"{key.replace('_', '.')}={value}\n" for key, value in values.items()))
        return str(file)

    def seed(self, kills: int) -> None:
        """Fill the original; the broker is killed meanwhile, too."""
        with NodeClient(self.broker.host, self.broker.port) as node:
            for topic in (ORIGINAL, COPY):
                create(node, topic, PARTITIONS)
        config = self._properties("producer", enable_idempotence="true", retries=1000, linger_ms=5)
        arguments = ["--topic", ORIGINAL, "--bootstrap-server", self.broker.address, "--command-config", config]
        arguments += ["--max-messages", str(self.count), "--throughput", "10000" if kills else "-1"]
        arguments += ["--repeating-keys", "1000"]  # all partitions get their share
        with Tool(self.directory, "VerifiableProducer", *arguments, class_path=classpath("tools")) as producer:
            for number in range(1, kills + 1):
                due = self.count * number // (kills + 1)
                wait_for(lambda due=due: len(producer.events) > due, PATIENCE_S, "records")
                self._kill_broker()
            producer.finish()
            acked = sum(event["name"] == "producer_send_success" for event in producer.events)
        assert acked == self.count, [event for event in producer.events if "error" in event["name"]][:3]

    def _copier(self, partition: int) -> Tool:
        arguments = ["--broker-list", self.broker.address, "--input-topic", ORIGINAL, "--output-topic", COPY]
        arguments += ["--input-partition", str(partition), "--consumer-group", COPIERS, "--enable-random-aborts"]
        arguments += ["--transaction-size", str(self.transaction_size), "--transactional-id", f"copier-{partition}"]
        if self.group_mode:
            arguments += ["--group-mode", "--use-group-metadata"]
        return Tool(self.directory, "TransactionalMessageCopier", *arguments, class_path=self._copier_path)

    def _reader(self) -> Tool:
        config = self._properties("consumer", isolation_level="read_committed")
        arguments = ["--topic", COPY, "--bootstrap-server", self.broker.address, "--command-config", config]
        arguments += ["--group-id", "reader", "--verbose", "--group-protocol", self.reader_protocol]
        return Tool(self.directory, "VerifiableConsumer", *arguments, class_path=classpath("tools"))

    # -- copying ------------------------------------------------------------------------------------------------

    def copy(self, broker_kills: int, copier_kills: int) -> list[dict[str, Any]]:
        """Copy everything, with so many kills; return the rows that the reader got meanwhile."""
        kills = ["broker"] * broker_kills + ["copier"] * copier_kills
        self.rng.shuffle(kills)
        with ExitStack() as stack:
            reader = stack.enter_context(self._reader())
            self.copiers = [self._copier(partition) for partition in range(PARTITIONS)]
            stack.callback(self._kill_copiers)
            for what in kills:
                self._await_progress(self.rng.randint(1, self.count * 2 // 3 // len(kills)))
                time.sleep(self.rng.uniform(0, MAX_PAUSE_S))
                if what == "broker":
                    self._kill_broker()
                else:
                    self._kill_copier(self.rng.randrange(PARTITIONS))
            for copier in self.copiers:
                copier.finish()
            try:
                wait_for(lambda: reader.records >= self.count, PATIENCE_S, "everything, for the reader")
            except AssertionError:
                others = [event for event in reader.events if event["name"] != "record_data"]
                print(
                    f"the reader: {reader.records} records, exit code {reader.process.poll()}", *others[-10:], sep="\n"
                )
                raise
            return reader.events

    def _await_progress(self, count: int) -> None:
        """Wait until `count` more records are copied: kills in faster succession would show little."""
        due = self._committed() + count
        try:
            wait_for(lambda: self._committed() >= due or self._are_at_their_end(), PATIENCE_S, "transactions")
        except AssertionError:
            print(f"{due - self._committed()} records are missing", *(copier.events[-2:] for copier in self.copiers))
            print(self.broker.log()[-4000:])
            raise
        assert not self._are_at_their_end(), "too fast: everything is copied"

    def _are_at_their_end(self) -> bool:
        return all(self._is_at_its_end(copier) for copier in self.copiers)

    def _committed(self) -> int:
        last = [copier.events[-1]["totalProcessed"] if copier.events else 0 for copier in self.copiers]
        return sum(self.done) + sum(last)

    def _is_at_its_end(self, copier: Tool) -> bool:
        if copier.process.poll() is not None:
            copier.finish()
        return copier.process.poll() is not None

    def _kill_copiers(self) -> None:
        for copier in self.copiers:
            copier.kill()

    def _kill_broker(self) -> None:
        self.broker.kill()
        self.broker.restart()

    def _kill_copier(self, number: int) -> None:
        """Kill one and start it again; the other waits until it is there, or it would soon have nothing to do.

        Before it has a producer a copier asks for the position of its group, which is not known as long as the
        transaction of the dead is open: that is ended by force, instead of waiting for its timeout.
        """
        if self._is_at_its_end(self.copiers[number]):
            number = 1 - number
        copier, other = self.copiers[number], self.copiers[1 - number]
        copier.kill()
        self.done[number] += copier.events[-1]["totalProcessed"] if copier.events else 0
        other.process.send_signal(signal.SIGSTOP)
        with NodeClient(self.broker.host, self.broker.port, timeout_s=30) as node:
            client = Client(node)
            assert client.init(f"copier-{number}", INIT_VERSION).error_code == 0
            if self.group_mode:
                self._empty_group(client)
        started = self.copiers[number] = self._copier(number)
        with suppress(AssertionError):
            wait_for(lambda: bool(started.events), MOST_STOPPED_S, "the copier")
        other.process.send_signal(signal.SIGCONT)
        wait_for(lambda: bool(started.events), PATIENCE_S, "the copier")

    def _empty_group(self, client: Client) -> None:
        """Let the dead members leave, and the living one, which comes back by itself.

        A copier that is given no partition thinks that all is copied, and ends. While the group counts on one that is
        dead there may be none left, and when the session of the dead ends nobody may be left to copy its partitions.
        """
        (group,) = client.settled(DescribeGroupsRequest(groups=[COPIERS]), DESCRIBE_VERSION).groups
        assert group.error_code == 0, group
        members = [MemberIdentity(member_id=member.member_id) for member in group.members]
        if members:
            left = client.settled(LeaveGroupRequest(group_id=COPIERS, members=members), LEAVE_VERSION)
            assert left.error_code == 0, left

    # -- what must hold -----------------------------------------------------------------------------------------

    def verify(self, events: Sequence[dict[str, Any]]) -> dict[str, int]:
        """Compare everything; return the facts for the report."""
        original, copied = (read_committed(self.broker.address, topic) for topic in (ORIGINAL, COPY))
        values = [value for partition in original for value in partition]
        assert len(values) == len(set(values)) == self.count
        for partition, (before, after) in enumerate(zip(original, copied, strict=True)):
            assert after == before, f"partition {partition}: {difference(before, after)}"
        met = seen(events)
        places = {(partition, offset): value for partition, offset, value in met}
        assert len(places) == len(met), "the reader has met two values at one place"
        read: Records = [[] for _ in range(PARTITIONS)]
        for (partition, _), value in sorted(places.items()):
            read[partition].append(value)
        for partition, (before, after) in enumerate(zip(copied, read, strict=True)):
            assert after == before, f"the reader of partition {partition}: {difference(before, after)}"
        log = self.broker.log()
        assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:3000]
        return {"records": len(values), "read by the reader": sum(e["name"] == "record_data" for e in events)}


def seen(events: Sequence[dict[str, Any]]) -> set[tuple[int, int, bytes]]:
    """Partition, offset and value of each record that a VerifiableConsumer has had; some more than once."""
    return {
        (event["partition"], event["offset"], event["value"].encode())
        for event in list(events)
        if event["name"] == "record_data"
    }


def read_committed(address: str, topic: str) -> Records:
    """Return all committed records of a topic, as librdkafka reads them."""
    found: Records = [[] for _ in range(PARTITIONS)]
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "verify",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        ends = 0
        while ends < PARTITIONS:
            for message in consumer.consume(10_000, 0.5):
                error = message.error()
                if error is not None:
                    assert error.name() == "_PARTITION_EOF", error
                    ends += 1
                    continue
                partition, value = message.partition(), message.value()
                assert partition is not None and isinstance(value, bytes)
                found[partition].append(value)
    finally:
        consumer.close()
    return found


def difference(before: list[bytes], after: list[bytes]) -> str:
    """Where two lists begin to differ."""
    pairs = zip(before, after, strict=False)
    where = next((number for number, (one, other) in enumerate(pairs) if one != other), min(len(before), len(after)))
    return (
        f"{len(after)} records instead of {len(before)}; from record {where} on "
        f"{after[where : where + 3]} instead of {before[where : where + 3]}; "
        f"missing {len(set(before) - set(after))}, doubled {len(after) - len(set(after))}"
    )
