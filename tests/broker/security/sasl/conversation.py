"""A login without a network: an authenticator, and what a client says to it."""

from __future__ import annotations

import random
from typing import Any

from klamm.broker.network.response import Response
from klamm.broker.security.sasl.authenticator import Authenticator, EnabledMechanism, Outcome, Step
from klamm.broker.security.sasl.plain import Plain
from klamm.broker.security.sasl.scram import Scram, ScramUsers
from klamm.client.sasl import Conversation
from klamm.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from klamm.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from klamm.protocol.scram import BY_NAME, ScramCredential, ScramMechanism, credential_of, salt_password
from tests.support.embedded import CORRELATION_ID, decode_reply, encode_frame

PASSWORDS = {"alice": "alice-pw", "bob": "päß wört", "a,b=c": "comma"}
SECRET = b"s" * 32


def bytes_of(seed: int) -> Any:
    return random.Random(seed).randbytes


def made(mechanism: ScramMechanism, password: str, iterations: int = 4096) -> ScramCredential:
    salt = b"salt of " + password.encode()
    return credential_of(mechanism, salt_password(mechanism, password, salt, iterations), salt, iterations)


CREDENTIALS = {
    (user, mechanism.name): made(mechanism, password)
    for user, password in PASSWORDS.items()
    for mechanism in BY_NAME.values()
}


class Desk:
    """One connection's authenticator over the users above; time stands where the test puts it."""

    def __init__(
        self, *, max_session_ms: int = 0, enabled: tuple[str, ...] = ("PLAIN", *BY_NAME), seed: int = 1
    ) -> None:
        self.now_ms = 1000.0
        self.credentials = dict(CREDENTIALS)
        self.users = {
            name: ScramUsers(mechanism, self._finder(name), SECRET, bytes_of(seed))
            for name, mechanism in BY_NAME.items()
        }
        begins: dict[str, Any] = {name: (lambda users=users: Scram(users)) for name, users in self.users.items()}
        begins["PLAIN"] = lambda: Plain(PASSWORDS)
        self.authenticator = Authenticator({name: EnabledMechanism(begins[name], max_session_ms) for name in enabled})

    def _finder(self, name: str) -> Any:
        return lambda user: self.credentials.get((user, name))

    def receive(self, frame: bytes | memoryview) -> Step:
        return self.authenticator.receive(memoryview(bytes(frame)), self.now_ms)

    def ask(self, request: Any, version: int) -> tuple[Outcome, Any]:
        """Send a request; its outcome and the decoded response."""
        step = self.receive(encode_frame(request, version))
        reply = Response(step.reply) if step.reply is not None else None
        return step.outcome, decode_reply(reply, request.api_key, version)

    def handshake(self, mechanism: str, version: int = 1) -> tuple[Outcome, Any]:
        return self.ask(SaslHandshakeRequest(mechanism=mechanism), version)

    def authenticate(self, token: bytes, version: int = 1) -> tuple[Outcome, Any]:
        return self.ask(SaslAuthenticateRequest(auth_bytes=token), version)

    def handshake_response(self) -> SaslHandshakeResponse:
        return SaslHandshakeResponse(error_code=0, mechanisms=[])

    def response_with(self, token: bytes) -> SaslAuthenticateResponse:
        """A raw token as a client of `SaslAuthenticate` would get it."""
        return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=token, session_lifetime_ms=0)

    def run(self, conversation: Conversation) -> int:
        """Let a client log in; how long its session lasts. Raises the client's LoginFailed."""
        request, version = next(conversation)
        try:
            while True:
                _, response = self.ask(request, version)
                request, version = conversation.send(response)
        except StopIteration as end:
            return int(end.value)


def raw(reply: bytes | None) -> bytes:
    """The token in a frame of its own."""
    assert reply is not None
    assert int.from_bytes(reply[:4], "big") == len(reply) - 4
    return reply[4:]


__all__ = ["CORRELATION_ID", "Desk", "raw"]
