"""The conversation of OAUTHBEARER, and fetching of keys from servers that mean no good."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from klamm.broker.key_fetching import MOST_BYTES, CannotFetch, KeyFetcher, fetch
from klamm.broker.security.sasl.mechanism import Challenge, LoggedIn, LoginFailed
from klamm.broker.security.sasl.oauth.bearer import Bearer, OAuthBearer, TokenRefused
from klamm.broker.security.sasl.oauth.settings import HANDLERS, KeySource, read_oauth
from klamm.config import BrokerConfig, ConfigError
from tests.broker.security.sasl.tokens import GOOD_SET, body, http_server


def check(token: str) -> Bearer:
    if token == "good":
        return Bearer("alice", 5000.0)
    raise TokenRefused("not the good one")


def first(token: str = "good", *, gs2: str = "n,,", scheme: str = "Bearer", more: str = "") -> bytes:
    return f"{gs2}\1auth={scheme} {token}\1{more}\1".encode()


@pytest.mark.parametrize(
    "message",
    [
        first(),
        first(scheme="bEARER"),
        first(gs2="n,a=alice,"),
        first(more="traceId=1\1other=a b\tc\1"),
    ],
)
def test_a_good_token_logs_in_for_its_lifetime(message: bytes) -> None:
    assert OAuthBearer(check).step(message) == LoggedIn("alice", lifetime_ms=5000.0)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        first(gs2="y,,"),
        first(gs2="p=tls-unique,,"),
        first(gs2="n,a=,"),
        first(gs2="n,a=b=ob,"),
        first(scheme="Basic"),
        first()[:-1],
        first() + b"x",
        first(more="auth=Bearer good\1"),
        first(more="1x=y\1"),
        first(more="x=\1"),
        first(more="x=\x7f\1"),
        first(more="a=b\1" * 65),
        first(more="a=b\1" * 10_000),
        first("x" * 40_000),
        b"\xff" * 100,
    ],
    ids=range(19),
)
def test_security_row_38_what_is_no_first_message_fails_with_the_neutral_text(message: bytes) -> None:
    with pytest.raises(LoginFailed) as caught:
        OAuthBearer(check).step(message)
    assert caught.value.text is None


def test_another_authorization_id_fails() -> None:
    with pytest.raises(LoginFailed, match=r"authorization id \(a,=b\) .* principal name \(alice\)"):
        OAuthBearer(check).step(first(gs2="n,a=a=2C=3Db,"))


def test_security_row_37_after_a_refusal_the_byte_1_ends_and_a_new_token_is_judged() -> None:
    machine = OAuthBearer(check)
    assert machine.step(first("bad")) == Challenge(b'{"status":"invalid_token"}')
    with pytest.raises(LoginFailed) as caught:
        machine.step(b"\x01")
    assert caught.value.text == '{"status":"invalid_token"}'
    machine = OAuthBearer(check)
    machine.step(first("bad"))
    assert machine.step(first()) == LoggedIn("alice", lifetime_ms=5000.0)


def test_security_row_37_there_are_three_tokens_at_most() -> None:
    machine = OAuthBearer(check)
    for _ in range(3):
        machine.step(first("bad"))
    with pytest.raises(LoginFailed, match="more than 3"):
        machine.step(first())
    machine = OAuthBearer(check)
    machine.step(first("bad"))
    with pytest.raises(LoginFailed):
        machine.step(b"\x02")


# -- fetching ---------------------------------------------------------------------------------------------------


def source(url: str, read_timeout_s: float = 5.0) -> KeySource:
    return KeySource(url, 3600, 0.01, 0.02, 5.0, read_timeout_s)


def drip(head: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    """Send one byte now and then for ever."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(head)
        for _ in range(200):
            request.wfile.write(b"x")
            request.wfile.flush()
            time.sleep(0.05)

    return answer


