"""One broker process, one JVM and the five stock clients for all tests of this directory (of one test process)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from klamm.client.blocking import NodeClient
from tests.clients.kafka_tools import KafkaTools
from tests.clients.raw import create
from tests.clients.stock_clients import CLIENTS, AioKafka, Confluent, Java, KafkaPython, Kcat, StockClient
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
def java_client() -> Iterator[JavaProcess]:
    with JavaProcess("clients", JAVA / "stock" / "StockClient.java") as process:
        yield process


@pytest.fixture(scope="session")
def commands() -> Iterator[JavaProcess]:
    """The JVM of Apache Kafka's tools."""
    with JavaProcess("tools", JAVA / "commands" / "Commands.java") as process:
        yield process


@pytest.fixture(scope="session")
def tools(commands: JavaProcess, broker: BrokerProcess) -> KafkaTools:
    return KafkaTools(commands, broker.address)


@pytest.fixture(scope="session")
def stock_client(request: pytest.FixtureRequest) -> Callable[[str], StockClient]:
    """A client by its name; the JVM starts when the Java client is first asked for."""
    made: dict[str, StockClient] = {
        "confluent": Confluent(),
        "kafka-python": KafkaPython(),
        "aiokafka": AioKafka(),
        "kcat": Kcat(),
    }

    def by_name(name: str) -> StockClient:
        assert name in CLIENTS
        if name not in made:
            made[name] = Java(request.getfixturevalue("java_client"))
        return made[name]

    return by_name
