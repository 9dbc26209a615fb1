"""Keystores that change while the broker runs: by a dynamic config, by files, and at SIGHUP."""

from __future__ import annotations

import shutil
import signal
import socket
import ssl
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.broker.security.tls.certificate import Certificate
from klamm.client.blocking import NodeClient
from klamm.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm.protocol.messages.metadata import MetadataRequest
from tests.support.broker_process import BrokerProcess, wait_for
from tests.support.certificates import Authority, Leaf

AUTHORITY = Authority()
BROKER, SET = 4, 0
KEYSTORE = "listener.name.ssl.ssl.keystore.location"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[BrokerProcess]:
    AUTHORITY.write(folder / "ca.pem")
    AUTHORITY.server().write(folder / "server.pem")
    (folder / "more").mkdir()
    config: dict[str, object] = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "inter.broker.listener.name": "SSL",
        "listener.name.ssl.ssl.keystore.location": folder / "server.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": folder / "ca.pem",
        "klamm.ssl.allowed.paths": folder / "more",
        "klamm.ssl.reload.interval.ms": 0,
    }
    with BrokerProcess(folder / "data", config) as process:
        yield process


@pytest.fixture
def broker(running: BrokerProcess, folder: Path) -> BrokerProcess:
    """The running broker, with a good certificate in its own file."""
    AUTHORITY.server().write(folder / "server.pem")
    assert set_keystore(running, folder / "server.pem") == (0, "")
    return running


def served(broker: BrokerProcess) -> int:
    """The serial number of the certificate that a new connection gets."""
    own = AUTHORITY.client_context()
    with (
        socket.create_connection((broker.host, broker.listeners["SSL"]), 10) as plain,
        own.wrap_socket(plain, server_hostname="localhost") as connected,
    ):
        found = connected.getpeercert()
        assert found is not None
        return int(str(found["serialNumber"]), 16)


def set_keystore(broker: BrokerProcess, path: Path | str, *, key: str = KEYSTORE) -> tuple[int, str]:
    resource = AlterConfigsResource(
        resource_type=BROKER,
        resource_name="1",
        configs=[AlterableConfig(name=key, config_operation=SET, value=str(path))],
    )
    with NodeClient(broker.host, broker.listeners["PLAINTEXT"]) as client:
        [answer] = client.request(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)).responses
    return answer.error_code, answer.error_message or ""


def serial(leaf: Leaf) -> int:
    return leaf.certificate.serial_number


def test_another_path_and_the_same_path_again(broker: BrokerProcess, folder: Path) -> None:
    second, third = AUTHORITY.server(), AUTHORITY.server()
    path = second.write(folder / "more" / "second.pem")
    assert set_keystore(broker, path) == (0, "")
    assert served(broker) == serial(second)
    third.write(path)
    assert set_keystore(broker, path) == (0, "")
    assert served(broker) == serial(third)


@pytest.mark.parametrize(
    ("leaf", "says"),
    [
        (AUTHORITY.server("somebody"), "ssl.allow.dn.changes"),
        (AUTHORITY.server("broker", "localhost"), "127.0.0.1 of the old one; ssl.allow.san.changes"),
        (Authority("Stranger").server(), "would not trust each other"),
        (None, "cannot be read"),
    ],
)
def test_a_bad_store_is_refused_and_the_old_one_served(
    broker: BrokerProcess, folder: Path, leaf: Leaf | None, says: str
) -> None:
    before, path = served(broker), folder / "more" / "new.pem"
    path.unlink(missing_ok=True)
    if leaf is not None:
        leaf.write(path)
    code, message = set_keystore(broker, path)
    assert (code, served(broker)) == (42, before)
    assert "Validation of dynamic config update of SSLFactory failed" in message and says in message


def test_a_bad_file_at_the_same_path_is_refused_too(broker: BrokerProcess, folder: Path) -> None:
    before = served(broker)
    (folder / "server.pem").write_text("nothing")
    code, _ = set_keystore(broker, folder / "server.pem")
    assert (code, served(broker)) == (42, before)


@pytest.mark.parametrize("path", ["/etc/shadow", "https://localhost/key.pem", "${env:HOME}", "more/../../etc/passwd"])
def test_any_other_path_is_refused(broker: BrokerProcess, path: str) -> None:
    """Row 53 of the hostile inputs, as far as it is about files."""
    code, message = set_keystore(broker, path)
    assert code == 42 and "klamm.ssl.allowed.paths" in message


