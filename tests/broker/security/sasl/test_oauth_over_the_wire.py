"""OAUTHBEARER of a real broker process with librdkafka, and by hand where no client would do it."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from klamm.broker.security.sasl.oauth.settings import HANDLERS
from tests.broker.security.sasl.tokens import CLAIMS, GOOD_SET, OTHER_RSA, b64, body, http_server, token, unsigned
from tests.support.broker_process import BrokerFailed, BrokerProcess

pytestmark = pytest.mark.clients

LISTENER = "SASL_PLAINTEXT://127.0.0.1:0"
SIGNED = {
    "listeners": LISTENER,
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.server.callback.handler.class": HANDLERS[0],
    "sasl.oauthbearer.expected.audience": "kafka",
    "sasl.oauthbearer.expected.issuer": "https://issuer",
}


def fresh(**changes: object) -> dict[str, object]:
    now = int(time.time())
    return {**CLAIMS, "iat": now, "exp": now + 300, **changes}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    path = tmp_path_factory.mktemp("oauth")
    with http_server(body(GOOD_SET)) as url:
        config = {**SIGNED, "sasl.oauthbearer.jwks.endpoint.url": url}
        with BrokerProcess(path / "data", config) as process:
            yield process


def topics_with(broker: BrokerProcess, text: str, timeout_s: float = 10.0) -> bool:
    """Whether librdkafka gets metadata with this token."""
    client = AdminClient(
        {
            "bootstrap.servers": broker.address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "OAUTHBEARER",
            "oauth_cb": lambda _: (text, time.time() + 300, "alice", {"traceId": "1"}),
            "logger": None,
        }
    )
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        client.poll(0.1)
        try:
            return bool(client.list_topics(timeout=timeout_s / 4).brokers)
        except KafkaException:
            continue
    return False


def exchange(broker: BrokerProcess, *tokens: bytes) -> list[tuple[int, bytes]]:
    """SaslHandshake v1, then SaslAuthenticate v0 with each token: error code and bytes of each answer."""
    answers = []
    with broker.connect() as connection:
        stream = connection.makefile("rb")

        def ask(key: int, version: int, payload: bytes) -> bytes:
            request = struct.pack(">hhih", key, version, 1, 0) + payload
            connection.sendall(struct.pack(">i", len(request)) + request)
            size = stream.read(4)
            return stream.read(struct.unpack(">i", size)[0])[4:] if size else b""

        mechanism = b"OAUTHBEARER"
        ask(17, 1, struct.pack(">h", len(mechanism)) + mechanism)
        for each in tokens:
            answer = ask(36, 0, struct.pack(">i", len(each)) + each)
            if not answer:
                break
            (code, text_size) = struct.unpack_from(">hh", answer)
            at = 4 + max(text_size, 0)
            (size,) = struct.unpack_from(">i", answer, at)
            answers.append((code, answer[at + 4 : at + 4 + size] or answer[4:at]))
    return answers


def first(text: str) -> bytes:
    return f"n,,\1auth=Bearer {text}\1\1".encode()


def test_librdkafka_logs_in_with_a_signed_token(broker: BrokerProcess) -> None:
    assert topics_with(broker, token(fresh()))


def test_security_rows_34_35_36_a_bad_token_is_refused_on_the_wire(broker: BrokerProcess) -> None:
    refused = b'{"status":"invalid_token"}'
    for text in (
        unsigned({"alg": "none"}, fresh()),
        token(fresh(), OTHER_RSA),
        token(fresh(exp=1)),
        token(fresh(aud="other")),
        "a.b.c.d.e",
        b64(b"{}"),
    ):
        assert exchange(broker, first(text), b"\x01") == [(0, refused), (58, refused)]
    assert "Traceback" not in broker.log()


def test_security_row_37_after_a_refusal_a_good_token_logs_in(broker: BrokerProcess) -> None:
    assert exchange(broker, first("bad"), first(token(fresh()))) == [(0, b'{"status":"invalid_token"}'), (0, b"")]
    assert [code for code, _ in exchange(broker, *[first("bad")] * 5)] == [0, 0, 0, 58]


def test_security_row_38_extensions_are_bounded_on_the_wire(broker: BrokerProcess) -> None:
    good = token(fresh())
    for more in ("auth=Bearer x\1", "a=b\1" * 2000):
        ((code, text),) = exchange(broker, f"n,,\1auth=Bearer {good}\1{more}\1".encode())
        assert code == 58
        assert b"OAUTHBEARER" in text
    assert good not in broker.log()


def test_without_a_key_source_the_start_is_refused_and_unsecured_works_on_the_loopback(tmp_path: Path) -> None:
    config = {"listeners": LISTENER, "sasl.enabled.mechanisms": "OAUTHBEARER"}
    with pytest.raises(BrokerFailed, match=r"(?s)exit code 2.*sasl\.server\.callback\.handler\.class"):
        BrokerProcess(tmp_path / "data", config).start()
    with BrokerProcess(tmp_path / "data", {**config, "klamm.sasl.oauthbearer.unsecured": "true"}) as process:
        assert topics_with(process, unsigned({"alg": "none"}, fresh()))
        assert exchange(process, first(token(fresh())))[0][1].startswith(b"{")
