"""Stock clients over TLS: right and wrong authority, wrong name, with and without a certificate of their own."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from kafka import KafkaProducer

from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority
from tests.support.jars import classpath, java

pytestmark = pytest.mark.clients
AUTHORITY, STRANGER = Authority(), Authority("Stranger")
TIMEOUT_S = 6
JAVA_TIMEOUT_S = 60


class Way(NamedTuple):
    """How a client dials: the address, whom it trusts, what it shows."""

    address: str
    authority: Path
    own: Path | None

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority))
        if self.own is not None:
            context.load_cert_chain(self.own)
        return context


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        AUTHORITY.write(folder / "ca.pem")
        STRANGER.write(folder / "stranger.pem")
        AUTHORITY.sign("alice").write(folder / "alice.pem")
        AUTHORITY.server().write(folder / "server.pem")
        AUTHORITY.server("broker", "elsewhere.example").write(folder / "elsewhere.pem")
        yield folder


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[BrokerProcess]:
    config: dict[str, object] = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in ("SSL", "MTLS", "MISNAMED")),
        "listener.security.protocol.map": "SSL:SSL,MTLS:SSL,MISNAMED:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": folder / "server.pem",
        "listener.name.misnamed.ssl.keystore.location": folder / "elsewhere.pem",
        "listener.name.mtls.ssl.truststore.type": "PEM",
        "listener.name.mtls.ssl.truststore.location": folder / "ca.pem",
        "listener.name.mtls.ssl.client.auth": "required",
    }
    with BrokerProcess(folder / "data", config) as process:
        yield process


def librdkafka(way: Way) -> bool:
    config: dict[str, Any] = {
        "bootstrap.servers": way.address,
        "security.protocol": "SSL",
        "ssl.ca.location": str(way.authority),
        "message.timeout.ms": TIMEOUT_S * 1000,
    }
    if way.own is not None:
        config |= {"ssl.certificate.location": str(way.own), "ssl.key.location": str(way.own)}
    outcomes: list[object] = []
    producer = Producer(config)
    producer.produce("t", b"v", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(TIMEOUT_S + 2)
    return outcomes == [None]


def kafka_python(way: Way) -> bool:
    try:
        producer = KafkaProducer(
            bootstrap_servers=way.address,
            security_protocol="SSL",
            ssl_context=way.context(),
            max_block_ms=TIMEOUT_S * 1000,
            bootstrap_timeout_ms=TIMEOUT_S * 1000,
        )
        try:
            producer.send("t", b"v").get(TIMEOUT_S)
        finally:
            producer.close(1)
    except Exception:
        return False
    return True


def aiokafka(way: Way) -> bool:
    async def main() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=way.address, security_protocol="SSL", ssl_context=way.context(), request_timeout_ms=5000
        )
        try:
            await producer.start()
            await producer.send_and_wait("t", b"v")
        finally:
            await producer.stop()

    try:
        asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))
    except Exception:
        return False
    return True


def kcat(way: Way) -> bool:
    command = ["kcat", "-b", way.address, "-L", "-m", "3", "-X", "security.protocol=ssl"]
    command += ["-X", f"ssl.ca.location={way.authority}"]
    if way.own is not None:
        command += ["-X", f"ssl.certificate.location={way.own}", "-X", f"ssl.key.location={way.own}"]
    return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0


def java_producer(way: Way) -> bool:
    command = [java(), "-cp", classpath("tools"), "org.apache.kafka.tools.ProducerPerformance", "--topic", "t"]
    command += ["--num-records", "10", "--record-size", "10", "--throughput", "-1", "--command-property"]
    command += [f"bootstrap.servers={way.address}", "security.protocol=SSL", "ssl.truststore.type=PEM"]
    command += [f"ssl.truststore.location={way.authority}", "delivery.timeout.ms=12000", "request.timeout.ms=9000"]
    command += ["max.block.ms=12000", "linger.ms=0"]
    if way.own is not None:
        command += ["ssl.keystore.type=PEM", f"ssl.keystore.location={way.own}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=JAVA_TIMEOUT_S, check=False)
    return done.returncode == 0 and "10 records sent" in done.stdout and "Exception" not in done.stdout + done.stderr


CLIENTS: list[Callable[[Way], bool]] = [librdkafka, kafka_python, aiokafka, kcat, java_producer]


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_get_in_with_the_right_authority_and_certificate_alone(
    broker: BrokerProcess, folder: Path, client: Callable[[Way], bool]
) -> None:
    addresses = {name: f"localhost:{port}" for name, port in broker.listeners.items()}
    ca, stranger, alice = folder / "ca.pem", folder / "stranger.pem", folder / "alice.pem"
    assert client(Way(addresses["SSL"], ca, None))
    assert client(Way(addresses["MTLS"], ca, alice))
    assert not client(Way(addresses["SSL"], stranger, None))
    assert not client(Way(addresses["MISNAMED"], ca, None))
    assert not client(Way(addresses["MTLS"], ca, None))
