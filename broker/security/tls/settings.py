"""The `ssl.*` keys of one listener: what they mean together, and which combinations are refused.

    keystore     key and chain: inline (ssl.keystore.key and .certificate.chain, PEM only) or a file (.location)
    truststore   certificates: inline (ssl.truststore.certificates, PEM only), a file, or those of the system

Each key is the listener's own (`listener.name.<name>.ssl...`) or the node's. Reading the files is in `material`.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from klamm.broker.security.tls.cipher_suites import FIRST_TLS13, TLS13, UnknownSuite, openssl_names
from klamm.broker.security.tls.principal_rules import BadRule, PrincipalRules

PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
REFUSED_PROTOCOLS: Final = ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1")
STORE_TYPES: Final = ("JKS", "PKCS12", "PEM")
CLIENT_AUTH: Final = ("none", "requested", "required")


class BadTlsSettings(ValueError):
    """Keys that do not go together; the message is one line and names the key."""


class Values(Protocol):
    """The config of one listener."""

    def __getitem__(self, key: str, /) -> object: ...
    def set_name(self, key: str, /) -> str: ...
    def prefixed_name(self, key: str, /) -> str | None: ...


class StoreSettings(NamedTuple):
    """Where a store is. `key` is the config key of the file or of the inline text, for messages."""

    kind: str
    location: str | None
    inline: str | None
    password: str | None
    key: str


class TlsSettings(NamedTuple):
    """`cipher_suites` is None for our own choice. `warnings` are lines for the operator."""

    keystore: StoreSettings
    truststore: StoreSettings | None
    key_password: str | None
    client_auth: str
    protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...] | None
    principal_rules: str
    allow_dn_changes: bool
    allow_san_changes: bool
    warnings: tuple[str, ...] = ()


def tls_settings(config: Values, *, with_sasl: bool) -> TlsSettings:
    """Read the keys of one listener. Raises BadTlsSettings.

    On a listener with SASL only the prefixed `ssl.client.auth` counts, as in Kafka: clients log in there anyway.
    """
    keystore = _keystore(config)
    truststore = _truststore(config)
    client_auth = _client_auth(config, with_sasl=with_sasl)
    if client_auth != "none" and truststore is None:
        raise BadTlsSettings(
            f"{config.set_name('ssl.client.auth')}={client_auth} needs a truststore, or every certificate of a public "
            "authority would log in; set ssl.truststore.location or ssl.truststore.certificates"
        )
    protocols, warnings = _protocols(config)
    return TlsSettings(
        keystore,
        truststore,
        _text(config, "ssl.key.password"),
        client_auth,
        protocols,
        _cipher_suites(config, protocols),
        _principal_rules(config),
        bool(config["ssl.allow.dn.changes"]),
        bool(config["ssl.allow.san.changes"]),
        warnings,
    )


def _text(config: Values, key: str) -> str | None:
    value = config[key]
    return str(value) if value not in (None, "") else None


def _list(config: Values, key: str) -> list[str]:
    value = config[key]
    return [str(item) for item in value if item] if isinstance(value, list) else []


class _Keys(NamedTuple):
    """The names of the keys of a store; `inline` is that of the text in place of a file."""

    type: str
    location: str
    password: str
    inline: str


KEYSTORE: Final = _Keys("ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.key")
TRUSTSTORE: Final = _Keys(
    "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.certificates"
)


def _keystore(config: Values) -> StoreSettings:
    key, chain = _text(config, "ssl.keystore.key"), _text(config, "ssl.keystore.certificate.chain")
    if (key is None) != (chain is None):
        names = [config.set_name(name) for name in ("ssl.keystore.key", "ssl.keystore.certificate.chain")]
        raise BadTlsSettings(f"{' and '.join(names)} are set together or not at all")
    store = _store(config, KEYSTORE, f"{key}\n{chain}\n" if key is not None else None)
    if store is None:
        raise BadTlsSettings(
            "a listener with TLS needs a certificate: set ssl.keystore.location, or ssl.keystore.key and "
            "ssl.keystore.certificate.chain"
        )
    if store.kind != "PEM" and store.password is None:
        raise BadTlsSettings(f"{store.key} is a {store.kind} keystore and needs {KEYSTORE.password}")
    return store


def _truststore(config: Values) -> StoreSettings | None:
    return _store(config, TRUSTSTORE, _text(config, TRUSTSTORE.inline))


def _store(config: Values, keys: _Keys, inline: str | None) -> StoreSettings | None:
    """Return the settings of a store, None when there is none."""
    names = _Keys(*(config.set_name(key) for key in keys))
    kind = (_text(config, keys.type) or "JKS").upper()
    location, password = _text(config, keys.location), _text(config, keys.password)
    if kind not in STORE_TYPES:
        raise BadTlsSettings(f"{names.type}={kind}: there are {', '.join(STORE_TYPES)}")
    if inline is not None and kind != "PEM":
        raise BadTlsSettings(f"{names.inline} is PEM; set {names.type}=PEM")
    if inline is not None and location is not None:
        raise BadTlsSettings(f"{names.location} and {names.inline} are both set; one of them is enough")
    if password is not None and kind == "PEM":
        raise BadTlsSettings(
            f"{names.password} is set, but PEM has no password of the store; ssl.key.password is that of a key"
        )
    if password is not None and location is None:
        raise BadTlsSettings(f"{names.password} is set without {names.location}")
    if location is None and inline is None:
        return None
    return StoreSettings(kind, location, inline, password, names.location if location else names.inline)


def _client_auth(config: Values, *, with_sasl: bool) -> str:
    if with_sasl and config.prefixed_name("ssl.client.auth") is None:
        return "none"
    value = str(config["ssl.client.auth"]).lower()
    if value not in CLIENT_AUTH:
        raise BadTlsSettings(f"{config.set_name('ssl.client.auth')}={value}: there are {', '.join(CLIENT_AUTH)}")
    return value


def _protocols(config: Values) -> tuple[tuple[str, ...], tuple[str, ...]]:
    name, wanted = config.set_name("ssl.enabled.protocols"), _list(config, "ssl.enabled.protocols")
    unknown = [each for each in wanted if each not in PROTOCOLS and each not in REFUSED_PROTOCOLS]
    if unknown:
        raise BadTlsSettings(f"{name}: {unknown[0]} is unknown; there are {', '.join(PROTOCOLS)}")
    old = [each for each in wanted if each in REFUSED_PROTOCOLS]
    left = tuple(each for each in PROTOCOLS if each in wanted)
    if not left:
        raise BadTlsSettings(f"{name}={','.join(wanted)}: none of these is safe; add {' or '.join(PROTOCOLS)}")
    return left, ((f"{name}: {', '.join(old)} are broken and not opened",) if old else ())


def _cipher_suites(config: Values, protocols: tuple[str, ...]) -> tuple[str, ...] | None:
    name, wanted = config.set_name("ssl.cipher.suites"), _list(config, "ssl.cipher.suites")
    if not wanted:
        return None
    try:
        newer, older = openssl_names(wanted)
    except UnknownSuite as error:
        raise BadTlsSettings(f"{name}: {error} is no cipher suite that is offered here") from None
    if newer and FIRST_TLS13 not in newer and "TLSv1.3" in protocols:
        raise BadTlsSettings(f"{name} has {newer[0]} without {FIRST_TLS13}, which OpenSSL would prefer; add that one")
    if not (newer and "TLSv1.3" in protocols) and not (older and "TLSv1.2" in protocols):
        raise BadTlsSettings(
            f"{name} has no suite for {' or '.join(protocols)}; of TLSv1.3 there are {', '.join(TLS13)}"
        )
    return tuple(wanted)


def _principal_rules(config: Values) -> str:
    name = config.set_name("ssl.principal.mapping.rules")
    text = str(config["ssl.principal.mapping.rules"])
    try:
        PrincipalRules(text)
    except BadRule as error:
        raise BadTlsSettings(f"{name}: {error}") from None
    return text