def endless(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.end_headers()
    for _ in range(1 << 14):
        request.wfile.write(b" " * 65536)


def test_keys_are_fetched_over_http_and_from_a_file(tmp_path: Path) -> None:
    with http_server(body(GOOD_SET)) as url:
        assert fetch(source(url)) == GOOD_SET
    (tmp_path / "my keys.json").write_bytes(GOOD_SET)
    assert fetch(source(f"file://{tmp_path}/my%20keys.json")) == GOOD_SET
    with pytest.raises(CannotFetch):
        fetch(source(f"file://{tmp_path}/absent"))


@pytest.mark.parametrize(
    "answer",
    [
        body(b"", 500),
        body(b"", 302, location="http://127.0.0.1:1/"),
        body(b" " * (MOST_BYTES + 1)),
        body(GOOD_SET, content_length=str(len(GOOD_SET) + 100)),
        endless,
        drip(b"HTTP/1.1 200 OK\r\n\r\n"),
        drip(b"HTTP/1.1 200 OK\r\nx-a: "),
        lambda request: request.wfile.write(b"no HTTP\r\n\r\n"),
        lambda request: None,
    ],
    ids=["500", "redirect", "large", "cut off", "endless", "slow body", "slow head", "no HTTP", "nothing"],
)
def test_security_row_39_a_hostile_server_costs_one_bounded_attempt(
    answer: Callable[[BaseHTTPRequestHandler], None],
) -> None:
    with http_server(answer) as url, pytest.raises(CannotFetch):
        fetch(source(url, read_timeout_s=0.3))


def test_a_fetcher_tries_again_fetches_when_woken_and_stops(caplog: pytest.LogCaptureFixture) -> None:
    answers = [body(b"", 500), body(b"", 500), body(GOOD_SET), body(GOOD_SET + b" ")]
    fetched: list[bytes] = []
    arrived = threading.Semaphore(0)

    def take(data: bytes) -> None:
        fetched.append(data)
        arrived.release()

    def answer(request: BaseHTTPRequestHandler) -> None:
        answers.pop(0)(request)

    with http_server(answer) as url:
        fetcher = KeyFetcher(source(url.replace("//", "//user:hush@") + "?key=hush"), take)
        fetcher.start()
        assert arrived.acquire(timeout=20)
        fetcher.wake()
        assert arrived.acquire(timeout=20)
        fetcher.stop()
        fetcher.join(20)
    assert fetched == [GOOD_SET, GOOD_SET + b" "]
    assert "status 500" in caplog.text
    assert "hush" not in caplog.text
    assert not any(thread.name == "klamm-jwks" for thread in threading.enumerate())


# -- settings ---------------------------------------------------------------------------------------------------

GOOD = {
    "sasl.server.callback.handler.class": HANDLERS[0],
    "sasl.oauthbearer.jwks.endpoint.url": "https://issuer/keys",
    "sasl.oauthbearer.expected.audience": "kafka",
    "sasl.oauthbearer.expected.issuer": "https://issuer",
}
PREFIX = "listener.name.in.oauthbearer."


def read(settings: dict[str, str], listener: str = "IN://127.0.0.1:0", opts: str = "", **options: str) -> object:
    config = BrokerConfig(
        {
            "listeners": listener,
            "listener.security.protocol.map": "IN:SASL_PLAINTEXT",
            **{name if name.startswith("klamm.") else PREFIX + name: value for name, value in settings.items()},
        }
    )
    return read_oauth(config, config.listeners[0], options, {"KAFKA_OPTS": opts})


def test_settings_may_have_the_prefix_of_the_mechanism() -> None:
    settings = read({**GOOD, "sasl.oauthbearer.clock.skew.seconds": "7", "sasl.login.read.timeout.ms": "250"})
    assert settings.expected.audiences == ("kafka",)  # type: ignore[attr-defined]
    assert settings.expected.skew_s == 7  # type: ignore[attr-defined]
    assert settings.source.read_timeout_s == 0.25  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sasl.oauthbearer.expected.audience": ""}, "allow.unverified.audience"),
        ({"sasl.oauthbearer.expected.issuer": ""}, "allow.unverified.issuer"),
        ({"sasl.oauthbearer.jwks.endpoint.url": ""}, "jwks.endpoint.url"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "ftp://x/y"}, "jwks.endpoint.url"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "https:///keys"}, "jwks.endpoint.url"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "https://h:99999/keys"}, "jwks.endpoint.url"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file://elsewhere/keys"}, "jwks.endpoint.url"),
        ({"sasl.server.callback.handler.class": "com.example.Mine"}, "com.example.Mine"),
        (
            {
                "sasl.oauthbearer.jwt.validator.class": (
                    "org.apache.kafka.common.security.oauthbearer.ClientJwtValidator"
                )
            },
            "BrokerJwtValidator",
        ),
    ],
)
def test_settings_that_would_let_wrong_tokens_in_are_refused(change: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read({**GOOD, **change})
    assert words in str(caught.value)


def test_what_is_not_verified_must_be_asked_for() -> None:
    settings = read(
        {
            **GOOD,
            "sasl.oauthbearer.expected.audience": "",
            "sasl.oauthbearer.allow.unverified.audience": "true",
        }
    )
    assert settings.expected.audiences == ()  # type: ignore[attr-defined]


def test_the_allow_lists_of_the_process_bound_urls_and_files() -> None:
    option = "-Dorg.apache.kafka.sasl.oauthbearer.allowed."
    assert read(GOOD, opts=f"-Xmx1g {option}urls=https://other,https://issuer/keys")
    with pytest.raises(ConfigError, match="KAFKA_OPTS"):
        read(GOOD, opts=f"{option}urls=https://other")
    with pytest.raises(ConfigError, match="KAFKA_OPTS"):
        read({**GOOD, "sasl.oauthbearer.jwks.endpoint.url": "file:///etc/passwd"}, opts=f"{option}files=/keys")


def test_unsigned_tokens_want_a_setting_and_the_loopback() -> None:
    with pytest.raises(ConfigError, match="write himself a token"):
        read({})
    unsecured = {"klamm.sasl.oauthbearer.unsecured": "true"}
    with pytest.raises(ConfigError, match="not on the loopback"):
        read(unsecured, "IN://0.0.0.0:0")
    settings = read(unsecured, unsecuredValidatorPrincipalClaimName="name", unsecuredValidatorRequiredScope="a b")
    assert settings.expected.subject_claim == "name"  # type: ignore[attr-defined]
    assert settings.expected.required_scope == {"a", "b"}  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="ClockSkew"):
        read(unsecured, unsecuredValidatorAllowableClockSkewMs="x")


def test_the_body_of_a_refusal_is_json() -> None:
    assert json.loads(TokenRefused("x").as_json()) == {"status": "invalid_token"}
