"""What PLAIN answers to each message, right or not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.broker.security.sasl.mechanism import LoggedIn, LoginFailed
from klamm.broker.security.sasl.plain import Plain

USERS = {"admin": "secret", "müller": "pässwort"}
TOKENS = "Invalid SASL/PLAIN response: expected 3 tokens, got {}"
WRONG = "Authentication failed: Invalid username or password"
OTHER = "Authentication failed: Client requested an authorization id that is different from username"


@pytest.mark.parametrize(
    ("message", "user"),
    [(b"\0admin\0secret", "admin"), (b"admin\0admin\0secret", "admin"), ("\0müller\0pässwort".encode(), "müller")],
)
def test_the_right_password_logs_in(message, user):
    assert Plain(USERS).step(message) == LoggedIn(user)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"", TOKENS.format(1)),
        (b"\0", TOKENS.format(2)),
        (b"\0admin\0secret\0", TOKENS.format(4)),
        (b"\0" * 100_000, TOKENS.format(4)),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0admin\0", "Authentication failed: password not specified"),
        (b"\0admin\0Secret", WRONG),
        (b"\0nobody\0secret", WRONG),
        (b"\0nobody\0" + b"x" * 500_000, WRONG),
        (b"other\0admin\0secret", OTHER),
        (b"other\0admin\0wrong", WRONG),
    ],
)
def test_anything_else_is_refused_with_kafkas_text(message, text):
    with pytest.raises(LoginFailed) as refused:
        Plain(USERS).step(message)
    assert refused.value.text == text


@pytest.mark.parametrize(
    "user", ["admin\ufeff", "\ufeffadmin", "\uff41dmin", "mu\u0308ller", "ADMIN", " admin", "admin "]
)
def test_names_are_not_normalized(user):
    with pytest.raises(LoginFailed, match=WRONG):
        Plain(USERS).step(f"\0{user}\0secret".encode())


@given(st.binary(max_size=300))
def test_no_other_bytes_log_in(message):
    if message.split(b"\0")[1:] == [b"admin", b"secret"]:
        return
    with pytest.raises(LoginFailed):
        Plain({"admin": "secret"}).step(message)


def test_without_users_nobody_logs_in():
    with pytest.raises(LoginFailed, match=WRONG):
        Plain({}).step(b"\0admin\0x")
