"""Clients that take the broker for an old one speak as their ancestors did, with messages of magic 0.

librdkafka, new in confluent-kafka and older in kcat, is set to expect 0.8 or 0.9; and there is kafka-clients 3.9. New
clients read what these send, and these what new ones do.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from klamm.client.blocking import NodeClient
from klamm.protocol.records.batch import batches, records
from tests.clients.conftest import MakeTopic
from tests.clients.driver import Driver
from tests.clients.raw import fetch_all
from tests.clients.samples import PARTITIONS, Sent, difference, ends, sample
from tests.support.broker_process import BrokerProcess

VERSIONS = ["0.8.2", "0.9.0"]
CODECS = ("none", "gzip", "snappy", "lz4")


def expecting(version: str) -> dict[str, str]:
    """librdkafka's settings for a broker that is too old to tell its versions."""
    return {"api.version.request": "false", "broker.version.fallback": version}


def plain(sent: list[Sent]) -> list[Sent]:
    """Return the records without headers and timestamps, which magic 0 does not have."""
    return [record._replace(headers=(), timestamp=None) for record in sent]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", VERSIONS)
def test_what_an_old_producer_sends_is_read_by_a_new_consumer(
    version: str,
    codec: str,
    broker: BrokerProcess,
    node: NodeClient,
    make_topic: MakeTopic,
    stock_client: Callable[[str], Driver],
) -> None:
    topic = make_topic(PARTITIONS)
    sent = plain(sample())
    stock_client("confluent-kafka").produce(
        broker.address, topic, sent, {"compression.type": codec, **expecting(version)}
    )
    received = stock_client("confluent-kafka").consume(broker.address, topic, ends(sent))
    assert difference(sent, received, (-1, -1)) == []  # no timestamp is -1
    stored = {
        header.magic for partition in range(PARTITIONS) for _, header in batches(fetch_all(node, topic, partition))
    }
    assert stored == {2}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_new_producer_sends_is_read_by_an_old_consumer(
    version: str,
    codec: str,
    broker: BrokerProcess,
    make_topic: MakeTopic,
    stock_client: Callable[[str], Driver],
) -> None:
    topic = make_topic(PARTITIONS)
    sent = sample()
    stock_client("confluent-kafka").produce(broker.address, topic, sent, {"compression.type": codec})
    received = stock_client("confluent-kafka").consume(broker.address, topic, ends(sent), config=expecting(version))
    assert difference(plain(sent), received, (-1, 0)) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_kcat_expecting_an_old_broker(
    version: str, broker: BrokerProcess, node: NodeClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    options = [word for key, value in expecting(version).items() for word in ("-X", f"{key}={value}")]
    where = ["-b", broker.address, "-t", topic, "-p", "0", *options]
    lines = b"".join(b"key-%d\tvalue-%d\n" % (at, at) for at in range(500))
    _kcat(["-P", *where, "-K", r"\t", "-z", "snappy"], lines)
    printed = _kcat(["-C", *where, "-q", "-o", "beginning", "-c", "500", "-K", r"\t"], b"")
    assert printed == lines
    data = fetch_all(node, topic, 0)
    stored = [record for at, header in batches(data) for record in records(data, header, 1 << 20, at)]
    assert [record.offset for record in stored] == list(range(500))


@pytest.mark.java
@pytest.mark.parametrize("codec", ["zstd", pytest.param("lz4", marks=pytest.mark.campaign)])
def test_kafka_clients_39(
    codec: str,
    stock_client: Callable[[str], Driver],
    broker: BrokerProcess,
    make_topic: MakeTopic,
) -> None:
    topic = make_topic(PARTITIONS)
    sent = sample()
    java_39 = stock_client("java-3.9.2")
    java_39.produce(broker.address, topic, sent, {"compression.type": codec})
    for consumer in (java_39, stock_client("confluent-kafka")):
        assert difference(sent, consumer.consume(broker.address, topic, ends(sent)), (0, 0)) == []


def _kcat(arguments: list[str], data: bytes) -> bytes:
    done = subprocess.run(["kcat", *arguments], input=data, capture_output=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
