"""The broker's side of SCRAM: the example of RFC 7677, and refused messages."""

from __future__ import annotations

import base64
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.broker.security.sasl.mechanism import WRONG_AUTHORIZATION_ID, Challenge, LoggedIn, LoginFailed
from klamm.broker.security.sasl.scram import MAX_MESSAGE_BYTES, Scram, ScramUsers
from klamm.protocol.scram import (
    BY_NAME,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramCredential,
    credential_of,
    escape_name,
    proof_of,
    salt_password,
    unescape_name,
)
from tests.broker.security.sasl.conversation import SECRET, bytes_of

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SALTED = salt_password(SCRAM_SHA_256, "pencil", SALT, 4096)
CREDENTIAL = credential_of(SCRAM_SHA_256, SALTED, SALT, 4096)


class Talk:
    """A conversation of which each part can be bent."""

    def __init__(self, users: dict[str, ScramCredential] | None = None, seed: int = 1) -> None:
        self.users = {"user": CREDENTIAL} if users is None else users
        self.scram = Scram(ScramUsers(SCRAM_SHA_256, self.users.get, SECRET, bytes_of(seed)))
        self.first = self.server_first = b""

    def begin(self, first: bytes = b"n,,n=user,r=nonce") -> dict[str, bytes]:
        challenge = self.scram.step(first)
        assert isinstance(challenge, Challenge)
        self.first, self.server_first = first.split(b",", 2)[2], challenge.token
        match = re.fullmatch(rb"r=([^,]+),s=([^,]+),i=(\d+)", challenge.token)
        assert match is not None
        return {"nonce": match[1], "salt": base64.b64decode(match[2]), "iterations": match[3]}

    def final(self, nonce: bytes, *, channel: bytes = b"n,,", extensions: bytes = b"") -> tuple[bytes, bytes]:
        """The message without its proof, and the right proof."""
        bare = b"c=" + base64.b64encode(channel) + b",r=" + nonce + extensions
        return bare, proof_of(SCRAM_SHA_256, SALTED, b",".join((self.first, self.server_first, bare)))

    def end(self, bare: bytes, proof: bytes) -> LoggedIn:
        result = self.scram.step(bare + b",p=" + base64.b64encode(proof))
        assert isinstance(result, LoggedIn)
        return result


def refused(talk: Talk, message: bytes) -> LoginFailed:
    with pytest.raises(LoginFailed) as error:
        talk.scram.step(message)
    return error.value


def test_the_example_of_rfc_7677():
    nonce = b"rOprNGfwEbeRWgbNEkqO"
    theirs = b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    server_first = b"r=" + nonce + theirs + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    bare = b"c=biws,r=" + nonce + theirs
    proof = proof_of(SCRAM_SHA_256, SALTED, b",".join((b"n=user,r=" + nonce, server_first, bare)))
    assert base64.b64encode(proof) == b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


@pytest.mark.parametrize(
    "first", [b"n,,n=user,r=nonce", b"n,a=user,n=user,r=nonce", b"n,,n=user,r=nonce,x=y,foo=bar=baz"]
)
def test_the_right_proof_logs_in(first):
    talk = Talk()
    shown = talk.begin(first)
    assert (shown["salt"], shown["iterations"]) == (SALT, b"4096")
    assert shown["nonce"].startswith(b"nonce") and len(shown["nonce"]) >= len(b"nonce") + 20
    channel = b",".join(first.split(b",", 2)[:2]) + b","
    result = talk.end(*talk.final(shown["nonce"], channel=channel, extensions=b",e=x"))
    assert result.user == "user" and result.token.startswith(b"v=")


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"junk",
        b"y,,n=user,r=nonce",
        b"p=tls-unique,,n=user,r=nonce",
        b"n,,n=user,r=",
        b"n,,n=,r=nonce",
        b"n,,n=user",
        b"n,,r=nonce,n=user",
        b"n,,m=x,n=user,r=nonce",
        b"n,,n=user,r=nonce,m=x",
        b"n,,n=us=er,r=nonce",
        b"n,,n=us=2cer,r=x",
        b"n,a=,n=user,r=nonce",
        b"n,b=user,n=user,r=nonce",
        b"n,,n=\xc3\xbc,r=nonce",
        b"n,,n=user,r=no nce",
        b"n,,n=user,r=x,",
        b"n,,n=user,r=nonce,1=x",
        b"n,,n=user,r=nonce,x=",
        b"n,,n=us\0er,r=nonce",
        b"n,,n=user,r=" + b"x" * 400 * 1024,
        b"n,,n=user,r=" + b"x" * MAX_MESSAGE_BYTES,
    ],
)
def test_a_first_message_that_is_none(first):
    assert refused(Talk(), first).text is None


def test_an_authorization_id_of_somebody_else():
    assert refused(Talk(), b"n,a=other,n=user,r=nonce").text == WRONG_AUTHORIZATION_ID


@pytest.mark.parametrize("proof", [b"", b"x", bytes(31), bytes(32), bytes(33), bytes(64)])
def test_a_wrong_proof_of_any_length(proof):
    talk = Talk()
    bare, right = talk.final(talk.begin()["nonce"])
    assert proof != right
    assert refused(talk, bare + b",p=" + base64.b64encode(proof)).text is None


