"""The batches that a consumer fetches are byte for byte those that the producer sent, but for base offset and epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from klamm.client.blocking import NodeClient
from klamm.protocol.messages.metadata import MetadataRequest
from klamm.protocol.records.batch import batches
from tests.clients.capture import Capture
from tests.clients.driver import NEWEST, Driver
from tests.clients.raw import create, fetch_all
from tests.clients.samples import CODECS, PARTITIONS, ends, sample
from tests.support.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def proxy() -> Iterator[Capture]:
    with Capture() as capture:
        yield capture


@pytest.fixture(scope="module")
def hidden_broker(proxy: Capture, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that sends its clients to the proxy."""
    data: Path = tmp_path_factory.mktemp("hidden") / "data"
    with BrokerProcess(data, {"advertised.listeners": f"PLAINTEXT://{proxy.address}"}) as process:
        proxy.target = (process.host, process.port)
        yield process


def sampled(row: int, number: int) -> list[pytest.MarkDecorator]:
    return [] if row == number else [pytest.mark.campaign]


@pytest.mark.java
@pytest.mark.parametrize(
    ("producer", "codec"),
    [
        pytest.param(producer, codec, marks=sampled(row, number))
        for row, producer in enumerate(NEWEST)
        for number, codec in enumerate(CODECS)
    ],
)
def test_what_was_sent_is_what_is_fetched(
    producer: str,
    codec: str,
    proxy: Capture,
    hidden_broker: BrokerProcess,
    stock_client: Callable[[str], Driver],
) -> None:
    topic = f"{producer}-{codec}"
    client = stock_client(producer)
    sent = sample(client.cannot_send)
    with NodeClient(hidden_broker.host, hidden_broker.port) as node:
        create(node, topic, PARTITIONS)
        client.produce(proxy.address, topic, sent, {"compression.type": codec})
        proxy.learn(node.request(MetadataRequest(topics=None), 12))
        for partition, end in ends(sent).items():
            stored = fetch_all(node, topic, partition)
            given = proxy.produced(topic, partition)
            entries = list(batches(stored))
            assert len(entries) == len(given)
            offset = 0
            for (position, header), batch in zip(entries, given, strict=True):
                assert (header.base_offset, header.leader_epoch) == (offset, 0)
                assert stored[position + 8 : position + 12] == batch[8:12]
                assert stored[position + 16 : position + header.size_bytes] == batch[16:]
                offset = header.next_offset
            assert offset == end
