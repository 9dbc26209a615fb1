"""Every stock client does all that it can: the cells of docs/clients.md, each a test.

`make clients` runs all and writes the table, `make clients CLIENT=sarama` runs one client and prints its row. A client
without its toolchain reads n/a in every column; those that `make test` runs must be there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from klamm.client.blocking import NodeClient
from tests.clients.driver import CLIENTS, Driver, Unavailable
from tests.clients.matrix import Bench, Corpus, NotApplicable
from tests.clients.table import COLUMNS
from tests.support.broker_process import BrokerProcess

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]


def clients() -> list[object]:
    wanted = os.environ.get("KLAMM_CLIENT", "")
    names = [name for name in CLIENTS if wanted in ("", name)]
    if not names:
        raise pytest.UsageError(f"CLIENT={wanted} is none of {', '.join(CLIENTS)}")
    return [
        pytest.param(name, marks=() if CLIENTS[name].in_make_test else pytest.mark.campaign, id=name) for name in names
    ]


@pytest.fixture(scope="module")
def broker(group_broker: BrokerProcess) -> BrokerProcess:
    return group_broker


@pytest.fixture(scope="module")
def corpus(broker: BrokerProcess, stock_client: Callable[[str], Driver]) -> Iterator[Corpus]:
    with NodeClient(broker.host, broker.port) as node:
        yield Corpus(broker.address, node, stock_client)


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("client", clients())
def test_cell(
    client: str,
    column: str,
    broker: BrokerProcess,
    node: NodeClient,
    stock_client: Callable[[str], Driver],
    corpus: Corpus,
    record_property: Callable[[str, object], None],
) -> None:
    record_property("client", client)
    record_property("column", column)
    try:
        driver = stock_client(client)
    except Unavailable as reason:
        assert not CLIENTS[client].in_make_test, reason
        record_property("cell", f"n/a: {reason}")
        return
    hello = driver.ask("hello")
    record_property("version", hello["version"])
    bench = Bench(broker.address, node, driver, hello, lambda: Driver(client), stock_client, corpus)
    try:
        record_property("cell", COLUMNS[column](bench))
    except NotApplicable as reason:
        record_property("cell", f"n/a: {reason}")
