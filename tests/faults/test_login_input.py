"""Hostile logins over raw sockets to a real broker process: every row of the table, the next client, and leaks."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from klamm.client.blocking import NodeClient
from klamm.client.sasl import Credentials
from klamm.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from klamm.protocol.messages.metadata import MetadataRequest
from klamm.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from klamm.protocol.messages.sasl_handshake import SaslHandshakeRequest
from klamm.protocol.scram import BY_NAME, salt_password
from tests.faults.campaign import LONG, scaled
from tests.faults.login_cases import CASES, FAILED, GOOD, RAW, SAME, Case, Login, ScramTalk, replayed, same_nonce
from tests.faults.wire import CLOSED, SILENT, frame_of
from tests.support.apache_kafka import apache_kafka, free_ports
from tests.support.broker_process import BrokerProcess, wait_for

pytestmark = pytest.mark.faults

REPEATS = scaled(20, 1000)
MAX_GROWTH_BYTES = 10 << 20
SALT = b"some salt"
USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-pw";'
ILLEGAL = 34


def config(port: int) -> dict[str, object]:
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:{port}",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS,
        "connection.failed.authentication.delay.ms": 1,
        "klamm.max.failed.logins.per.ip": 1_000_000,
    }


@contextmanager
def broker(path: Path, **more: object) -> Iterator[tuple[BrokerProcess, int]]:
    """A broker process and the port where clients log in; `bob` is there."""
    (port,) = free_ports(1)
    extra = {key.replace("_", "."): value for key, value in more.items()}
    with BrokerProcess(path / "data", {**config(port), **extra}) as process:
        with NodeClient(process.host, process.port) as client:
            add_bob(client)
        yield process, port
        log = process.log()
    assert "Traceback" not in log
    assert "bob-pw" not in log and "alice-pw" not in log


def add_bob(client: NodeClient) -> None:
    for mechanism in BY_NAME.values():
        salted = salt_password(mechanism, "bob-pw", SALT, 4096)
        upsertion = ScramCredentialUpsertion(
            name="bob", mechanism=mechanism.number, iterations=4096, salt=SALT, salted_password=salted
        )
        response = client.request(AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]))
        assert response.results[0].error_code == 0, response


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, int]]:
    with broker(tmp_path_factory.mktemp("logins")) as both:
        yield both


@pytest.fixture(scope="module")
def process(served: tuple[BrokerProcess, int]) -> BrokerProcess:
    return served[0]


@pytest.fixture(scope="module")
def port(served: tuple[BrokerProcess, int]) -> int:
    return served[1]


def run(case: Case, port: int) -> object:
    with Login(port) as login:
        return case.talk(login)


def serves_the_next_client(port: int) -> bool:
    for mechanism, user in (("PLAIN", "alice"), ("SCRAM-SHA-512", "bob")):
        with NodeClient("127.0.0.1", port, credentials=Credentials(mechanism, user, f"{user}-pw")) as client:
            assert client.request(MetadataRequest(topics=[])).brokers
    return True


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"row {case.row}: {case.name}")
def test_the_answer_that_the_table_demands(port: int, case: Case) -> None:
    assert run(case, port) == case.expect
    assert serves_the_next_client(port)


def test_row_30_a_final_message_of_another_session(port: int) -> None:
    assert replayed(port) == ((FAILED, CLOSED), (0, 0))


def test_row_42_two_connections_with_one_nonce(port: int) -> None:
    assert same_nonce(port) == [(0, 0), (0, 0)]


def test_row_27_and_32_the_texts_for_unknown_users_are_those_for_wrong_passwords(port: int) -> None:
    texts = []
    for user in (b"alice", b"nobody"):
        with Login(port) as login:
            assert login.handshake("PLAIN") == 0
            texts.append(login.response_to(SaslAuthenticateRequest(auth_bytes=b"\0" + user + b"\0x"), 1).error_message)
    shown = []
    for user in (b"bob", b"nobody", b"nobody"):
        with Login(port) as login:
            talk = ScramTalk(login, user)
            bare, _ = talk.final()
            answer = login.response_to(SaslAuthenticateRequest(auth_bytes=bare + b",p=AAAA"), 1)
            texts.append(answer.error_message)
            shown.append((talk.salt, talk.iterations))
    assert texts[0] == texts[1] and texts[2] == texts[3] == texts[4]
    assert shown[1] == shown[2] != shown[0] and shown[1][1] == shown[0][1]


def test_row_33_a_credential_deleted_during_the_login(process: BrokerProcess, port: int) -> None:
    with NodeClient(process.host, process.port) as client, Login(port) as login:
        talk = ScramTalk(login)
        deletion = ScramCredentialDeletion(name="bob", mechanism=talk.mechanism.number)
        client.request(AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[]))
        assert talk.end(*talk.final()) == (FAILED, CLOSED)
        add_bob(client)


def descriptors(process: BrokerProcess) -> int:
    return len(os.listdir(f"/proc/{process.pid}/fd"))


def test_repeats_leak_nothing(process: BrokerProcess, port: int) -> None:
    """After so many repeats of each, memory, descriptors and threads are what they were after each was done once."""
    for case in CASES:
        run(case, port)
    threads = len(os.listdir(f"/proc/{process.pid}/task"))
    before, growth = process.rss_bytes(), {}
    for case in CASES:
        start = process.rss_bytes()
        for _ in range(REPEATS if case.row != 21 else max(1, REPEATS // 10)):
            assert run(case, port) == case.expect, case.name
        growth[case.name] = process.rss_bytes() - start
    assert serves_the_next_client(port)
    largest = sorted(growth.items(), key=lambda item: -item[1])[:5]
    assert process.rss_bytes() - before <= MAX_GROWTH_BYTES, largest
    assert len(os.listdir(f"/proc/{process.pid}/task")) <= threads
    with Login(port):
        held = descriptors(process)
        wait_for(lambda: descriptors(process) <= held, what="the connections are closed")
    metrics = metrics_of(process)
    wait_for(lambda: "klamm_unauthenticated_connections 0" in metrics_of(process), what="nobody waits for a login")
    assert 'klamm_connections_closed_total{reason="login_failed"}' in metrics


def metrics_of(process: BrokerProcess) -> str:
    host, _, path = process.metrics_url.removeprefix("http://").partition("/")
    address, _, port = host.rpartition(":")
    with socket.create_connection((address, int(port)), 10) as client:
        client.sendall(f"GET /{path} HTTP/1.0\r\n\r\n".encode())
        parts = []
        while part := client.recv(1 << 16):
            parts.append(part)
    return b"".join(parts).decode()


def test_rows_17_and_20_silence_and_single_bytes_end_with_the_deadline(tmp_path: Path) -> None:
    with broker(tmp_path, klamm_authentication_timeout_ms=300) as (_, port), ExitStack() as stack:
        silent, begun, greeted = (stack.enter_context(Login(port)) for _ in range(3))
        assert (begun.handshake("PLAIN"), greeted.versions()) == (0, 0)
        slow = stack.enter_context(Login(port))
        slow.send(struct.pack(">i", 500 * 1024))
        slow.socket.settimeout(0.02)
        while (end := slow.receive()) is SILENT:
            slow.send(b"x")
        assert end is CLOSED
        assert [login.receive() for login in (silent, begun, greeted)] == [CLOSED] * 3
        assert serves_the_next_client(port)


def test_connections_without_a_login_are_limited_in_number(tmp_path: Path) -> None:
    limits = {"klamm.max.unauthenticated.connections.per.ip": 5}
    (port,) = free_ports(1)
    with BrokerProcess(tmp_path / "data", {**config(port), **limits}), ExitStack() as stack:
        held = [stack.enter_context(Login(port)) for _ in range(5)]
        assert [login.versions() for login in held] == [0] * 5
        with Login(port) as refused:
            assert refused.versions() is CLOSED
        assert (held[0].handshake("PLAIN"), held[0].authenticate(GOOD)) == (0, 0)  # makes room for one
        with Login(port) as next_one:
            assert next_one.versions() == 0
        held[1].close()
        wait_for(lambda: serves_the_next_client_of_plain(port), what="a closed one makes room")


def serves_the_next_client_of_plain(port: int) -> bool:
    with Login(port) as login:
        return login.handshake("PLAIN") == 0 and login.authenticate(GOOD) == 0


def test_row_43_failed_logins_wait_in_bounded_number_and_good_clients_are_served(tmp_path: Path) -> None:
    limits = {
        "connection.failed.authentication.delay.ms": 2000,
        "klamm.max.delayed.failures": 3,
        "klamm.max.unauthenticated.connections.per.ip": 1000,
    }
    (port,) = free_ports(1)
    with BrokerProcess(tmp_path / "data", {**config(port), **limits}), ExitStack() as stack:
        failing = [stack.enter_context(Login(port)) for _ in range(200)]
        for login in failing:
            assert login.handshake("PLAIN") == 0
            login.send(frame_of(SaslAuthenticateRequest(auth_bytes=b"\0alice\0x"), 1))
        assert serves_the_next_client_of_plain(port)
        seen = [login.end() for login in failing]
        assert (seen.count(RAW), seen.count(CLOSED)) == (3, 197)


def test_row_43_an_address_that_fails_too_often_in_a_second_gets_no_answer(tmp_path: Path) -> None:
    with broker(tmp_path, klamm_max_failed_logins_per_ip=2) as (_, port):
        seen = []
        for _ in range(30):
            with Login(port) as login:
                login.handshake("PLAIN")
                seen.append(login.authenticate(b"\0alice\0x"))
        assert set(seen) == {FAILED, CLOSED} and seen.count(CLOSED) > seen.count(FAILED)
        assert serves_the_next_client_of_plain(port)


def renewing(path: Path, max_ms: int) -> object:
    return broker(path, connections_max_reauth_ms=max_ms)


def logged_in(login: Login) -> None:
    assert (login.handshake("PLAIN"), login.authenticate(GOOD)) == (0, 0)


def test_row_41_what_may_happen_in_a_re_authentication(tmp_path: Path) -> None:
    with broker(tmp_path, connections_max_reauth_ms=60_000) as (_, port):
        with Login(port) as login:  # the first at once, the next within a second is refused, the connection stays
            logged_in(login)
            logged_in(login)
            assert (login.handshake("PLAIN"), login.authenticate(GOOD), login.metadata()) == (ILLEGAL, ILLEGAL, 0)
        with Login(port) as login:  # another user
            talk = ScramTalk(login)
            assert talk.end(*talk.final()) == (0, 0)
            other = login.response_to(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
            assert other.error_code == 0
            assert (login.authenticate(b"n,,n=nobody,r=x"), login.authenticate(b"junk"), login.end()) == (
                0,
                FAILED,
                CLOSED,
            )
        with Login(port) as login:  # another mechanism: at its token
            logged_in(login)
            assert (login.handshake("SCRAM-SHA-256"), login.authenticate(b"n,,n=bob,r=x")) == (0, CLOSED)
        with Login(port) as login:  # an unknown one: at once
            logged_in(login)
            assert login.handshake("NOPE") is CLOSED
        with Login(port) as login:  # a request in the middle
            logged_in(login)
            assert (login.handshake("PLAIN"), login.raw(frame_of(MetadataRequest(topics=[]), 12)), login.end()) == (
                0,
                RAW,
                CLOSED,
            )
        with Login(port) as login:  # a bad password
            logged_in(login)
            assert (login.handshake("PLAIN"), login.authenticate(b"\0alice\0x"), login.end()) == (0, FAILED, CLOSED)


def test_row_41_after_the_session_only_a_new_login_is_taken(tmp_path: Path) -> None:
    with broker(tmp_path, connections_max_reauth_ms=300) as (process, port):
        with Login(port) as late, Login(port) as renewed:
            logged_in(late)
            logged_in(renewed)
            assert late.metadata() == 0
            time.sleep(0.4)
            logged_in(renewed)
            assert (late.metadata(), renewed.metadata()) == (CLOSED, 0)
        assert 'klamm_connections_closed_total{reason="session_expired"} 1' in metrics_of(process)


if LONG:  # holds the table, not the broker, against Kafka: enough to do it once in a while

    @pytest.mark.java
    def test_apache_kafka_answers_as_the_table_says(tmp_path: Path) -> None:
        """The column "Kafka" of the table, asked of Kafka 4.4 itself."""
        (sasl_port,) = free_ports(1)
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        overrides = {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS,
            "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": module,
            "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": module,
            "connection.failed.authentication.delay.ms": "1",
        }
        differs = {}
        with apache_kafka(tmp_path, overrides, sasl_port=sasl_port) as kafka:
            with NodeClient("127.0.0.1", kafka.port) as client:
                add_bob(client)
            wait_for(lambda: serves_the_next_client(sasl_port))
            for case in CASES:
                expect = case.expect if case.kafka is SAME else case.kafka
                if expect is None:
                    continue
                try:
                    seen = run(case, sasl_port)
                except Exception as error:
                    seen = error
                if seen != expect:
                    differs[case.name] = (expect, seen)
        assert differs == {}
