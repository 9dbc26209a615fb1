"""The state machine of a login, walked by the tables of what each state does with each input."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.broker.security.sasl.authenticator import Outcome
from klamm.client.sasl import Credentials, LoginFailed, log_in
from klamm.protocol.apis import API, ApiKey, request_class
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.api_versions import ApiVersionsRequest
from klamm.protocol.messages.metadata import MetadataRequest
from klamm.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from klamm.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.security.sasl.conversation import PASSWORDS, Desk, bytes_of, raw
from tests.support.embedded import encode_frame

GOOD = b"\0alice\0alice-pw"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
NEUTRAL = "Authentication failed during authentication due to invalid credentials with SASL mechanism {}"
VERSIONS = ApiVersionsRequest(client_software_name="x", client_software_version="1")


def logged_in(desk: Desk, mechanism: str = "PLAIN", user: str = "alice") -> Desk:
    desk.run(log_in(Credentials(mechanism, user, PASSWORDS[user]), bytes_of(2)))
    return desk


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", PASSWORDS)
def test_a_client_with_the_right_password_logs_in(mechanism, user):
    desk = logged_in(Desk(), mechanism, user)
    assert (desk.authenticator.user, desk.authenticator.mechanism) == (user, mechanism)
    assert desk.authenticator.is_endless


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "alice-pw"), ("Alice", "alice-pw")])
def test_a_client_with_another_password_is_refused(mechanism, user, password):
    desk = Desk()
    expected = "Authentication failed: Invalid username or password" if mechanism == "PLAIN" else NEUTRAL
    with pytest.raises(LoginFailed, match=expected.format(mechanism)):
        desk.run(log_in(Credentials(mechanism, user, password), bytes_of(2)))
    assert desk.authenticator.user == ""


def test_versions_may_be_asked_once_and_again_after_an_error():
    desk = Desk()
    frame = encode_frame(VERSIONS, 3)
    assert desk.receive(frame).outcome is Outcome.PASS_ON
    desk.authenticator.passed_on(ErrorCode.UNSUPPORTED_VERSION)
    assert desk.receive(frame).outcome is Outcome.PASS_ON
    desk.authenticator.passed_on(ErrorCode.NONE)
    assert desk.receive(frame).outcome is Outcome.CLOSE


def test_versions_of_an_unknown_version_are_passed_on():
    assert Desk().receive(struct.pack(">hhih", 18, 99, 7, -1)).outcome is Outcome.PASS_ON


def cases():
    return [(api, version) for api, info in API.items() for version in range(info.min_version, info.max_version + 1)]


@pytest.mark.parametrize("is_versioned", [False, True])
def test_every_other_api_before_a_login_is_a_close_without_an_answer(is_versioned):
    for api, version in cases():
        if api in (ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS):
            continue
        desk = Desk()
        if is_versioned:
            desk.authenticator.passed_on(0)
        step = desk.receive(struct.pack(">hhih", api, version, 7, -1) + b"\xff" * 20)  # a body that cannot be parsed
        assert (step.outcome, step.reply) == (Outcome.CLOSE, None), (api, version)


@pytest.mark.parametrize("name", ["PLAINN", "plain", "GSSAPI", "", "a\0b", "x" * 32767, "\ufffd" * 10000])
def test_a_mechanism_that_is_not_enabled(name):
    outcome, response = Desk(enabled=("SCRAM-SHA-512", "PLAIN")).handshake(name)
    assert outcome is Outcome.FAILED
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == ["SCRAM-SHA-512", "PLAIN"]


def test_a_mechanism_that_is_no_utf8():
    frame = struct.pack(">hhih", 17, 1, 7, -1) + struct.pack(">h", 4) + b"\xff\xfe\0P"
    step = Desk().receive(frame)
    assert step.outcome is Outcome.FAILED and step.reply is not None
    assert step.reply[8:10] == struct.pack(">h", ErrorCode.UNSUPPORTED_SASL_MECHANISM)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0",
        b"\x60\x82\x01\x02 a GSSAPI token",
        struct.pack(">hhih", 17, 2, 7, -1) + b"\0\x05PLAIN",
        struct.pack(">hhih", 17, 1, 7, 30000),
        struct.pack(">hhih", 17, 1, 7, -1) + b"\0\x20PLAIN",
    ],
)
def test_what_is_no_request_at_the_start_is_a_close(frame):
    step = Desk().receive(frame)
    assert (step.outcome, step.reply) == (Outcome.CLOSE, None)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_login_in_authenticate_requests(version):
    desk = Desk()
    assert desk.handshake("PLAIN")[0] is Outcome.GO_ON
    outcome, response = desk.authenticate(GOOD, version)
    assert outcome is Outcome.DONE
    assert (response.error_code, response.error_message, response.auth_bytes) == (0, None, b"")
    assert response.session_lifetime_ms == 0


def test_a_login_in_raw_tokens():
    desk = Desk()
    assert desk.handshake("PLAIN", version=0)[0] is Outcome.GO_ON
    step = desk.receive(GOOD)
    assert (step.outcome, raw(step.reply), desk.authenticator.user) == (Outcome.DONE, b"", "alice")


def test_a_scram_login_in_raw_tokens():
    desk = Desk()
    desk.handshake("SCRAM-SHA-256", version=0)
    conversation = log_in(Credentials("SCRAM-SHA-256", "bob", PASSWORDS["bob"]), bytes_of(3))
    next(conversation)
    request, _ = conversation.send(desk.handshake_response())
    step = desk.receive(request.auth_bytes)
    assert step.outcome is Outcome.GO_ON
    request, _ = conversation.send(desk.response_with(raw(step.reply)))
    step = desk.receive(request.auth_bytes)
    assert step.outcome is Outcome.DONE
    with pytest.raises(StopIteration):
        conversation.send(desk.response_with(raw(step.reply)))


@pytest.mark.parametrize(
    "token", [b"\0alice\0wrong", b"x", b"", bytes(encode_frame(SaslAuthenticateRequest(auth_bytes=GOOD), 1))]
)
def test_a_bad_raw_token_fails_without_an_answer(token):
    desk = Desk()
    desk.handshake("PLAIN", version=0)
    step = desk.receive(token)
    assert (step.outcome, step.reply) == (Outcome.FAILED, None)


@pytest.mark.parametrize("token", [GOOD, b"", b"\0", b"n,,n=alice,r=abc"])
def test_a_raw_token_after_a_handshake_of_version_1_is_a_close(token):
    desk = Desk()
    desk.handshake("PLAIN")
    step = desk.receive(token)
    assert step.reply is None
    assert step.outcome in (Outcome.CLOSE, Outcome.FAILED)  # it may have the bytes of an unknown API


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (SaslHandshakeRequest(mechanism="PLAIN"), 1),
        (SaslHandshakeRequest(mechanism="PLAIN"), 0),
        (VERSIONS, 3),
        (VERSIONS, 0),
    ],
)
def test_a_second_handshake_or_versions_during_a_login(request_, version):
    desk = Desk()
    desk.handshake("PLAIN")
    outcome, response = desk.ask(request_, version)
    assert (outcome, response.error_code) == (Outcome.FAILED, ErrorCode.ILLEGAL_SASL_STATE)


def test_every_api_during_a_login_is_a_failure_with_an_error_where_it_has_a_place():
    answered = 0
    for api, version in cases():
        if api == ApiKey.SASL_AUTHENTICATE:
            continue
        desk = Desk()
        desk.handshake("PLAIN")
        frame = encode_frame(request_class(api)(), version)
        step = desk.receive(frame)
        assert step.outcome is Outcome.FAILED, (api, version)
        answered += step.reply is not None
    assert answered > 100


def test_metadata_v1_during_a_login_is_answered_empty():
    desk = Desk()
    desk.handshake("PLAIN")
    outcome, response = desk.ask(MetadataRequest(topics=None), 1)
    assert (outcome, response.brokers, response.topics) == (Outcome.FAILED, [], [])


def test_an_authenticate_request_that_does_not_decode_is_a_close():
    desk = Desk()
    desk.handshake("PLAIN")
    for version, body in ((0, b"\0\0"), (1, b"\xff\xff\xff\xff"), (2, b"\0\xff\xff\xff\xff\x0f"), (3, b"\0\0\0\0")):
        assert desk.receive(struct.pack(">hhih", 36, version, 7, -1) + body).outcome is Outcome.CLOSE


# -- sessions and re-authentication


def test_a_session_lasts_as_long_as_the_mechanism_allows():
    desk = Desk(max_session_ms=5000)
    desk.handshake("PLAIN")
    assert desk.authenticate(GOOD)[1].session_lifetime_ms == 5000
    assert desk.authenticator.session_end_ms == 6000


def test_without_an_end_there_is_no_re_authentication():
    assert not logged_in(Desk()).authenticator.begin_renewal(2000)


def renewing(desk: Desk) -> Desk:
    desk.now_ms += 3000
    assert desk.authenticator.begin_renewal(desk.now_ms)
    return desk


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_re_authentication_moves_the_end(mechanism):
    desk = renewing(logged_in(Desk(max_session_ms=5000), mechanism))
    logged_in(desk, mechanism)
    assert desk.authenticator.session_end_ms == desk.now_ms + 5000


def test_the_first_may_come_at_once_and_the_second_a_second_later():
    desk = logged_in(Desk(max_session_ms=5000))
    for wait_ms, may_begin in ((0, True), (999, False), (1, True)):
        desk.now_ms += wait_ms
        assert desk.authenticator.begin_renewal(desk.now_ms) is may_begin
        if may_begin:
            logged_in(desk)


def test_re_authentication_as_another_user():
    desk = renewing(logged_in(Desk(max_session_ms=5000)))
    desk.handshake("PLAIN")
    outcome, response = desk.authenticate("\0bob\0päß wört".encode())
    assert (outcome, response.error_code) == (Outcome.FAILED, ErrorCode.SASL_AUTHENTICATION_FAILED)
    assert response.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"


def test_re_authentication_with_a_bad_password():
    desk = renewing(logged_in(Desk(max_session_ms=5000), "SCRAM-SHA-256"))
    desk.handshake("SCRAM-SHA-256")
    outcome, response = desk.authenticate(b"junk")
    assert (outcome, response.error_code) == (Outcome.FAILED, ErrorCode.SASL_AUTHENTICATION_FAILED)
    assert response.error_message == NEUTRAL.format("SCRAM-SHA-256").replace(
        "during authentication", "during re-authentication"
    )


@pytest.mark.parametrize("version", [0, 1])
def test_re_authentication_with_another_mechanism_fails_at_the_token(version):
    desk = renewing(logged_in(Desk(max_session_ms=5000), "SCRAM-SHA-256"))
    outcome, response = desk.handshake("PLAIN", version)
    assert (outcome, response.error_code) == (Outcome.GO_ON, 0)
    step = desk.receive(encode_frame(SaslAuthenticateRequest(auth_bytes=GOOD), 1) if version else GOOD)
    assert (step.outcome, step.reply) == (Outcome.FAILED, None)


def test_re_authentication_with_an_unknown_mechanism_is_a_close():
    desk = renewing(logged_in(Desk(max_session_ms=5000)))
    assert desk.handshake("NOPE") == (Outcome.CLOSE, None)


def test_a_request_within_a_re_authentication():
    desk = renewing(logged_in(Desk(max_session_ms=5000)))
    desk.handshake("PLAIN")
    outcome, response = desk.ask(MetadataRequest(topics=None), 13)
    assert (outcome, response.error_code) == (Outcome.FAILED, ErrorCode.ILLEGAL_SASL_STATE)


# -- anything


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=200),
            st.sampled_from([bytes(encode_frame(VERSIONS, 3)), GOOD, b"\0alice\0wrong"]),
            st.builds(
                lambda name, version: bytes(encode_frame(SaslHandshakeRequest(mechanism=name), version)),
                st.sampled_from([*MECHANISMS, "X"]),
                st.sampled_from([0, 1]),
            ),
            st.builds(
                lambda token, version: bytes(encode_frame(SaslAuthenticateRequest(auth_bytes=token), version)),
                st.one_of(st.binary(max_size=100), st.sampled_from([b"n,,n=alice,r=abc", b"c=biws,r=abc,p=AAAA"])),
                st.sampled_from([0, 1, 2]),
            ),
        ),
        max_size=6,
    )
)
def test_no_frames_without_the_password_log_anybody_in(frames):
    desk = Desk()
    for frame in frames:
        step = desk.receive(frame)
        if step.outcome is Outcome.DONE:
            assert GOOD in frame
        if step.outcome in (Outcome.FAILED, Outcome.CLOSE, Outcome.DONE):
            break
        if step.outcome is Outcome.PASS_ON:
            desk.authenticator.passed_on(0)
