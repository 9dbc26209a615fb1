"""Hostile logins, as a table: row of SECURITY.md 6.1, fact, request, expected answers, Apache Kafka's if they differ.

A case is a function of a `Login`, one new connection to a listener with SASL, that gives what a client sees, answer by
answer: an error code, CLOSED, or RAW for a frame without an error code. The same table runs against Apache Kafka 4.4:
`kafka` has its answers where they differ.

Users, by mechanism: `alice` of PLAIN with the password `alice-pw`, `bob` of both SCRAMs with `bob-pw`.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from klamm.protocol.apis import API, ApiKey
from klamm.protocol.messages.api_versions import ApiVersionsRequest
from klamm.protocol.messages.metadata import MetadataRequest
from klamm.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from klamm.protocol.messages.sasl_handshake import SaslHandshakeRequest
from klamm.protocol.scram import BY_NAME, ScramMechanism, proof_of, salt_password
from tests.faults.wire import CLOSED, Wire, decoded, frame_of, header, sized

RAW: Final = "raw"
SAME: Final = object()
GOOD: Final = b"\0alice\0alice-pw"
SHA_256: Final = BY_NAME["SCRAM-SHA-256"]
UNSUPPORTED, ILLEGAL, FAILED = 33, 34, 58
INT_MAX = 2**31 - 1


class Login(Wire):
    """One connection that is to log in."""

    def error_of(self, request: Any, version: int) -> int | str:
        """Send a request; return the error code of its response, RAW for one without, or CLOSED."""
        response = self.response_to(request, version)
        return response if isinstance(response, str) else getattr(response, "error_code", RAW)

    def response_to(self, request: Any, version: int) -> Any:
        self.send(frame_of(request, version))
        payload = self.receive()
        return payload if isinstance(payload, str) else decoded(payload, request.api_key, version)

    def raw(self, data: bytes) -> bytes | str:
        """Send bytes; return RAW when a frame comes back, or CLOSED."""
        self.send(data)
        return self.end()

    def end(self) -> str:
        """Return the next answer: CLOSED, or RAW for a frame."""
        payload = self.receive()
        return payload if isinstance(payload, str) else RAW

    def versions(self) -> int | str:
        return self.error_of(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)

    def handshake(self, mechanism: str, version: int = 1) -> int | str:
        return self.error_of(SaslHandshakeRequest(mechanism=mechanism), version)

    def authenticate(self, token: bytes, version: int = 1) -> int | str:
        return self.error_of(SaslAuthenticateRequest(auth_bytes=token), version)

    def token(self, token: bytes) -> bytes | str:
        """Send a token; return that of the answer, or CLOSED, or FAILED."""
        response = self.response_to(SaslAuthenticateRequest(auth_bytes=token), 1)
        if isinstance(response, str):
            return response
        return str(response.error_code) if response.error_code else bytes(response.auth_bytes)

    def metadata(self) -> int | str:
        return self.error_of(MetadataRequest(topics=[]), 12)


class ScramTalk:
    """A login with SCRAM; a case may change each part of it."""

    def __init__(
        self,
        login: Login,
        user: bytes = b"bob",
        *,
        gs2: bytes = b"n,,",
        extensions: bytes = b"",
        nonce: bytes = b"nonce",
    ) -> None:
        self.login = login
        self.mechanism: ScramMechanism = SHA_256
        assert login.handshake(self.mechanism.name) == 0
        self.first = b"n=" + user + b",r=" + nonce + extensions
        answer = login.token(gs2 + self.first)
        assert isinstance(answer, bytes), answer
        self.server_first = answer
        match = re.fullmatch(rb"r=([^,]+),s=([^,]+),i=(\d+)", self.server_first)
        assert match is not None
        self.nonce, self.salt, self.iterations = match[1], base64.b64decode(match[2]), int(match[3])

    def final(
        self, *, password: str = "bob-pw", channel: bytes = b"n,,", nonce: bytes | None = None
    ) -> tuple[bytes, bytes]:
        """The final message without its proof, and the proof that fits it."""
        bare = b"c=" + base64.b64encode(channel) + b",r=" + (self.nonce if nonce is None else nonce)
        salted = salt_password(self.mechanism, password, self.salt, self.iterations)
        return bare, proof_of(self.mechanism, salted, b",".join((self.first, self.server_first, bare)))

    def end(self, bare: bytes, proof: bytes) -> tuple[int | str, int | str]:
        return self.login.authenticate(bare + b",p=" + base64.b64encode(proof)), self.login.metadata()


@dataclass(frozen=True)
class Case:
    row: int
    name: str
    talk: Callable[[Login], object]
    expect: object
    kafka: object = SAME


def plain(token: bytes, version: int = 1) -> Callable[[Login], object]:
    return lambda login: (login.handshake("PLAIN"), login.authenticate(token, version), login.end())


def scram(first: bytes) -> Callable[[Login], object]:
    return lambda login: (login.handshake(SHA_256.name), login.authenticate(first), login.end())


def scram_final(bend: Callable[[ScramTalk], tuple[bytes, bytes]], **options: Any) -> Callable[[Login], object]:
    def talk(login: Login) -> object:
        scram_talk = ScramTalk(login, **options)
        return scram_talk.end(*bend(scram_talk))

    return talk


def frame_then_end(data: bytes) -> Callable[[Login], object]:
    return lambda login: login.raw(data)


def in_turn(*steps: Callable[[Login], object]) -> Callable[[Login], object]:
    return lambda login: tuple(step(login) for step in steps)


def versions(login: Login) -> object:
    return login.versions()


def handshake(mechanism: str, version: int = 1) -> Callable[[Login], object]:
    return lambda login: login.handshake(mechanism, version)


def authenticate(token: bytes, version: int = 1) -> Callable[[Login], object]:
    return lambda login: login.authenticate(token, version)


def raw(data: bytes) -> Callable[[Login], object]:
    return lambda login: login.raw(data)


def metadata(login: Login) -> object:
    return login.metadata()


def end(login: Login) -> object:
    return login.end()


def each_api(login: Login) -> object:
    """The answers to every API in every version, each on a connection of its own, with a body that cannot be parsed."""
    port = login.socket.getpeername()[1]
    seen = set()
    for api, info in API.items():
        if api in (ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS):
            continue
        for version in range(info.min_version, info.max_version + 1):
            with Login(port) as other:
                seen.add(other.raw(sized(header(api, version) + b"\xff" * 30)))
    return seen


def metadata_frame(version: int) -> bytes:
    return frame_of(MetadataRequest(topics=None), version)


def mechanism_frame(name: bytes) -> bytes:
    return sized(header(ApiKey.SASL_HANDSHAKE, 1) + struct.pack(">h", len(name)) + name)


CASES: Final = [
    Case(19, "a frame of 524289 bytes", raw(struct.pack(">i", 524289)), CLOSED),
    Case(19, "a frame of -1 bytes", raw(struct.pack(">i", -1)), CLOSED),
    Case(19, "a frame of no bytes", raw(struct.pack(">i", 0)), CLOSED),
    Case(19, "a frame of 2 GiB", raw(struct.pack(">i", INT_MAX)), CLOSED),
    Case(
        19,
        "524288 bytes are taken",
        in_turn(handshake("PLAIN"), lambda login: login.authenticate(b"x" * (524288 - 18)), end),
        (0, FAILED, CLOSED),
    ),
    Case(7, "a TLS hello", raw(bytes.fromhex("160301020001000001fc0303")), CLOSED),
    Case(7, "an HTTP request", raw(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"), CLOSED),
    Case(21, "a GSSAPI token of Kafka 0.9", raw(sized(b"\x60\x82\x01\x02 and so on")), CLOSED),
    Case(21, "every API in every version before a login", each_api, {CLOSED}),
    Case(22, "SaslAuthenticate first", in_turn(authenticate(GOOD)), (CLOSED,)),
    Case(22, "ApiVersions twice", in_turn(versions, versions), (0, CLOSED)),
    Case(
        22,
        "ApiVersions of an unknown version, then of a known one",
        in_turn(raw(sized(header(ApiKey.API_VERSIONS, 99))), versions, handshake("PLAIN")),
        (RAW, 0, 0),
    ),
    Case(22, "handshake twice", in_turn(handshake("PLAIN"), handshake("PLAIN"), end), (0, ILLEGAL, CLOSED)),
    Case(22, "handshake, then ApiVersions", in_turn(handshake("PLAIN"), versions, end), (0, ILLEGAL, CLOSED)),
    Case(
        22, "handshake, then Metadata v12", in_turn(handshake("PLAIN"), raw(metadata_frame(12)), end), (0, RAW, CLOSED)
    ),
    Case(22, "handshake, then Metadata v1", in_turn(handshake("PLAIN"), raw(metadata_frame(1)), end), (0, RAW, CLOSED)),
    Case(22, "handshake, then a raw token", in_turn(handshake("PLAIN"), raw(sized(GOOD))), (0, CLOSED)),
    Case(22, "handshake of an unknown version", raw(sized(header(ApiKey.SASL_HANDSHAKE, 2) + b"\0\x05PLAIN")), CLOSED),
    Case(
        22,
        "SaslAuthenticate of an unknown version",
        in_turn(handshake("PLAIN"), raw(sized(header(ApiKey.SASL_AUTHENTICATE, 3) + b"\0\0\0\0"))),
        (0, CLOSED),
    ),
    Case(
        22,
        "after the login: handshake and authenticate",
        in_turn(handshake("PLAIN"), authenticate(GOOD), handshake("PLAIN"), authenticate(GOOD), metadata),
        (0, 0, ILLEGAL, ILLEGAL, 0),
    ),
    Case(23, "a mechanism that is not enabled", in_turn(handshake("GSSAPI"), end), (UNSUPPORTED, CLOSED)),
    Case(23, "a mechanism in lower case", in_turn(handshake("plain"), end), (UNSUPPORTED, CLOSED)),
    Case(23, "a mechanism of 32 KiB", in_turn(handshake("x" * 32767), end), (UNSUPPORTED, CLOSED)),
    Case(23, "a mechanism with NUL", in_turn(handshake("PLAIN\0"), end), (UNSUPPORTED, CLOSED)),
    Case(23, "a mechanism that is no UTF-8", in_turn(raw(mechanism_frame(b"\xff\xfe")), end), (RAW, CLOSED)),
    Case(24, "handshake v0, then a login", in_turn(handshake("PLAIN", 0), raw(sized(GOOD)), metadata), (0, RAW, 0)),
    Case(24, "handshake v0, then a bad token", in_turn(handshake("PLAIN", 0), raw(sized(b"\0alice\0x"))), (0, CLOSED)),
    Case(
        24, "handshake v0, then a Kafka request", in_turn(handshake("PLAIN", 0), raw(metadata_frame(12))), (0, CLOSED)
    ),
    Case(24, "handshake v0, then SaslAuthenticate", in_turn(handshake("PLAIN", 0), authenticate(GOOD)), (0, CLOSED)),
    Case(25, "PLAIN without NUL", plain(b"alice"), (0, FAILED, CLOSED)),
    Case(25, "PLAIN with one NUL", plain(b"alice\0alice-pw"), (0, FAILED, CLOSED)),
    Case(25, "PLAIN with three NULs", plain(GOOD + b"\0"), (0, FAILED, CLOSED)),
    Case(25, "PLAIN with 100,000 NULs", plain(b"\0" * 100_000), (0, FAILED, CLOSED)),
    Case(25, "PLAIN with a password of 500 KiB", plain(b"\0alice\0" + b"x" * 500 * 1024), (0, FAILED, CLOSED)),
    Case(25, "PLAIN of nothing", plain(b""), (0, FAILED, CLOSED)),
    Case(26, "PLAIN user with U+FEFF", plain("\0alice\ufeff\0alice-pw".encode()), (0, FAILED, CLOSED)),
    Case(26, "PLAIN user in full width", plain("\0\uff41lice\0alice-pw".encode()), (0, FAILED, CLOSED)),
    Case(26, "PLAIN user with a combining form", plain("\0alice\u0301\0alice-pw".encode()), (0, FAILED, CLOSED)),
    Case(27, "PLAIN, a wrong password", plain(b"\0alice\0wrong"), (0, FAILED, CLOSED)),
    Case(27, "PLAIN, an unknown user", plain(b"\0nobody\0alice-pw"), (0, FAILED, CLOSED)),
    Case(28, "SCRAM with gs2 y", scram(b"y,,n=bob,r=nonce"), (0, FAILED, CLOSED)),
    Case(28, "SCRAM with channel binding", scram(b"p=tls-unique,,n=bob,r=nonce"), (0, FAILED, CLOSED)),
    Case(28, "SCRAM with another authzid", scram(b"n,a=alice,n=bob,r=nonce"), (0, FAILED, CLOSED)),
    Case(28, "SCRAM junk", scram(b"\xff" * 100), (0, FAILED, CLOSED)),
    Case(28, "SCRAM of nothing", scram(b""), (0, FAILED, CLOSED)),
    Case(28, "SCRAM with an empty nonce", scram(b"n,,n=bob,r="), (0, FAILED, CLOSED)),
    Case(
        28, "SCRAM with a nonce of 400 KiB", scram(b"n,,n=bob,r=" + b"x" * 400 * 1024), (0, FAILED, CLOSED), kafka=None
    ),
    Case(28, "SCRAM with a mandatory extension", scram(b"n,,m=x,n=bob,r=nonce"), (0, FAILED, CLOSED), kafka=None),
    Case(29, "SCRAM as it should be", scram_final(lambda talk: talk.final()), (0, 0)),
    Case(29, "SCRAM with a wrong password", scram_final(lambda talk: talk.final(password="x")), (FAILED, CLOSED)),
    Case(
        29, "SCRAM with a longer nonce", scram_final(lambda talk: talk.final(nonce=talk.nonce + b"x")), (FAILED, CLOSED)
    ),
    Case(29, "SCRAM with another nonce", scram_final(lambda talk: talk.final(nonce=b"other")), (FAILED, CLOSED)),
    Case(
        29,
        "SCRAM with another c=",
        scram_final(lambda talk: talk.final(channel=b"y,,")),
        (FAILED, CLOSED),
        kafka=(0, 0),
    ),
    Case(
        29,
        "SCRAM with a short proof",
        scram_final(lambda talk: (talk.final()[0], b"x")),
        (FAILED, CLOSED),
        kafka=(CLOSED, CLOSED),
    ),
    Case(
        29,
        "SCRAM with a long proof",
        scram_final(lambda talk: (talk.final()[0], bytes(64))),
        (FAILED, CLOSED),
        kafka=(CLOSED, CLOSED),
    ),
    Case(29, "SCRAM with a proof of zeros", scram_final(lambda talk: (talk.final()[0], bytes(32))), (FAILED, CLOSED)),
    Case(
        29,
        "SCRAM without a proof",
        lambda login: (login.authenticate(ScramTalk(login).final()[0]), login.metadata()),
        (FAILED, CLOSED),
    ),
    Case(
        31,
        "SCRAM by token with a user's name",
        scram_final(lambda talk: talk.final(), extensions=b",tokenauth=true"),
        (FAILED, CLOSED),
        kafka=None,
    ),
    Case(
        32,
        "SCRAM of an unknown user",
        scram_final(lambda talk: talk.final(), user=b"nobody"),
        (FAILED, CLOSED),
        kafka=None,
    ),
]
"""`kafka=None`: refused one step earlier there, at the first message."""


def replayed(port: int) -> tuple[object, object]:
    """Row 30: the final message of one session in another, and then where it belongs."""
    with Login(port) as one, Login(port) as other:
        first, second = ScramTalk(one), ScramTalk(other)
        bare, proof = first.final()
        return second.end(bare, proof), first.end(bare, proof)


def same_nonce(port: int) -> list[object]:
    """Row 42: two connections with one nonce of the client, a step of each in turn."""
    with Login(port) as one, Login(port) as other:
        talks = [ScramTalk(one), ScramTalk(other)]
        return [talk.end(*talk.final()) for talk in talks]
