"""Every stock client does all that it can: the cells of docs/clients.md, each a test.

`make clients` runs all and writes the table, `make clients CLIENT=sarama` runs one client and prints its row. A client
whose toolchain is not there reads n/a in every column; those that `make test` runs must be there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from klamm.client.blocking import NodeClient
from tests.clients.driver import CLIENTS, Driver, Unavailable
from tests.clients.matrix import COLUMNS, Bench, Corpus, NotApplicable
from tests.support.broker_process import BrokerProcess

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

CONFIG = {"group.initial.rebalance.delay.ms": 200}


def clients() -> list[object]:
    wanted = os.environ.get("KLAMM_CLIENT", "")
    names = [name for name in CLIENTS if wanted in ("", name)]
    if not names:
        raise pytest.UsageError(f"CLIENT={wanted} is none of {', '.join(CLIENTS)}")
    return [
        pytest.param(name, marks=() if CLIENTS[name].in_make_test else pytest.mark.campaign, id=name) for name in names
    ]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose groups do not wait long for their first members."""
    with BrokerProcess(tmp_path_factory.mktemp("matrix") / "data", CONFIG) as process:
        yield process
    assert "Traceback" not in process.log(), process.log()[-4000:]


@pytest.fixture(scope="module")
def other() -> Iterator[Callable[[str], Driver]]:
    """One process of each client, for all tests."""
    made: dict[str, Driver] = {}

    def by_name(name: str) -> Driver:
        if name not in made:
            made[name] = Driver(name)
        return made[name]

    yield by_name
    for driver in made.values():
        driver.close()


@pytest.fixture(scope="module")
def corpus(broker: BrokerProcess, other: Callable[[str], Driver]) -> Iterator[Corpus]:
    with NodeClient(broker.host, broker.port) as node:
        yield Corpus(broker.address, node, other)


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("client", clients())
def test_cell(
    client: str,
    column: str,
    broker: BrokerProcess,
    node: NodeClient,
    other: Callable[[str], Driver],
    corpus: Corpus,
    record_property: Callable[[str, object], None],
) -> None:
    record_property("client", client)
    record_property("column", column)
    try:
        driver = other(client)
    except Unavailable as reason:
        assert not CLIENTS[client].in_make_test, reason
        record_property("cell", f"n/a: {reason}")
        return
    hello = driver.ask("hello")
    record_property("version", hello["version"])
    bench = Bench(broker.address, node, driver, hello, lambda: Driver(client), other, corpus)
    try:
        record_property("cell", COLUMNS[column](bench))
    except NotApplicable as reason:
        record_property("cell", f"n/a: {reason}")
