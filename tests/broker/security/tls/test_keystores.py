"""Stores that keytool wrote (Java 17): stores/ has a key each, in JKS, JCEKS and PKCS12, and a truststore each."""

from __future__ import annotations

import builtins
import ssl
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.security.tls.certificate import Certificate
from klamm.broker.security.tls.keystores import open_store
from klamm.broker.security.tls.store import BadStore

STORES = Path(__file__).with_name("stores")
PASSWORD = "secret1"
NAME = "CN=broker,OU=A\\, B,O=Klamm"


def data(name: str) -> bytes:
    return (STORES / name).read_bytes()


@pytest.mark.parametrize("name", ["key.jks", "key.pkcs12"])
def test_a_key_and_its_chain(name: str) -> None:
    store = open_store(data(name), PASSWORD, None)
    assert store.key is not None and store.key_count == 1
    [certificate] = map(Certificate, store.chain)
    assert certificate.subject_name == NAME
    assert certificate.is_for("localhost") and certificate.is_for("127.0.0.1") and not certificate.is_for("broker")
    assert certificate.not_before < 1_900_000_000 < certificate.not_after


@pytest.mark.parametrize("name", ["trust.jks", "trust.jceks", "trust.pkcs12"])
def test_a_truststore(name: str) -> None:
    store = open_store(data(name), PASSWORD, None)
    assert store.key is None and [Certificate(der).subject_name for der in store.trusted] == [NAME]


def test_a_jks_truststore_needs_no_password() -> None:
    assert len(open_store(data("trust.jks"), None, None).trusted) == 1


def test_a_password_of_the_key() -> None:
    assert open_store(data("other-key-password.jks"), PASSWORD, "other22").key is not None
    with pytest.raises(BadStore, match="the key's password is wrong"):
        open_store(data("other-key-password.jks"), PASSWORD, None)


@pytest.mark.parametrize("name", ["key.jks", "trust.jceks", "key.pkcs12", "trust.pkcs12"])
@pytest.mark.parametrize("password", ["", "secret2", "Secret1", "secret1é"])
def test_a_wrong_password(name: str, password: str) -> None:
    with pytest.raises(BadStore, match="password is wrong"):
        open_store(data(name), password, None)


@pytest.mark.parametrize("name", ["key.jks", "trust.jceks", "key.pkcs12"])
def test_a_damaged_store_is_refused_in_one_line(name: str) -> None:
    whole = data(name)
    for position in range(4, len(whole), 7):
        damaged = bytearray(whole)
        damaged[position] ^= 0x41
        with pytest.raises(BadStore) as refusal:
            open_store(bytes(damaged), PASSWORD, None)
        assert "\n" not in str(refusal.value)


def test_a_damaged_jks_without_a_password_does_not_run_away() -> None:
    whole = data("trust.jks")
    for size in range(len(whole)):
        with pytest.raises(BadStore):
            open_store(whole[:size], None, None)


def test_a_key_that_only_java_reads() -> None:
    with pytest.raises(BadStore, match="importkeystore"):
        open_store(data("key.jceks"), PASSWORD, None)


def test_pem_in_any_order() -> None:
    store = open_store(data("key.jks"), PASSWORD, None)
    certificate = ssl.DER_cert_to_PEM_cert(store.chain[0]).encode()
    key, other = (b"-----BEGIN PRIVATE KEY-----\n%s\n-----END PRIVATE KEY-----\n" % text for text in (b"AAAA", b"BBBB"))
    for text in (certificate + key + other, b"a comment\n" + key + other + certificate + b"the end"):
        found = open_store(text, None, None)
        assert (found.key, found.chain, found.key_count) == (key, store.chain, 2)


@pytest.mark.parametrize("text", [b"", b"hello", b"\xfe\xed\xfe"])
def test_what_is_no_store(text: bytes) -> None:
    with pytest.raises(BadStore, match="neither PEM, PKCS12 nor JKS"):
        open_store(text, PASSWORD, None)


def test_pkcs12_names_the_package_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(BadStore, match=r"klamm\[tls\]"):
        open_store(data("key.pkcs12"), PASSWORD, None)
