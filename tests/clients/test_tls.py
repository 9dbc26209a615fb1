"""Stock clients over TLS: right and wrong authority, wrong name, with and without a certificate of their own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from klamm.client.blocking import NodeClient
from tests.clients.driver import GIVES_UP, NEWEST, Driver, DriverError
from tests.clients.raw import create
from tests.clients.samples import Sent
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority

AUTHORITY, STRANGER = Authority(), Authority("Stranger")


class Way(NamedTuple):
    """How a client dials: the listener, the file of the authority it trusts, the file of its own certificate."""

    listener: str
    authority: str = "ca.pem"
    own: str | None = None


ACCEPTED = {"one way": Way("SSL"), "both ways": Way("MTLS", own="alice.pem")}
REFUSED = {
    "wrong authority": Way("SSL", "stranger.pem"),
    "wrong name": Way("MISNAMED"),
    "no certificate": Way("MTLS"),
    "certificate of a stranger": Way("MTLS", own="mallory.pem"),
}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        AUTHORITY.write(folder / "ca.pem")
        STRANGER.write(folder / "stranger.pem")
        AUTHORITY.sign("alice").write(folder / "alice.pem")
        STRANGER.sign("mallory").write(folder / "mallory.pem")
        AUTHORITY.server().write(folder / "server.pem")
        AUTHORITY.server("broker", "elsewhere.example").write(folder / "elsewhere.pem")
        yield folder


@pytest.fixture(scope="module")
def encrypted(folder: Path) -> Iterator[BrokerProcess]:
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
    with BrokerProcess(folder / "data", config) as broker:
        with NodeClient(broker.host, broker.port, tls=AUTHORITY.client_context()) as node:
            create(node, "t")
        yield broker
        assert "Traceback" not in broker.log()


def trust(client: str, folder: Path, way: Way) -> dict[str, str]:
    """The config of a client, in librdkafka's or in Java's words."""
    authority = str(folder / way.authority)
    own = None if way.own is None else str(folder / way.own)
    if client.startswith("java"):
        config = {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
        if own is not None:
            config |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": own}
    else:
        config = {"ssl.ca.location": authority}
        if own is not None:
            config |= {"ssl.certificate.location": own, "ssl.key.location": own}
    return {"security.protocol": "SSL", **config}


@pytest.mark.parametrize("way", ACCEPTED.values(), ids=ACCEPTED)
@pytest.mark.parametrize("client", NEWEST)
def test_a_client_gets_in(
    client: str, way: Way, encrypted: BrokerProcess, folder: Path, stock_client: Callable[[str], Driver]
) -> None:
    address = f"localhost:{encrypted.listeners[way.listener]}"
    stock_client(client).produce(address, "t", [Sent(0, b"key", b"value")], trust(client, folder, way))


@pytest.mark.parametrize("way", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("client", NEWEST)
def test_a_client_does_not_get_in(
    client: str, way: Way, encrypted: BrokerProcess, folder: Path, stock_client: Callable[[str], Driver]
) -> None:
    address = f"localhost:{encrypted.listeners[way.listener]}"
    config = {**trust(client, folder, way), **GIVES_UP.get(client, {})}
    with pytest.raises(DriverError):
        stock_client(client).produce(address, "t", [Sent(0, b"key", b"value")], config)
