"""What a topic's settings, or the lack of a topic, mean to stock clients."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from klamm.client.blocking import NodeClient
from klamm.protocol.records.batch import batches
from tests.clients.conftest import MakeTopic
from tests.clients.driver import NEWEST, Driver
from tests.clients.raw import fetch_all
from tests.clients.samples import CODECS, PARTITIONS, Sent, difference, ends, sample
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.java

SLACK_MS = 1000


def codecs_of(node: NodeClient, topic: str) -> set[str]:
    return {
        header.codec.name.lower()
        for partition in range(PARTITIONS)
        for _, header in batches(fetch_all(node, topic, partition))
    }


@pytest.mark.parametrize("setting", ["uncompressed", *CODECS[1:]])
def test_batches_are_recompressed_when_the_topic_asks(
    setting: str,
    broker: BrokerProcess,
    node: NodeClient,
    make_topic: MakeTopic,
    stock_client: Callable[[str], Driver],
) -> None:
    topic = make_topic(PARTITIONS, {"compression.type": setting})
    sent = sample()
    stock_client("confluent-kafka").produce(broker.address, topic, sent, {"compression.type": "snappy"})
    assert codecs_of(node, topic) == {"none" if setting == "uncompressed" else setting}
    for consumer in NEWEST:
        received = stock_client(consumer).consume(broker.address, topic, ends(sent))
        assert difference(sent, received, (0, 0)) == [], consumer


@pytest.mark.parametrize("codec", CODECS)
def test_consumers_get_the_append_time_of_the_broker(
    codec: str, broker: BrokerProcess, make_topic: MakeTopic, stock_client: Callable[[str], Driver]
) -> None:
    topic = make_topic(PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
    sent = [record._replace(timestamp=None) for record in sample()]
    start_ms = int(time.time() * 1000) - SLACK_MS
    stock_client("java-4.4.0").produce(broker.address, topic, sample(), {"compression.type": codec})
    around_ms = (start_ms, int(time.time() * 1000) + SLACK_MS)
    for consumer in NEWEST:
        received = stock_client(consumer).consume(broker.address, topic, ends(sent))
        assert difference(sent, received, around_ms) == [], consumer


@pytest.mark.parametrize("producer", NEWEST)
def test_a_missing_topic_is_created_by_its_first_producer(
    producer: str, broker: BrokerProcess, stock_client: Callable[[str], Driver]
) -> None:
    topic = f"first-seen-by-{producer}"
    sent = [Sent(0, b"k", b"v"), Sent(0, None, b"w")]
    stock_client(producer).produce(broker.address, topic, sent, {})
    received = stock_client("confluent-kafka").consume(broker.address, topic, {0: 2})
    assert [(record.key, record.value) for record in received] == [(b"k", b"v"), (None, b"w")]


@pytest.mark.parametrize("producer", NEWEST)
def test_a_record_that_is_too_large_is_refused_and_the_next_is_taken(
    producer: str, broker: BrokerProcess, make_topic: MakeTopic, stock_client: Callable[[str], Driver]
) -> None:
    topic = make_topic(1, {"max.message.bytes": "10000"})
    client = stock_client(producer)
    with pytest.raises(Exception, match=r"(?i)MSG_SIZE|too.?large|larger"):
        client.produce(broker.address, topic, [Sent(0, b"k", b"x" * 20_000)], {})
    client.produce(broker.address, topic, [Sent(0, b"k", b"x" * 9_000)], {})
    received = client.consume(broker.address, topic, {0: 1})
    assert [(record.offset, record.value) for record in received] == [(0, b"x" * 9_000)]
