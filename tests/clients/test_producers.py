"""Each kind of acknowledgement, with and without idempotence: all records are there once and in order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from klamm.client.blocking import NodeClient
from klamm.protocol.records.batch import batches, records
from tests.clients.conftest import MakeTopic
from tests.clients.driver import NEWEST, Driver
from tests.clients.raw import fetch_all, list_offsets
from tests.clients.samples import Sent
from tests.support.broker_process import BrokerProcess, wait_for

COUNT = 3_000
KINDS = {
    "acks=0": {"acks": "0", "enable.idempotence": "false"},
    "acks=1": {"acks": "1", "enable.idempotence": "false"},
    "acks=all": {"acks": "all", "enable.idempotence": "false"},
    "idempotent": {"acks": "all", "enable.idempotence": "true"},
}


@pytest.mark.java
@pytest.mark.parametrize("producer", NEWEST)
@pytest.mark.parametrize("kind", KINDS)
def test_every_record_is_there_once_and_in_order(
    producer: str,
    kind: str,
    broker: BrokerProcess,
    node: NodeClient,
    make_topic: MakeTopic,
    stock_client: Callable[[str], Driver],
) -> None:
    topic = make_topic(2)
    sent = [Sent(number % 2, b"%d" % number, b"value-%d" % number) for number in range(COUNT)]
    offsets = stock_client(producer).produce(broker.address, topic, sent, KINDS[kind])
    if offsets is not None and kind != "acks=0":
        assert sorted(offsets) == sorted([*range(COUNT // 2)] * 2)
    for partition in range(2):
        # Without acknowledgements the last may still be on their way.
        wait_for(lambda: list_offsets(node, topic, -1, 5, partition=partition).offset == COUNT // 2)  # noqa: B023
        data = fetch_all(node, topic, partition)
        stored = [record for at, header in batches(data) for record in records(data, header, 1 << 20, at)]
        assert [record.key for record in stored] == [b"%d" % number for number in range(partition, COUNT, 2)]
        assert {header.has_producer_id for _, header in batches(data)} == {kind == "idempotent"}


@pytest.mark.java
def test_a_new_idempotent_producer_has_an_id_of_its_own(
    broker: BrokerProcess, node: NodeClient, make_topic: MakeTopic, stock_client: Callable[[str], Driver]
) -> None:
    topic = make_topic(1)
    for producer in NEWEST:
        stock_client(producer).produce(broker.address, topic, [Sent(0, b"k", b"v")], KINDS["idempotent"])
    found = [header for _, header in batches(fetch_all(node, topic, 0))]
    assert len({header.producer_id for header in found}) == len(found) == len(NEWEST)
    assert {(header.producer_epoch, header.base_sequence) for header in found} == {(0, 0)}
