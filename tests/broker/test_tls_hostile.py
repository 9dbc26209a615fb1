"""Hostile input on TLS listeners, over the wire: each gets what docs/security.md says, and leaves nothing.

One broker process: SSL (nobody shows a certificate), MTLS (required), ASKED (requested), SASL_SSL.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from tests.support.broker_process import BrokerProcess, wait_for
from tests.support.certificates import DAY, SERVER, Authority, Leaf, name
from tests.support.tls_records import KEY_UPDATE, RecordWriter, client_secret

REPEATS = int(os.environ.get("KLAMM_HOSTILE_REPEATS", "3"))
LOGIN_TIMEOUT_S = 2.0
AUTHORITY, STRANGER = Authority(), Authority("Stranger")
API_VERSIONS = bytes.fromhex("00000013 0012 0000 00000007 0009 746573742d74657374")
HELLO_HEAD = b"\x16\x03\x01"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[BrokerProcess]:
    AUTHORITY.write(folder / "ca.pem")
    AUTHORITY.server().write(folder / "server.pem")
    names = ("PLAINTEXT", "SSL", "MTLS", "ASKED", "SASL_SSL")
    config: dict[str, object] = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,MTLS:SSL,ASKED:SSL,SASL_SSL:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": folder / "server.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": folder / "ca.pem",
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.asked.ssl.client.auth": "requested",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "klamm.authentication.timeout.ms": int(LOGIN_TIMEOUT_S * 1000),
        "connection.failed.authentication.delay.ms": 10,
    }
    with BrokerProcess(folder / "data", config) as process:
        yield process
        assert "Traceback" not in process.log()


def dial(broker: BrokerProcess, listener: str = "SSL") -> socket.socket:
    return socket.create_connection((broker.host, broker.listeners[listener]), 20)


def context(leaf: Leaf | None = None, folder: Path | None = None) -> ssl.SSLContext:
    return AUTHORITY.client_context(leaf, folder)


def shaken(broker: BrokerProcess, listener: str = "SSL", own: ssl.SSLContext | None = None) -> ssl.SSLSocket:
    return (own or context()).wrap_socket(dial(broker, listener), server_hostname="localhost")


def answers(connected: socket.socket) -> bool:
    """Whether the broker answers ApiVersions."""
    connected.sendall(API_VERSIONS)
    return len(connected.recv(4)) == 4


def assert_closed(connected: socket.socket) -> bytes:
    """The broker says its last words and closes, sooner or later."""
    connected.settimeout(20)
    said = b""
    with suppress(ConnectionResetError, BrokenPipeError, ssl.SSLError):
        while data := connected.recv(65536):
            said += data
    connected.close()
    return said


def assert_alert(connected: socket.socket, code: int) -> None:
    said = assert_closed(connected)
    assert said[:1] == b"\x15" and said[6:7] == bytes([code]), said


def refused(own: ssl.SSLContext, broker: BrokerProcess, listener: str, reason: str) -> None:
    expected = (ssl.SSLError, ConnectionResetError, BrokenPipeError)
    with pytest.raises(expected) as error, shaken(broker, listener, own) as connected:
        answers(connected)  # in TLS 1.3 a client knows only now
    assert reason in str(error.value) or not isinstance(error.value, ssl.SSLError), error.value


# -- rows


def old_protocols(broker: BrokerProcess, folder: Path) -> None:
    own = context()
    own.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore"):
        own.minimum_version, own.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    refused(own, broker, "SSL", "PROTOCOL_VERSION")


def no_common_suite(broker: BrokerProcess, folder: Path) -> None:
    own = context()
    own.maximum_version = ssl.TLSVersion.TLSv1_2
    own.set_ciphers("AES256-SHA")
    refused(own, broker, "SSL", "HANDSHAKE_FAILURE")


def a_huge_hello(broker: BrokerProcess, folder: Path) -> None:
    connected = dial(broker)
    fragment = HELLO_HEAD + b"\x40\x00"
    with suppress(ConnectionError):
        connected.sendall(fragment + b"\x01\x00\xff\xff\x03\x03" + bytes(16384 - 6))
        for _ in range(5):
            connected.sendall(fragment + bytes(16384))
    assert_closed(connected)


def a_record_of_65535(broker: BrokerProcess, folder: Path) -> None:
    connected = dial(broker)
    connected.sendall(HELLO_HEAD + b"\xff\xff" + bytes(100))
    assert_alert(connected, 22)  # record_overflow


def a_record_of_type_99(broker: BrokerProcess, folder: Path) -> None:
    connected = dial(broker)
    connected.sendall(b"\x63\x03\x01\x00\x05hello")
    assert_closed(connected)


def empty_records(broker: BrokerProcess, folder: Path) -> None:
    connected = dial(broker)
    with suppress(ConnectionError):
        connected.sendall(b"\x16\x03\x03\x00\x00" * 10_000)
    assert_closed(connected)


def a_plain_request_on_tls(broker: BrokerProcess, folder: Path) -> None:
    connected = dial(broker)
    connected.sendall(API_VERSIONS)
    assert_closed(connected)
    wait_for(lambda: "not the Kafka protocol, first bytes 00 00 00 13" in broker.log())


def tls_on_plaintext(broker: BrokerProcess, folder: Path) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        shaken(broker, "PLAINTEXT")


def http(broker: BrokerProcess, folder: Path) -> None:
    for listener in ("SSL", "PLAINTEXT"):
        connected = dial(broker, listener)
        connected.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert_closed(connected)


def many_key_updates(broker: BrokerProcess, folder: Path) -> None:
    own = context()
    own.keylog_filename = str(folder / f"keys-{time.monotonic_ns()}")
    connected = shaken(broker, own=own)
    raw = socket.socket(fileno=os.dup(connected.fileno()))
    writer = RecordWriter(client_secret(Path(own.keylog_filename)))
    updates = b"".join(writer.key_update(KEY_UPDATE) for _ in range(200))
    with suppress(ConnectionError):
        for _ in range(50):
            raw.sendall(updates)
    assert_closed(raw)
    connected.close()


def the_end_inside_a_frame(broker: BrokerProcess, folder: Path) -> None:
    connected = shaken(broker)
    connected.sendall(API_VERSIONS[:10])
    raw = socket.socket(fileno=os.dup(connected.fileno()))
    raw.shutdown(socket.SHUT_WR)  # no close_notify
    assert_closed(raw)
    connected.close()


def a_reset_in_the_handshake(broker: BrokerProcess, folder: Path) -> None:
    connected = dial(broker)
    connected.sendall(HELLO_HEAD + b"\x02\x00\x01")
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connected.close()


def the_end_in_the_handshake(broker: BrokerProcess, folder: Path) -> None:
    connected = dial(broker)
    connected.sendall(HELLO_HEAD + b"\x02\x00\x01")
    connected.shutdown(socket.SHUT_WR)
    assert_closed(connected)


def a_peer_that_reads_nothing(broker: BrokerProcess, folder: Path) -> None:
    connected = shaken(broker)
    connected.settimeout(0.1)
    with suppress(TimeoutError, ConnectionError):
        for _ in range(100):
            connected.sendall(API_VERSIONS * 1000)
    assert answers_elsewhere(broker)
    connected.close()


def answers_elsewhere(broker: BrokerProcess) -> bool:
    with shaken(broker) as other:
        return answers(other)


ROWS: list[Callable[[BrokerProcess, Path], None]] = [
    old_protocols,  # 1
    no_common_suite,  # 2
    a_huge_hello,  # 4
    a_record_of_65535,  # 5
    a_record_of_type_99,
    empty_records,
    a_plain_request_on_tls,  # 6
    tls_on_plaintext,  # 7
    http,
    many_key_updates,  # 9
    the_end_inside_a_frame,  # 15
    a_reset_in_the_handshake,
    the_end_in_the_handshake,
    a_peer_that_reads_nothing,  # 18
]


@pytest.mark.parametrize("row", ROWS)
def test_hostile_input_is_closed_and_leaves_nothing(
    broker: BrokerProcess, folder: Path, row: Callable[[BrokerProcess, Path], None]
) -> None:
    """Rows 1, 2, 4 to 7, 9, 15 and 18 of the hostile inputs."""
    assert answers_elsewhere(broker)
    before = held(broker)
    for _ in range(REPEATS):
        row(broker, folder)
    wait_for(lambda: held(broker) <= before, what=f"no more than {before} descriptors")
    assert answers_elsewhere(broker)


def held(broker: BrokerProcess) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


def test_a_slow_hello_has_a_deadline(broker: BrokerProcess) -> None:
    """Row 3."""
    connected, started = dial(broker), time.monotonic()
    with suppress(ConnectionError):
        for byte in HELLO_HEAD + b"\x02\x00" + bytes(512):
            connected.sendall(bytes([byte]))
            time.sleep(0.05)
            if time.monotonic() - started > 5 * LOGIN_TIMEOUT_S:
                raise AssertionError("still open")
    assert_closed(connected)


def test_silence_after_the_handshake_has_the_deadline_of_a_login(broker: BrokerProcess) -> None:
    """Row 17."""
    assert_closed(shaken(broker, "SASL_SSL"))
    with shaken(broker, "SSL") as quiet:  # nobody logs in here
        time.sleep(1.5 * LOGIN_TIMEOUT_S)
        assert answers(quiet)


def test_renegotiation_is_refused(broker: BrokerProcess) -> None:
    """Row 8."""
    command = ["openssl", "s_client", "-connect", f"localhost:{broker.listeners['SSL']}", "-tls1_2"]
    done = subprocess.run(command, input="R\n", capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode != 0 and "no renegotiation" in done.stderr


def test_early_data_is_not_offered(broker: BrokerProcess) -> None:
    """Row 10: there are no tickets to send early data with."""
    with shaken(broker) as connected:
        assert answers(connected)
        assert connected.session is None or not connected.session.has_ticket


@pytest.mark.parametrize("listener", ["MTLS", "ASKED"])
def test_client_certificates(broker: BrokerProcess, folder: Path, listener: str) -> None:
    """Row 11: only a good one passes, and none where it is requested."""
    between = Authority("Between", AUTHORITY)
    good = [
        AUTHORITY.sign("alice"),
        between.sign("bob"),
        AUTHORITY.sign("carol", key=rsa.generate_private_key(65537, 3072)),
    ]
    for leaf in good:
        with shaken(broker, listener, context(leaf, folder)) as connected:
            assert answers(connected)
    bad = {
        "UNKNOWN_CA": STRANGER.sign("alice"),
        "CERTIFICATE_EXPIRED": AUTHORITY.sign("alice", begins=-2 * DAY, ends=-DAY),
        "BAD_CERTIFICATE": AUTHORITY.sign("alice", begins=DAY),
        "UNSUPPORTED_CERTIFICATE": AUTHORITY.sign("alice", usages=(SERVER,)),
    }
    for reason, leaf in bad.items():
        refused(context(leaf, folder), broker, listener, reason)
    if listener == "MTLS":
        refused(context(), broker, listener, "CERTIFICATE_REQUIRED")
    else:
        with shaken(broker, listener) as connected:
            assert answers(connected)


def test_long_chains_and_names_are_refused(broker: BrokerProcess, folder: Path) -> None:
    """Rows 11 and 12."""
    deep = AUTHORITY
    for number in range(12):
        deep = Authority(f"Level {number}", deep)
    long_name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "x" * 60) for _ in range(20)])
    for leaf in (deep.sign("alice"), AUTHORITY.sign(long_name)):
        with suppress(ssl.SSLError, ConnectionError), shaken(broker, "MTLS", context(leaf, folder)) as connected:
            assert not answers(connected)
    wait_for(lambda: "more than 10 certificates" in broker.log())
    odd = name('a,b"c\0d\ne')
    with shaken(broker, "MTLS", context(AUTHORITY.sign(odd), folder)) as connected:
        assert answers(connected)
