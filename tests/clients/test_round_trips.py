"""What one stock client produces, another reads: all pairs, all codecs, every shape of record.

Every pair and every codec of every client is in the sample that `make test` runs (a Latin square); `make clients` runs
the whole product.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from klamm.client.blocking import NodeClient
from klamm.protocol.records.batch import batches
from tests.clients.conftest import MakeTopic
from tests.clients.driver import NEWEST, Driver
from tests.clients.raw import fetch_all
from tests.clients.samples import CODECS, PARTITIONS, Sent, difference, ends, sample
from tests.support.broker_process import BrokerProcess

CLOCK_SLACK_MS = 1000


@dataclass(frozen=True)
class Produced:
    """A topic that one client has filled."""

    topic: str
    sent: list[Sent]
    around_ms: tuple[int, int]


def products() -> list[object]:
    return [
        pytest.param(
            producer, consumer, codec, marks=() if (row + column) % len(CODECS) == number else pytest.mark.campaign
        )
        for row, producer in enumerate(NEWEST)
        for column, consumer in enumerate(NEWEST)
        for number, codec in enumerate(CODECS)
    ]


@pytest.fixture(scope="session")
def produced(
    broker: BrokerProcess, make_topic: MakeTopic, stock_client: Callable[[str], Driver]
) -> Callable[[str, str], Produced]:
    """The topic that a client filled with the sample in one codec; made once."""
    made: dict[tuple[str, str], Produced] = {}

    def fill(name: str, codec: str) -> Produced:
        client = stock_client(name)
        topic = make_topic(PARTITIONS)
        sent = sample(client.cannot_send)
        start_ms = int(time.time() * 1000) - CLOCK_SLACK_MS
        offsets = client.produce(broker.address, topic, sent, {"compression.type": codec})
        if offsets is not None:
            acknowledged = {(record.partition, offset) for record, offset in zip(sent, offsets, strict=True)}
            assert acknowledged == {(partition, at) for partition, end in ends(sent).items() for at in range(end)}
        return Produced(topic, sent, (start_ms, int(time.time() * 1000) + CLOCK_SLACK_MS))

    def get(name: str, codec: str) -> Produced:
        if (name, codec) not in made:
            made[name, codec] = fill(name, codec)
        return made[name, codec]

    return get


@pytest.mark.java
@pytest.mark.parametrize(("producer", "consumer", "codec"), products())
def test_a_consumer_reads_what_a_producer_has_sent(
    producer: str,
    consumer: str,
    codec: str,
    broker: BrokerProcess,
    node: NodeClient,
    produced: Callable[[str, str], Produced],
    stock_client: Callable[[str], Driver],
) -> None:
    what = produced(producer, codec)
    received = stock_client(consumer).consume(broker.address, what.topic, ends(what.sent))
    assert difference(what.sent, received, what.around_ms) == []
    stored = {
        header.codec.name.lower()
        for partition in range(PARTITIONS)
        for _, header in batches(fetch_all(node, what.topic, partition))
    }
    assert codec in stored, "the client did not use the codec"
