"""One broker, one JVM for tools and one process of each client, for all tests of this directory (of a test process)."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from klamm.client.blocking import NodeClient
from tests.clients.driver import Driver, Member
from tests.clients.kafka_tools import KafkaTools
from tests.clients.matrix import PARTITIONS
from tests.clients.raw import create
from tests.clients.table import HEAD, cells, table
from tests.support.apache_kafka import ApacheKafka, apache_kafka
from tests.support.broker_process import BrokerProcess
from tests.support.jars import JAVA
from tests.support.java_process import JavaProcess

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("clients")
            # kafka-python reads its schemas with functions that Python 3.11 and 3.12 call deprecated.
            item.add_marker(pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning"))


CELLS: list[tuple[dict[str, object], bool]] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    facts = dict(report.user_properties)
    if "column" in facts and (report.when == "call" or report.failed):
        CELLS.append((facts, report.passed))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The clients' table goes where KLAMM_MATRIX says, or to the screen if one client was asked for."""
    if CELLS and "KLAMM_MATRIX" in os.environ:
        Path(os.environ["KLAMM_MATRIX"]).write_text(f"{HEAD}\n{table(cells(CELLS))}", encoding="utf-8")
    elif CELLS and "KLAMM_CLIENT" in os.environ:
        terminalreporter.write_line(table(cells(CELLS)))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker for all tests: each uses topics of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process
    assert "Traceback" not in process.log(), process.log()[-4000:]


@pytest.fixture
def node(broker: BrokerProcess) -> Iterator[NodeClient]:
    """A connection of our own client to the broker."""
    with NodeClient(broker.host, broker.port) as client:
        yield client


MakeTopic = Callable[..., str]


@pytest.fixture(scope="session")
def make_topic(broker: BrokerProcess) -> MakeTopic:
    """`make_topic(partitions, config)` creates a topic with a name of its own."""
    numbers = itertools.count(1)

    def make(partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        name = f"topic-{next(numbers)}"
        with NodeClient(broker.host, broker.port) as client:
            create(client, name, partitions, config or {})
        return name

    return make


@pytest.fixture(scope="session")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """Apache Kafka itself, where the tests hold both to the same."""
    with apache_kafka(tmp_path_factory.mktemp("apache")) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def commands() -> Iterator[JavaProcess]:
    """The JVM of Apache Kafka's tools."""
    with JavaProcess("tools", JAVA / "commands" / "Commands.java") as process:
        yield process


@pytest.fixture(scope="session")
def tools(commands: JavaProcess, broker: BrokerProcess) -> KafkaTools:
    return KafkaTools(commands, broker.address)


@pytest.fixture(scope="session")
def stock_client() -> Iterator[Callable[[str], Driver]]:
    """A client by its name, one process of each for all tests; it starts when it is first asked for."""
    made: dict[str, Driver] = {}

    def by_name(name: str) -> Driver:
        if name not in made:
            made[name] = Driver(name)
        return made[name]

    yield by_name
    for driver in made.values():
        driver.close()


@pytest.fixture(scope="session")
def group_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with groups that do not wait long for their first members."""
    config = {"group.initial.rebalance.delay.ms": 200}
    with BrokerProcess(tmp_path_factory.mktemp("groups") / "data", config) as process:
        yield process
    assert "Traceback" not in process.log(), process.log()[-4000:]


@pytest.fixture
def topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    """A topic with a name of its own, which is the group's, too."""
    name = re.sub(r"[^a-z0-9-]", "-", request.node.name.lower().removeprefix("test_"))
    with NodeClient(broker.host, broker.port) as client:
        create(client, name, PARTITIONS)
    return name


MakeMember = Callable[..., Member]


@pytest.fixture
def member(broker: BrokerProcess, topic: str) -> Iterator[MakeMember]:
    """`member("confluent-kafka", config)` joins the group of the test, as a process that ends with it."""
    made: list[Driver] = []

    def make(client: str, config: Mapping[str, str] | None = None) -> Member:
        made.append(Driver(client))
        return Member(made[-1], broker.address, topic, topic, config)

    yield make
    for driver in made:
        driver.close()
