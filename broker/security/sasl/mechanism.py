"""The seam between the state machine of a login and its mechanisms.

A mechanism is one conversation: `step` takes what the client has sent and returns the next challenge, or the outcome of
a login that has succeeded; it raises `LoginFailed` for one that has not. It does no I/O.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

WRONG_AUTHORIZATION_ID = "Authentication failed: Client requested an authorization id that is different from username"


class LoginFailed(Exception):
    """The credentials are wrong. `text` is for the client, None where it would help somebody who guesses; `reason` is
    for the log, and `user` the name that was given, if it got that far."""

    def __init__(self, text: str | None, reason: str = "", user: str = "") -> None:
        super().__init__(text or reason)
        self.text = text
        self.reason = reason or text or ""
        self.user = user


@dataclass(frozen=True, slots=True)
class Challenge:
    """The login goes on: the client is to answer `token`."""

    token: bytes


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """The login has succeeded: `user` is the name, `token` the last answer, `lifetime_ms` how long the credential is
    good for."""

    user: str
    token: bytes = b""
    lifetime_ms: float = math.inf
    is_by_token: bool = False
    """By a delegation token of this user."""


class Mechanism(Protocol):
    """One conversation."""

    def step(self, token: bytes, /) -> Challenge | LoggedIn: ...