def test_each_bit_of_the_proof_counts():
    for bit in range(256):
        talk = Talk()
        bare, right = talk.final(talk.begin()["nonce"])
        bent = (int.from_bytes(right, "big") ^ (1 << bit)).to_bytes(32, "big")
        assert refused(talk, bare + b",p=" + base64.b64encode(bent)).reason == "wrong password"


@pytest.mark.parametrize(
    "bend",
    [
        lambda nonce: nonce + b"x",
        lambda nonce: nonce[:-1],
        lambda nonce: b"x" + nonce,
        lambda nonce: b"nonce",
        lambda nonce: nonce.upper() + b"X",
    ],
)
def test_another_nonce_with_a_proof_that_fits_it(bend):
    talk = Talk()
    bare, proof = talk.final(bend(talk.begin()["nonce"]))
    assert refused(talk, bare + b",p=" + base64.b64encode(proof)).text is None


@pytest.mark.parametrize("channel", [b"y,,", b"n,a=user,", b"p=tls-unique,,", b"n", b""])
def test_another_header_in_c_with_a_proof_that_fits_it(channel):
    talk = Talk()
    bare, proof = talk.final(talk.begin()["nonce"], channel=channel)
    assert refused(talk, bare + b",p=" + base64.b64encode(proof)).text is None


@pytest.mark.parametrize(
    "final",
    [
        b"",
        b"c=biws",
        b"c=biws,r={}",
        b"c=biws,r={},p=",
        b"c=biws,r={},p=\xff",
        b"c=biws,r={},p==AAA",
        b"c=biws,r={},m=x,p=AAAA",
        b"r={},c=biws,p=AAAA",
        b"c=biws,r={},p=AAAA,x=y",
    ],
)
def test_a_final_message_that_is_none(final):
    talk = Talk()
    nonce = talk.begin()["nonce"]
    assert refused(talk, final.replace(b"{}", nonce)).text is None


def test_a_final_message_of_another_session():
    one, other = Talk(seed=1), Talk(seed=2)
    bare, proof = one.final(one.begin()["nonce"])
    other.begin()
    message = bare + b",p=" + base64.b64encode(proof)
    assert refused(other, message).text is None
    assert isinstance(one.scram.step(message), LoggedIn)


def test_two_sessions_with_one_nonce_are_independent():
    talks = [Talk(seed=1), Talk(seed=1)]
    for talk in talks:
        shown = talk.begin()
        assert talk.end(*talk.final(shown["nonce"])).user == "user"


def test_an_unknown_user_looks_like_a_known_one_until_the_end():
    seen = [Talk(seed=seed).begin(b"n,,n=nobody,r=nonce") for seed in range(3)]
    assert len({(each["salt"], each["iterations"]) for each in seen}) == 1
    assert seen[0]["iterations"] == b"4096"
    assert re.fullmatch(rb"[0-9a-z]{24,26}", seen[0]["salt"])
    assert Talk().begin(b"n,,n=somebody,r=nonce")["salt"] != seen[0]["salt"]
    talk = Talk()
    shown = talk.begin(b"n,,n=nobody,r=nonce")
    bare, proof = talk.final(shown["nonce"])
    failed = refused(talk, bare + b",p=" + base64.b64encode(proof))
    assert (failed.text, failed.user) == (None, "nobody")


@pytest.mark.parametrize("change", [None, credential_of(SCRAM_SHA_256, bytes(32), SALT, 4096)])
def test_a_credential_that_changes_during_the_login(change):
    talk = Talk()
    bare, proof = talk.final(talk.begin()["nonce"])
    if change is None:
        del talk.users["user"]
    else:
        talk.users["user"] = change
    assert refused(talk, bare + b",p=" + base64.b64encode(proof)).text is None


@pytest.mark.parametrize("extension", [b",tokenauth=true", b",x=y,tokenauth=true"])
def test_a_login_by_token_does_not_reach_the_user_of_that_name(extension):
    talk = Talk()
    shown = talk.begin(b"n,,n=user,r=nonce" + extension)
    assert shown["salt"] != SALT
    bare, proof = talk.final(shown["nonce"])
    assert refused(talk, bare + b",p=" + base64.b64encode(proof)).text is None


@given(st.text(min_size=1))
def test_names_are_escaped_and_back(name):
    assert unescape_name(escape_name(name)) == name
    assert not set(escape_name(name).replace("=2C", "").replace("=3D", "")) & set(",=")


@settings(max_examples=300)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_no_bytes_log_in_without_the_password(first, final):
    talk = Talk()
    for message in (first, final):
        try:
            assert isinstance(talk.scram.step(message), Challenge)
        except LoginFailed:
            return


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
def test_what_is_kept_does_not_show_the_secrets(mechanism):
    credential = credential_of(mechanism, bytes(mechanism.size), b"salt", 4096)
    assert repr(credential) == "ScramCredential(iterations=4096)"
    assert len(credential.stored_key) == len(credential.server_key) == mechanism.size
    assert set(BY_NAME) == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
