"""Stock clients log in with SASL: each mechanism with the right and with a wrong password."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from klamm.client.blocking import NodeClient
from klamm.client.sasl import Credentials
from klamm.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from klamm.protocol.scram import BY_NAME, salt_password
from tests.clients.driver import GIVES_UP, NEWEST, Driver, DriverError
from tests.clients.raw import create
from tests.clients.samples import Sent
from tests.support.broker_process import BrokerProcess

PASSWORD = "alice pw"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
MECHANISMS = ("PLAIN", *BY_NAME)
NOT_ASKED = {("kcat", name) for name in BY_NAME}
"""The librdkafka 2.0.2 of Debian's kcat is refused at its final message of SCRAM."""
SALT = b"a salt"
CONFIG = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} required user_alice="{PASSWORD}";',
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    path: Path = tmp_path_factory.mktemp("logins")
    with BrokerProcess(path / "data", CONFIG) as broker:
        with NodeClient(broker.host, broker.port, credentials=Credentials("PLAIN", "alice", PASSWORD)) as node:
            for mechanism in BY_NAME.values():
                salted = salt_password(mechanism, PASSWORD, SALT, 4096)
                upsertion = ScramCredentialUpsertion(
                    name="alice", mechanism=mechanism.number, iterations=4096, salt=SALT, salted_password=salted
                )
                response = node.request(AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]))
                assert response.results[0].error_code == 0
            create(node, "t")
        yield broker
        assert "Traceback" not in broker.log()


def login(client: str, mechanism: str, password: str) -> dict[str, str]:
    """The config of a client, in librdkafka's or in Java's words."""
    common = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    if client.startswith("java"):
        module = PLAIN if mechanism == "PLAIN" else SCRAM
        return {**common, "sasl.jaas.config": f'{module} required username="alice" password="{password}";'}
    return {**common, "sasl.username": "alice", "sasl.password": password}


LOGINS = [(client, mechanism) for client in NEWEST for mechanism in MECHANISMS if (client, mechanism) not in NOT_ASKED]


@pytest.mark.parametrize(("client", "mechanism"), LOGINS)
def test_a_client_logs_in(
    client: str, mechanism: str, secured: BrokerProcess, stock_client: Callable[[str], Driver]
) -> None:
    driver = stock_client(client)
    sent = [Sent(0, b"key", f"{client} {mechanism}".encode())]
    driver.produce(secured.address, "t", sent, login(client, mechanism, PASSWORD))


@pytest.mark.parametrize(("client", "mechanism"), LOGINS)
def test_a_client_with_a_wrong_password_does_not(
    client: str, mechanism: str, secured: BrokerProcess, stock_client: Callable[[str], Driver]
) -> None:
    config = {**login(client, mechanism, "wrong"), **GIVES_UP.get(client, {})}
    with pytest.raises(DriverError):
        stock_client(client).produce(secured.address, "t", [Sent(0, b"key", b"value")], config)