def test_the_listener_must_be_named(broker: BrokerProcess, folder: Path) -> None:
    code, message = set_keystore(broker, folder / "server.pem", key="ssl.keystore.location")
    assert code == 42 and "only per-listener using the listener prefix" in message


def test_the_path_is_kept_over_a_restart(broker: BrokerProcess, folder: Path) -> None:
    second = AUTHORITY.server()
    assert set_keystore(broker, second.write(folder / "more" / "second.pem")) == (0, "")
    assert broker.terminate() == 0
    broker.restart()
    assert served(broker) == serial(second)
    assert broker.terminate() == 0
    (folder / "more" / "second.pem").unlink()
    broker.restart()
    assert served(broker) != serial(second)
    assert "the stores of the dynamic config are not used" in broker.log()


def test_sighup_looks_at_the_files(broker: BrokerProcess, folder: Path) -> None:
    second, before = AUTHORITY.server(), refusals(broker)
    second.write(folder / "server.pem")
    broker.signal(signal.SIGHUP)
    wait_for(lambda: served(broker) == serial(second))
    (folder / "server.pem").write_text("nothing")
    broker.signal(signal.SIGHUP)
    wait_for(lambda: refusals(broker) == before + 1)
    assert served(broker) == serial(second)
    broker.signal(signal.SIGHUP)
    third = AUTHORITY.server()
    shutil.move(third.write(folder / "next.pem"), folder / "server.pem")
    broker.signal(signal.SIGHUP)
    wait_for(lambda: served(broker) == serial(third))
    assert refusals(broker) == before + 1


def refusals(broker: BrokerProcess) -> int:
    return broker.log().count("changed stores are not used")


def test_reloads_under_load_break_nothing(tmp_path: Path) -> None:
    """Old connections go on, new ones come, and the file changes all the time."""
    AUTHORITY.server().write(tmp_path / "server.pem")
    config: dict[str, object] = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": tmp_path / "server.pem",
        "klamm.ssl.reload.interval.ms": 20,
    }
    with BrokerProcess(tmp_path / "data", config) as broker:
        errors: list[BaseException] = []
        seen: set[int] = set()
        stop = threading.Event()

        def load(number: int) -> None:
            try:
                with NodeClient(broker.host, broker.port, tls=AUTHORITY.client_context()) as old:
                    while not stop.is_set():
                        old.request(MetadataRequest(topics=[]))
                        if number:
                            seen.add(served(broker))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=load, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            leaf = AUTHORITY.server()
            leaf.write(tmp_path / "next.pem")
            shutil.move(tmp_path / "next.pem", tmp_path / "server.pem")
            wait_for(lambda leaf=leaf: serial(leaf) in seen or errors)  # type: ignore[misc]
        stop.set()
        for thread in threads:
            thread.join()
        assert not errors and len(seen) >= 20
        assert "ERROR" not in broker.log()


def test_the_certificate_is_in_the_metrics_and_old_ones_in_the_log(tmp_path: Path) -> None:
    leaf = AUTHORITY.server("broker", "elsewhere.example")
    leaf.write(tmp_path / "server.pem")
    assert not Certificate(ssl.PEM_cert_to_DER_cert(leaf.chain_pem.decode())).is_for("127.0.0.1")
    config: dict[str, object] = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": tmp_path / "server.pem",
    }
    with BrokerProcess(tmp_path / "data", config) as broker:
        own = AUTHORITY.client_context()
        own.check_hostname = False
        with socket.create_connection((broker.host, broker.port), 10) as plain, own.wrap_socket(plain):
            pass
        with urllib.request.urlopen(broker.metrics_url, timeout=10) as answer:
            metrics = answer.read().decode()
        assert 'klamm_tls_certificate_expiry_seconds{listener="SSL"} 3' in metrics  # most of a year
        assert 'klamm_tls_handshakes_total{protocol="TLSv1.3",cipher="TLS_AES_256_GCM_SHA384"} 1' in metrics
        assert "clients dial 127.0.0.1, which is not among the names of the certificate CN=broker" in broker.log()
