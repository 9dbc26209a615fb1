"""Stock clients in consumer groups: they share partitions, take over, go on from their commits; and the group tools."""

from __future__ import annotations

import asyncio
import gc
import itertools
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

from klamm.client.blocking import NodeClient
from tests.clients.kafka_tools import PACKAGE, KafkaTools
from tests.clients.raw import create
from tests.support.broker_process import BrokerProcess
from tests.support.jars import JAVA
from tests.support.java_process import JavaProcess

# kafka-python leaves sockets to the garbage collector when its broker goes away.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore:unclosed:ResourceWarning"
)

PARTITIONS: Final = 4
TIMEOUT_S: Final = 40.0
POLL_S: Final = 0.1
SESSION_MS: Final = 6_000
CONFIG: Final = {"group.initial.rebalance.delay.ms": 200}

Records = list[tuple[int, int, str]]  # partition, offset, value


class Member(Protocol):
    """One consumer in a group. It must be polled to take part."""

    def poll(self) -> Records: ...

    def assigned(self) -> set[int]: ...

    def commit(self) -> None: ...

    def close(self) -> None: ...


class ConfluentMember:
    """librdkafka. ``revoked`` counts how often partitions were taken away."""

    def __init__(self, address: str, topic: str, group: str, **config: Any) -> None:
        from confluent_kafka import Consumer

        self.revoked: list[set[int]] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 200,
                **{key.replace("_", "."): value for key, value in config.items()},
            }
        )
        self._consumer.subscribe([topic], on_revoke=self._on_revoke)

    def _on_revoke(self, _: object, partitions: Iterable[Any]) -> None:
        self.revoked.append({partition.partition for partition in partitions})

    def poll(self) -> Records:
        records = []
        for message in self._consumer.consume(500, POLL_S):
            error = message.error()
            assert error is None or error.retriable() or "TRANSPORT" in error.name() or "DOWN" in error.name(), error
            if error is None:
                records.append((message.partition(), message.offset(), message.value().decode()))
        return records

    def assigned(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def commit(self) -> None:
        for partition in self._consumer.commit(asynchronous=False):
            assert partition.error is None, partition.error

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonMember:
    """kafka-python."""

    def __init__(self, address: str, topic: str, group: str) -> None:
        from kafka import KafkaConsumer

        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=200,
        )

    def poll(self) -> Records:
        polled = self._consumer.poll(timeout_ms=int(POLL_S * 1000))
        return [(tp.partition, record.offset, record.value.decode()) for tp, rows in polled.items() for record in rows]

    def assigned(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close(autocommit=False)


class AioKafkaMember:
    """aiokafka, on a loop of its own in a thread: it must run while others are polled."""

    def __init__(self, address: str, topic: str, group: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._polling: Future[Any] | None = None
        self._run(self._open(address, topic, group))

    async def _open(self, address: str, topic: str, group: str) -> None:
        from aiokafka import AIOKafkaConsumer
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor

        self._consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=200,
            partition_assignment_strategy=(RangePartitionAssignor,),  # what all makes know
        )
        await self._consumer.start()

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)

    def poll(self) -> Records:
        if self._polling is None:
            self._polling = asyncio.run_coroutine_threadsafe(
                self._consumer.getmany(timeout_ms=int(POLL_S * 1000)), self._loop
            )
        try:
            polled = self._polling.result(2 * POLL_S)
        except TimeoutError:  # in a rebalance, where the others must be polled, too
            return []
        self._polling = None
        return [(tp.partition, record.offset, record.value.decode()) for tp, rows in polled.items() for record in rows]

    def assigned(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def commit(self) -> None:
        self._run(self._consumer.commit())

    def close(self) -> None:
        self._run(self._consumer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class JavaMember:
    """Kafka's own consumer with the classic protocol."""

    numbers = itertools.count(1)

    def __init__(self, process: JavaProcess, address: str, topic: str, group: str) -> None:
        self._process = process
        self._name = f"member-{next(self.numbers)}"
        self._assigned: set[int] = set()
        config = {
            "bootstrap.servers": address,
            "group.id": group,
            "group.protocol": "classic",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "session.timeout.ms": str(SESSION_MS),
            "heartbeat.interval.ms": "200",
        }
        self._ask("open", config=config, topic=topic)

    def _ask(self, what: str, **more: Any) -> Any:
        answer = self._process.ask({"do": what, "member": self._name, **more})
        assert "error" not in answer, answer
        return answer["ok"]

    def poll(self) -> Records:
        answer = self._ask("poll", timeout_ms=int(POLL_S * 1000))
        self._assigned = set(answer["assigned"])
        return [tuple(record) for record in answer["records"]]

    def assigned(self) -> set[int]:
        return self._assigned

    def commit(self) -> None:
        self._ask("commit")

    def close(self) -> None:
        self._ask("close")


MakeMember = Callable[..., Member]
CLIENTS: Final = ("confluent", "kafka-python", "aiokafka", pytest.param("java", marks=pytest.mark.java))
RESTARTED: Final = (
    "confluent",
    pytest.param("kafka-python", marks=pytest.mark.campaign),
    pytest.param("aiokafka", marks=pytest.mark.campaign),
    pytest.param("java", marks=[pytest.mark.java, pytest.mark.campaign]),
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose groups do not wait long for their first members. The tests restart it."""
    with BrokerProcess(tmp_path_factory.mktemp("groups") / "data", CONFIG) as process:
        yield process
    assert "Traceback" not in process.log(), process.log()[-4000:]


@pytest.fixture(scope="module")
def tools(commands: JavaProcess, broker: BrokerProcess) -> KafkaTools:
    return KafkaTools(commands, broker.address)


@pytest.fixture(scope="session")
def java_members() -> Iterator[JavaProcess]:
    with JavaProcess("clients", JAVA / "groups" / "GroupMembers.java") as process:
        yield process


@pytest.fixture
def topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    """A topic with a name of its own, which is the group's, too."""
    name = re.sub(r"[^a-z0-9-]", "-", request.node.name.lower().removeprefix("test_"))
    with NodeClient(broker.host, broker.port) as client:
        create(client, name, PARTITIONS, {})
    return name


@pytest.fixture
def member(broker: BrokerProcess, topic: str, request: pytest.FixtureRequest) -> Iterator[MakeMember]:
    """`member("confluent")` joins the group of the test; what is still there at the end is closed."""
    made: list[Member] = []

    def make(client: str, **config: Any) -> Member:
        opened: Member
        if client == "confluent":
            opened = ConfluentMember(broker.address, topic, topic, **config)
        elif client == "kafka-python":
            opened = KafkaPythonMember(broker.address, topic, topic)
        elif client == "aiokafka":
            opened = AioKafkaMember(broker.address, topic, topic)
        else:
            opened = JavaMember(request.getfixturevalue("java_members"), broker.address, topic, topic)
        made.append(opened)
        return opened

    yield make
    for opened in made:
        if opened not in CLOSED:
            opened.close()
    made.clear()
    CLOSED.clear()
    gc.collect()  # under the filter above


CLOSED: list[Member] = []


def leave(member: Member) -> None:
    member.close()
    CLOSED.append(member)


def send(broker: BrokerProcess, topic: str, values: Sequence[str]) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.address})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0


def poll_until(done: Callable[[], bool], *members: Member) -> Records:
    """Poll all in turn until it is so."""
    records: Records = []
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline, [sorted(member.assigned()) for member in members]
        for member in members:
            records += member.poll()
    return records


def read(count: int, *members: Member) -> list[str]:
    """The values of so many records."""
    records: Records = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records"
        for member in members:
            records += member.poll()
    return sorted(value for _, _, value in records)


def shared(*members: Member) -> Callable[[], bool]:
    """Every partition has one owner, and every member has some."""

    def check() -> bool:
        owned = [member.assigned() for member in members]
        return all(owned) and sorted(itertools.chain(*owned)) == list(range(PARTITIONS))

    return check


def values(beginning: str, count: int = 40) -> list[str]:
    return sorted(f"{beginning}{number:04}" for number in range(count))


@pytest.mark.parametrize("client", CLIENTS)
def test_two_members_share_the_partitions_and_one_takes_over(
    broker: BrokerProcess, topic: str, member: MakeMember, client: str
) -> None:
    send(broker, topic, values("a"))
    first, second = member(client), member(client)
    early = poll_until(shared(first, second), first, second)
    seen = {(partition, offset) for partition, offset, _ in early}
    while len(seen) < 40:
        seen |= {(partition, offset) for one in (first, second) for partition, offset, _ in one.poll()}
    for one in (first, second):
        one.commit()
    leave(first)
    poll_until(shared(second), second)
    send(broker, topic, values("b"))
    assert read(40, second) == values("b")


@pytest.mark.parametrize("client", RESTARTED)
def test_a_group_goes_on_from_its_commit_after_the_broker_was_killed(
    broker: BrokerProcess, topic: str, member: MakeMember, client: str
) -> None:
    send(broker, topic, values("a"))
    first = member(client)
    assert read(40, first) == values("a")
    first.commit()
    leave(first)
    broker.kill()
    broker.restart()
    send(broker, topic, values("b"))
    second = member(client)
    assert read(40, second) == values("b")


@pytest.mark.parametrize("client", RESTARTED)
def test_a_member_stays_in_its_group_over_a_restart_of_the_broker(
    broker: BrokerProcess, topic: str, member: MakeMember, client: str
) -> None:
    send(broker, topic, values("a"))
    first = member(client)
    assert read(40, first) == values("a")
    first.commit()
    assert broker.terminate() == 0
    broker.restart()
    send(broker, topic, values("b"))
    assert set(read(40, first)) >= set(values("b"))
    first.commit()


@pytest.mark.java
def test_members_of_four_makes_are_one_group(broker: BrokerProcess, topic: str, member: MakeMember) -> None:
    makes = ("aiokafka", "confluent", "kafka-python", "java")  # aiokafka begins by waiting until it has joined
    members = [member(client) for client in makes]
    poll_until(shared(*members), *members)
    send(broker, topic, values("a"))
    assert read(40, *members) == values("a")


def test_cooperative_members_keep_what_they_need_not_give(
    broker: BrokerProcess, topic: str, member: MakeMember
) -> None:
    first = member("confluent", partition_assignment_strategy="cooperative-sticky")
    poll_until(shared(first), first)
    second = member("confluent", partition_assignment_strategy="cooperative-sticky")
    poll_until(shared(first, second), first, second)
    assert isinstance(first, ConfluentMember)
    assert [len(given) for given in first.revoked if given] == [PARTITIONS // 2]
    send(broker, topic, values("a"))
    assert read(40, first, second) == values("a")


def test_a_static_member_comes_back_without_a_rebalance(broker: BrokerProcess, topic: str, member: MakeMember) -> None:
    first = member("confluent", group_instance_id="one")
    second = member("confluent", group_instance_id="two")
    poll_until(shared(first, second), first, second)
    owned = second.assigned()
    assert isinstance(first, ConfluentMember)
    first.revoked.clear()
    leave(second)  # a static member does not say so
    again = member("confluent", group_instance_id="two")
    poll_until(shared(first, again), first, again)
    assert again.assigned() == owned and first.revoked == []


# -- Kafka's tools --------------------------------------------------------------------------------------------------


def groups(tools: KafkaTools, *arguments: str) -> str:
    return tools._ask(PACKAGE + "consumer.group.ConsumerGroupCommand", *arguments)


def rows(described: str) -> list[dict[str, str]]:
    """A table by its header."""
    lines = [line.split() for line in described.splitlines() if line.strip()]
    start = next(number for number, line in enumerate(lines) if line[0] == "GROUP")
    return [dict(zip(lines[start], line, strict=False)) for line in lines[start + 1 :]]


@pytest.mark.java
def test_consumer_groups_tool(broker: BrokerProcess, topic: str, member: MakeMember, tools: KafkaTools) -> None:
    send(broker, topic, values("a"))
    consumer = member("confluent", client_id="reader")
    read(40, consumer)
    consumer.commit()
    send(broker, topic, values("b"))
    assert topic in groups(tools, "--list").split()
    described = rows(groups(tools, "--describe", "--group", topic))
    assert {row["PARTITION"]: (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in described} == {
        str(index): ("10", "20", "10") for index in range(PARTITIONS)
    }
    assert {row["CLIENT-ID"] for row in described} == {"reader"}
    (state,) = rows(groups(tools, "--describe", "--state", "--group", topic))
    assert "Stable" in state.values() and "range" in state.values(), state
    (members,) = rows(groups(tools, "--describe", "--members", "--verbose", "--group", topic))
    assert members["CLIENT-ID"] == "reader" and str(PARTITIONS) in members.values()
    refused = groups(tools, "--delete", "--group", topic)
    assert "is not empty" in refused or "NonEmpty" in refused.replace(" ", ""), refused
    leave(consumer)
    assert "Empty" in groups(tools, "--list", "--state", "empty")


@pytest.mark.java
@pytest.mark.parametrize(
    ("option", "offset"),
    [
        (["--to-earliest"], "0"),
        pytest.param(["--to-latest"], "10", marks=pytest.mark.campaign),
        pytest.param(["--to-offset", "3"], "3", marks=pytest.mark.campaign),
        (["--shift-by", "-2"], "5"),
        pytest.param(["--to-datetime", "2000-01-01T00:00:00.000"], "0", marks=pytest.mark.campaign),
        pytest.param(["--by-duration", "P100D"], "0", marks=pytest.mark.campaign),
        pytest.param(["--to-current"], "7", marks=pytest.mark.campaign),
    ],
)
def test_reset_offsets(broker: BrokerProcess, topic: str, tools: KafkaTools, option: list[str], offset: str) -> None:
    send(broker, topic, values("a"))
    everything = ["--group", topic, "--topic", topic, "--reset-offsets", "--execute"]
    groups(tools, *everything, "--to-offset", "7")
    printed = rows(groups(tools, *everything, *option))
    assert [row["NEW-OFFSET"] for row in printed] == [offset] * PARTITIONS
    described = rows(groups(tools, "--describe", "--group", topic))
    assert [row["CURRENT-OFFSET"] for row in described] == [offset] * PARTITIONS


@pytest.mark.java
def test_delete_offsets_and_groups(broker: BrokerProcess, topic: str, tools: KafkaTools) -> None:
    send(broker, topic, values("a"))
    groups(tools, "--group", topic, "--topic", topic, "--reset-offsets", "--execute", "--to-latest")
    assert "Successful" in groups(tools, "--delete-offsets", "--group", topic, "--topic", f"{topic}:0")
    described = rows(groups(tools, "--describe", "--group", topic))
    assert sorted(row["PARTITION"] for row in described) == ["1", "2", "3"]
    assert "successful" in groups(tools, "--delete", "--group", topic)
    assert topic not in groups(tools, "--list").split()


@pytest.mark.java
def test_console_consumer_in_a_group(broker: BrokerProcess, topic: str, tools: KafkaTools) -> None:
    send(broker, topic, values("a"))
    arguments = ["--topic", topic, "--group", topic, "--timeout-ms", "10000"]
    printed = tools.console_consumer(*arguments, "--from-beginning", "--max-messages", "40")
    assert sorted(printed.split()) == values("a")
    send(broker, topic, values("b"))
    assert sorted(tools.console_consumer(*arguments, "--max-messages", "40").split()) == values("b")


@pytest.mark.java
def test_kafka_reads_our_offsets_topic(
    broker: BrokerProcess, topic: str, tools: KafkaTools, member: MakeMember
) -> None:
    send(broker, topic, values("a"))
    consumer = member("confluent", client_id="reader")
    read(40, consumer)
    consumer.commit()
    offsets = tools.console_consumer(
        "--topic",
        "__consumer_offsets",
        "--from-beginning",
        "--timeout-ms",
        "3000",
        "--formatter",
        PACKAGE + "consumer.OffsetsMessageFormatter",
    )
    assert f'"group":"{topic}"' in offsets and '"offset":10' in offsets
    metadata = tools.console_consumer(
        "--topic",
        "__consumer_offsets",
        "--from-beginning",
        "--timeout-ms",
        "3000",
        "--formatter",
        PACKAGE + "consumer.GroupMetadataMessageFormatter",
    )
    assert f'"group":"{topic}"' in metadata and '"clientId":"reader"' in metadata
    files = [
        file for file in Path(broker.data).glob("__consumer_offsets-*/*.log") if topic.encode() in file.read_bytes()
    ]
    assert files
    dumped = tools.dump_log(files, "--offsets-decoder")
    assert f'"group":"{topic}"' in dumped and '"offset":10' in dumped


@pytest.mark.java
def test_what_is_not_there_is_said(topic: str, tools: KafkaTools) -> None:
    assert "GroupIdNotFoundException" in groups(tools, "--delete", "--group", "no-such-group")
