"""`kafka-transactions` of Apache Kafka 4.3, and what the Admin of the Java client 4.4 does with transactions.

Each is judged by its effect, or by what it tells about transactions that were made request by request.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from klamm.client.blocking import NodeClient
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.clients.kafka_tools import PACKAGE, KafkaTools, ToolFailed
from tests.clients.raw import create
from tests.support.broker_process import BrokerProcess, wait_for
from tests.support.jars import JAVA
from tests.support.java_process import JavaProcess
from tests.support.transactions import TOPIC, Client, codes

pytestmark = pytest.mark.java

NAMES = itertools.count()
TWO_HOURS_MS = 2 * 60 * 60 * 1000
Identity = tuple[int, int]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("transactions") / "data") as process:
        yield process
    assert "Traceback" not in process.log(), process.log()[-4000:]


@pytest.fixture(scope="module")
def node(broker: BrokerProcess) -> Iterator[NodeClient]:
    with NodeClient(broker.host, broker.port, timeout_s=30) as client:
        create(client, TOPIC, 2)
        asked = FindCoordinatorRequest(key_type=1, coordinator_keys=["x"])
        wait_for(lambda: not client.request(asked, 4).coordinators[0].error_code, 30, "a transaction coordinator")
        yield client


@pytest.fixture
def client(node: NodeClient) -> Client:
    return Client(node)


@pytest.fixture
def transactions(commands: JavaProcess, broker: BrokerProcess) -> Callable[..., list[dict[str, str]]]:
    """`transactions("list")` runs the tool; the rows that it prints, by the names of their columns."""
    tools = KafkaTools(commands, broker.address)

    def run(*arguments: str) -> list[dict[str, str]]:
        printed = tools._ask(PACKAGE + "TransactionsCommand", *arguments)
        lines = [[cell.strip() for cell in line.split("\t")] for line in printed.splitlines() if line]
        return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]

    return run


@pytest.fixture(scope="module")
def java_admin(broker: BrokerProcess) -> Iterator[Callable[..., Any]]:
    """`java_admin("fence", ids=[...])` asks the Admin of the Java client."""
    with JavaProcess("clients", JAVA / "transactions" / "TransactionAdmin.java") as process:
        process.ask({"bootstrap": broker.address})
        yield lambda do, **more: process.ask({"do": do, **more})


@pytest.fixture
def name() -> str:
    return f"id-{next(NAMES)}"


def opened(client: Client, name: str) -> Identity:
    """A producer with an open transaction in partition 0."""
    identity = client.started(name, 5)
    assert codes(client.produce(name, identity, 12)) == {0}
    return identity


def open_of(rows: list[dict[str, str]], identity: Identity) -> list[str]:
    """Where the open transactions of a producer begin, in what describe-producers prints."""
    return [
        row["CurrentTransactionStartOffset"]
        for row in rows
        if row["ProducerId"] == str(identity[0]) and row["CurrentTransactionStartOffset"] != "None"
    ]


PARTITION = ("--topic", TOPIC, "--partition", "0")


@pytest.fixture
def hanging(commands: JavaProcess, broker: BrokerProcess, node: NodeClient, name: str) -> Iterator[Identity]:
    """A producer with a transaction in partition 0 that its coordinator does not know: written two hours ago, while
    nothing was verified."""
    tools = KafkaTools(commands, broker.address)
    entity = ("--entity-type", "brokers", "--entity-default")
    tools.configs("--alter", *entity, "--add-config", "transaction.partition.verification.enable=false")
    client = Client(node, lambda: int(time.time() * 1000) - TWO_HOURS_MS)
    identity = client.started(name, 4)
    assert codes(client.produce(name, identity, 11)) == {0}
    yield identity
    tools.configs("--alter", *entity, "--delete-config", "transaction.partition.verification.enable")


def test_list_knows_all_filters(
    client: Client, transactions: Callable[..., list[dict[str, str]]], java_admin: Callable[..., Any], name: str
) -> None:
    identity = opened(client, f"{name}-open")
    client.started(f"{name}-empty", 5)
    rows = {row["TransactionalId"]: row for row in transactions("list")}
    assert rows[f"{name}-open"]["TransactionState"] == "Ongoing"
    assert rows[f"{name}-open"]["ProducerId"] == str(identity[0])
    assert rows[f"{name}-empty"]["TransactionState"] == "Empty"
    (row,) = transactions("list", "--transactional-id-pattern", f"{name}-o.*")
    assert row["TransactionalId"] == f"{name}-open"
    assert transactions("list", "--transactional-id-pattern", f"{name}-o") == []  # the whole name has to match
    old = {row["TransactionalId"] for row in transactions("list", "--duration-filter", "3600000")}
    assert f"{name}-open" not in old
    mine = f"{name}-.*"
    both = {f"{name}-open": "Ongoing", f"{name}-empty": "Empty"}
    assert java_admin("list", pattern=mine) == {"found": both}
    assert java_admin("list", pattern=mine, states=["Ongoing"]) == {"found": {f"{name}-open": "Ongoing"}}
    assert java_admin("list", pattern=mine, states=["CompleteAbort"]) == {"found": {}}
    assert java_admin("list", producer_ids=[identity[0]]) == {"found": {f"{name}-open": "Ongoing"}}
    assert f"{name}-open" in java_admin("list", longer_ms=0)["found"]
    assert f"{name}-open" not in java_admin("list", longer_ms=3_600_000)["found"]
    assert java_admin("list", pattern="(") == {"error": "InvalidRegularExpression"}
    client.end(f"{name}-open", identity, 5, commit=False)


def test_describe_tells_the_transaction(
    client: Client, transactions: Callable[..., list[dict[str, str]]], name: str
) -> None:
    identity = opened(client, name)
    (row,) = transactions("describe", "--transactional-id", name)
    assert row["TransactionState"] == "Ongoing"
    assert (row["ProducerId"], row["ProducerEpoch"]) == (str(identity[0]), str(identity[1]))
    assert row["TransactionTimeoutMs"] == "60000"
    assert row["TopicPartitions"] == f"{TOPIC}-0"
    client.end(name, identity, 5, commit=True)
    assert client.complete(name) == "CompleteCommit"
    (row,) = transactions("describe", "--transactional-id", name)
    assert (row["TransactionState"], row["TopicPartitions"]) == ("CompleteCommit", "")
    with pytest.raises(ToolFailed, match="could not be found"):
        transactions("describe", "--transactional-id", "nobody")


def test_describe_producers_tells_what_is_open(
    client: Client, transactions: Callable[..., list[dict[str, str]]], name: str
) -> None:
    client.stable()
    start = client.ends()[1]
    identity = opened(client, name)
    for more in ((), ("--broker-id", "1")):
        assert open_of(transactions("describe-producers", *PARTITION, *more), identity) == [str(start)]
    client.end(name, identity, 5, commit=True)
    client.stable()
    assert open_of(transactions("describe-producers", *PARTITION), identity) == []


def test_find_hanging_finds_what_no_coordinator_knows(
    client: Client, transactions: Callable[..., list[dict[str, str]]], hanging: Identity, name: str
) -> None:
    known = opened(client, f"{name}-known")
    start = str(client.ends()[1])
    for where in (("--broker-id", "1"), ("--topic", TOPIC), PARTITION):
        (row,) = transactions("find-hanging", *where)
        assert (row["Topic"], row["Partition"], row["ProducerId"]) == (TOPIC, "0", str(hanging[0]))
        assert (row["ProducerEpoch"], row["StartOffset"]) == (str(hanging[1]), start)
    assert transactions("find-hanging", "--topic", TOPIC, "--partition", "1") == []
    assert transactions("find-hanging", "--topic", TOPIC, "--max-transaction-timeout", "180") == []
    transactions("abort", *PARTITION, "--start-offset", start)
    assert transactions("find-hanging", "--topic", TOPIC) == []
    client.end(f"{name}-known", known, 5, commit=True)
    client.stable()  # nothing holds readers up any more


def test_abort_in_its_older_form(
    client: Client, transactions: Callable[..., list[dict[str, str]]], hanging: Identity
) -> None:
    identity = ("--producer-id", str(hanging[0]), "--producer-epoch", str(hanging[1]))
    transactions("abort", *PARTITION, *identity, "--coordinator-epoch", "0")
    client.stable()
    assert open_of(transactions("describe-producers", *PARTITION), hanging) == []


def test_abort_refuses_what_is_not_open(transactions: Callable[..., list[dict[str, str]]], client: Client) -> None:
    with pytest.raises(ToolFailed, match="Could not find any open transactions"):
        transactions("abort", *PARTITION, "--start-offset", "999999")


def test_the_admin_aborts_in_one_partition(client: Client, java_admin: Callable[..., Any], hanging: Identity) -> None:
    where: dict[str, Any] = {"topic": TOPIC, "partition": 0, "producer_id": hanging[0], "coordinator_epoch": 0}
    before = client.ends()
    assert before[0] > before[1]
    assert java_admin("abort", **where, epoch=hanging[1]) == {}
    client.stable()
    end = client.ends()
    assert java_admin("abort", **where, epoch=hanging[1] - 1) == {"error": "InvalidProducerEpochException"}
    assert client.ends() == end


@pytest.mark.parametrize("by", ["kafka-transactions", "Admin"])
def test_a_transaction_is_terminated_by_force(
    by: str,
    client: Client,
    transactions: Callable[..., list[dict[str, str]]],
    java_admin: Callable[..., Any],
    name: str,
) -> None:
    identity = opened(client, name)
    if by == "Admin":
        assert java_admin("terminate", id=name) == {}
    else:
        transactions("forceTerminateTransaction", "--transactionalId", name)
    client.stable()
    assert codes(client.produce(name, identity, 12, sequence=1)) == {ErrorCode.INVALID_PRODUCER_EPOCH}
    assert client.end(name, identity, 5, commit=True).error_code == ErrorCode.PRODUCER_FENCED
    client.stable()


def test_fence_producers_fences_them(client: Client, java_admin: Callable[..., Any], name: str) -> None:
    before = {f"{name}-{number}": opened(client, f"{name}-{number}") for number in range(3)}
    fenced = java_admin("fence", ids=[*before, f"{name}-new"])["fenced"]
    client.stable()
    for each, identity in before.items():
        producer_id, epoch = fenced[each]
        assert producer_id == identity[0]
        assert epoch > identity[1]
        assert codes(client.produce(each, identity, 12, sequence=1)) == {ErrorCode.INVALID_PRODUCER_EPOCH}
        assert client.end(each, identity, 5, commit=True).error_code == ErrorCode.PRODUCER_FENCED
    assert fenced[f"{name}-new"][1] == 0
