"""Keys of TLS that do not go together are refused in one line, which names the key."""

from __future__ import annotations

import pytest

from klamm.broker.security.tls.settings import BadTlsSettings
from klamm.config import ConfigError
from tests.broker.security.tls.tls_config import settings_of

FILE = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "server.pem"}
INLINE = {"ssl.keystore.type": "PEM", "ssl.keystore.key": "K", "ssl.keystore.certificate.chain": "C"}
TRUST = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem"}
PREFIX = "listener.name.secure."


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ({}, "a listener with TLS needs a certificate"),
        ({**FILE, "ssl.keystore.password": "x"}, "ssl.keystore.password is set, but PEM has no password"),
        (
            {**INLINE, "ssl.keystore.certificate.chain": ""},
            "ssl.keystore.key and ssl.keystore.certificate.chain are set",
        ),
        ({**FILE, **INLINE}, "ssl.keystore.location and ssl.keystore.key are both set"),
        ({**INLINE, "ssl.keystore.type": "JKS"}, "ssl.keystore.key is PEM; set ssl.keystore.type=PEM"),
        ({"ssl.keystore.password": "x"}, "ssl.keystore.password is set without ssl.keystore.location"),
        ({"ssl.keystore.location": "a.jks"}, "ssl.keystore.location is a JKS keystore and needs ssl.keystore.password"),
        ({**FILE, "ssl.keystore.type": "DKS"}, "ssl.keystore.type=DKS: there are JKS, PKCS12, PEM"),
        ({**FILE, "ssl.truststore.password": "x"}, "ssl.truststore.password is set without ssl.truststore.location"),
        ({**FILE, **TRUST, "ssl.truststore.certificates": "C"}, "are both set"),
        ({**FILE, "ssl.client.auth": "required"}, "ssl.client.auth=required needs a truststore"),
        ({**FILE, PREFIX + "ssl.client.auth": "requested"}, "listener.name.secure.ssl.client.auth=requested needs"),
        ({**FILE, "ssl.enabled.protocols": "TLSv1.1"}, "none of these is safe"),
        ({**FILE, "ssl.enabled.protocols": "TLSv1.4"}, "TLSv1.4 is unknown"),
        ({**FILE, "ssl.cipher.suites": "TLS_RSA_WITH_NULL_SHA"}, "TLS_RSA_WITH_NULL_SHA is no cipher suite"),
        ({**FILE, "ssl.cipher.suites": "TLS_DH_anon_WITH_AES_128_GCM_SHA256"}, "is no cipher suite that is offered"),
        ({**FILE, "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "without TLS_AES_256_GCM_SHA384"),
        (
            {**FILE, "ssl.enabled.protocols": "TLSv1.2", "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"},
            "has no suite for TLSv1.2",
        ),
        ({**FILE, "ssl.principal.mapping.rules": "RULE:a/b"}, "ssl.principal.mapping.rules: "),
    ],
)
def test_what_does_not_go_together(texts: dict[str, str], says: str) -> None:
    with pytest.raises(BadTlsSettings) as refusal:
        settings_of(texts)
    assert says in str(refusal.value) and "\n" not in str(refusal.value)


def test_java_classes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"ssl\.engine\.factory\.class"):
        settings_of({**FILE, "ssl.engine.factory.class": "a.B"})


def test_old_protocols_are_left_out_with_a_warning() -> None:
    settings = settings_of({**FILE, "ssl.enabled.protocols": "TLSv1,TLSv1.1,TLSv1.2"})
    assert settings.protocols == ("TLSv1.2",)
    assert settings.warnings == ("ssl.enabled.protocols: TLSv1, TLSv1.1 are broken and not opened",)


def test_with_sasl_only_the_prefixed_client_auth_counts() -> None:
    both = {**FILE, **TRUST, "ssl.client.auth": "required"}
    assert settings_of(both).client_auth == "required"
    assert settings_of(both, "SASL_SSL").client_auth == "none"
    assert settings_of({**both, PREFIX + "ssl.client.auth": "requested"}, "SASL_SSL").client_auth == "requested"


def test_the_keys_of_the_listener_come_first() -> None:
    settings = settings_of({**FILE, PREFIX + "ssl.keystore.location": "own.pem"})
    assert (settings.keystore.location, settings.keystore.key) == ("own.pem", PREFIX + "ssl.keystore.location")
