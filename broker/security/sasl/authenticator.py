"""The state machine of a login with SASL: frames in, answers and verdicts out, no I/O and no clock.

    START --ApiVersions--> VERSIONED --+
      +---------------SaslHandshake----+--v0--> RAW     tokens are frames of their own
                                       +--v1--> FRAMED  tokens travel in SaslAuthenticate (KIP-152)
    RAW, FRAMED --success--> DONE --SaslHandshake, when the session has an end (KIP-368)--> RAW, FRAMED

What does not fit the state ends the connection: at once and without an answer where nothing is agreed on yet, else with
ILLEGAL_SASL_STATE. A failed login has its answer built here and sent by the caller after a delay. Bodies of requests
that have no place before a login are not parsed.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from klamm.broker.security.sasl.mechanism import Challenge, LoggedIn, LoginFailed, Mechanism
from klamm.broker.security.sasl.wire import Asked, answer, asked_in, error_answer, raw_answer
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from klamm.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from klamm.protocol.wire import Malformed

HANDSHAKE_KEY = struct.pack(">h", ApiKey.SASL_HANDSHAKE)
MIN_RENEWAL_INTERVAL_MS = 1000  # from the start of one re-authentication to that of the next
SHOWN_NAME = 100  # characters of a user's name in the log


class Outcome(Enum):
    """What the caller is to do after it has sent the answer, if there is one."""

    GO_ON = auto()
    PASS_ON = auto()  # have the ApiVersions request answered as after a login, then call `passed_on`
    DONE = auto()
    FAILED = auto()  # answer after a delay, then close
    CLOSE = auto()


@dataclass(frozen=True, slots=True)
class Step:
    """`reply` is a whole frame with its size; `reason` is for the log."""

    outcome: Outcome
    reply: bytes | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class EnabledMechanism:
    """`begin` makes a conversation; a session lasts `max_session_ms` at most, 0 is no limit."""

    begin: Callable[[], Mechanism]
    max_session_ms: int = 0


class State(Enum):
    START = auto()
    VERSIONED = auto()
    RAW = auto()
    FRAMED = auto()
    DONE = auto()


class Authenticator:
    """The login of one connection, and its re-authentications. `user` is the name, once DONE."""

    __slots__ = (
        "_begun_at_ms",
        "_conversation",
        "_is_renewal",
        "_mechanisms",
        "_state",
        "is_token_login",
        "mechanism",
        "session_end_ms",
        "user",
    )

    def __init__(self, mechanisms: Mapping[str, EnabledMechanism]) -> None:
        self._mechanisms = mechanisms
        self._state = State.START
        self._conversation: Mechanism | None = None
        self._is_renewal = False
        self._begun_at_ms = -math.inf
        self.is_token_login = False
        self.mechanism = ""
        self.user = ""
        self.session_end_ms = math.inf

    @property
    def is_endless(self) -> bool:
        """Whether the session lasts as long as the connection."""
        return self.session_end_ms == math.inf

    def receive(self, frame: memoryview, now_ms: float) -> Step:
        """Take one frame, without its size. Not to be called when DONE: see `begin_renewal`."""
        if self._state is State.RAW:
            return self._raw(bytes(frame), now_ms)
        try:
            asked = asked_in(frame)
            if self._state is State.FRAMED:
                return self._framed(asked, now_ms)
            return self._opening(asked)
        except Malformed as error:
            return Step(Outcome.CLOSE, reason=str(error))

    def passed_on(self, error_code: int) -> None:
        """Note how the ApiVersions request was answered; one that failed may be asked again."""
        if error_code == ErrorCode.NONE:
            self._state = State.VERSIONED

    def begin_renewal(self, now_ms: float) -> bool:
        """Return whether a SaslHandshake begins a re-authentication now; `receive` takes it then."""
        assert self._state is State.DONE
        if self.is_endless or now_ms - self._begun_at_ms < MIN_RENEWAL_INTERVAL_MS:
            return False
        self._begun_at_ms = now_ms
        self._is_renewal = True
        self._state = State.VERSIONED
        return True

    def _opening(self, asked: Asked) -> Step:
        if asked.api_key == ApiKey.SASL_HANDSHAKE:
            return self._handshake(asked)
        if asked.api_key == ApiKey.API_VERSIONS and self._state is State.START:
            return Step(Outcome.PASS_ON)
        return Step(Outcome.CLOSE, reason=f"{asked.name} before a login")

    def _handshake(self, asked: Asked) -> Step:
        name = asked.body(SaslHandshakeRequest).mechanism
        response = SaslHandshakeResponse(error_code=0, mechanisms=list(self._mechanisms))
        enabled = self._mechanisms.get(name)
        if enabled is None:
            reason = f"mechanism {name[:SHOWN_NAME]!r} is not enabled, only {', '.join(self._mechanisms)}"
            if self._is_renewal:
                return Step(Outcome.CLOSE, reason=reason)
            response.error_code = int(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
            return Step(Outcome.FAILED, answer(asked, response), reason)
        is_other = self._is_renewal and name != self.mechanism
        self._conversation = None if is_other else enabled.begin()
        self._state = State.FRAMED if asked.version else State.RAW
        if not is_other:
            self.mechanism = name
        return Step(Outcome.GO_ON, answer(asked, response))

    def _framed(self, asked: Asked, now_ms: float) -> Step:
        if asked.api_key != ApiKey.SASL_AUTHENTICATE:
            text = f"{asked.name} during a login"
            return Step(Outcome.FAILED, error_answer(asked, ErrorCode.ILLEGAL_SASL_STATE, text), text)
        token = asked.body(SaslAuthenticateRequest).auth_bytes
        response = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=0)
        try:
            result = self._step(token)
        except LoginFailed as error:
            response.error_code = int(ErrorCode.SASL_AUTHENTICATION_FAILED)
            response.error_message = error.text or self._neutral_text()
            return Step(Outcome.FAILED, answer(asked, response), self._reason(error))
        if result is None:
            return Step(Outcome.FAILED, reason="another mechanism than that of the login")
        response.auth_bytes = result.token
        if isinstance(result, Challenge):
            return Step(Outcome.GO_ON, answer(asked, response))
        response.session_lifetime_ms = self._complete(result, now_ms)
        return Step(Outcome.DONE, answer(asked, response))

    def _raw(self, token: bytes, now_ms: float) -> Step:
        try:
            result = self._step(token)
        except LoginFailed as error:
            return Step(Outcome.FAILED, reason=self._reason(error))
        if result is None:
            return Step(Outcome.FAILED, reason="another mechanism than that of the login")
        if isinstance(result, LoggedIn):
            self._complete(result, now_ms)
        return Step(Outcome.DONE if isinstance(result, LoggedIn) else Outcome.GO_ON, raw_answer(result.token))

    def _step(self, token: bytes) -> Challenge | LoggedIn | None:
        """Let the conversation go on; None when there is none. Raises LoginFailed."""
        if self._conversation is None:
            return None
        result = self._conversation.step(token)
        if isinstance(result, LoggedIn) and self._is_renewal and result.user != self.user:
            text = f"Cannot change principals during re-authentication from User.{self.user}: User.{result.user}"
            raise LoginFailed(text, user=result.user)
        return result

    def _complete(self, result: LoggedIn, now_ms: float) -> int:
        """Begin the session; returns how long it lasts in ms, 0 for one without an end."""
        limit_ms = self._mechanisms[self.mechanism].max_session_ms
        lifetime_ms = min(result.lifetime_ms, limit_ms if limit_ms > 0 else math.inf)
        self.user = result.user
        self.is_token_login = result.is_by_token
        self.session_end_ms = now_ms + lifetime_ms
        self._conversation = None
        self._state = State.DONE
        return 0 if lifetime_ms == math.inf else int(lifetime_ms)

    def _neutral_text(self) -> str:
        what = "re-authentication" if self._is_renewal else "authentication"
        return f"Authentication failed during {what} due to invalid credentials with SASL mechanism {self.mechanism}"

    def _reason(self, error: LoginFailed) -> str:
        return f"mechanism={self.mechanism} user={error.user[:SHOWN_NAME]!r}: {error.reason}"
