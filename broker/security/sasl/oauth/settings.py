"""What the config says of OAUTHBEARER on a listener, checked before the broker starts.

Apache Kafka's handler class chooses the validator: with it tokens are signed and checked against a JWKS; without it
they are unsigned, which Klamm takes only on the loopback and only with `klamm.sasl.oauthbearer.unsecured`. Audience and
issuer must be named, or not checking them must be asked for.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final, cast
from urllib.parse import SplitResult, urlsplit

from klamm.broker.security.sasl.oauth.claims import Expected
from klamm.config import BrokerConfig, ConfigError, Listener, ListenerConfig, listener_config
from klamm.config.definitions import Value
from klamm.config.exposure import is_loopback

log = logging.getLogger(__name__)

MECHANISM: Final = "OAUTHBEARER"
MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
CALLBACKS: Final = "sasl.server.callback.handler.class"
HANDLERS: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
VALIDATORS: Final = tuple(
    f"org.apache.kafka.common.security.oauthbearer.{name}JwtValidator" for name in ("Default", "Broker")
)
UNSECURED: Final = "klamm.sasl.oauthbearer.unsecured"
DEFAULT_TIMEOUT_S: Final = 10.0
_OPTION: Final = "unsecuredValidator"


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where the keys are, and how often and for how long they are asked for."""

    url: str
    refresh_s: float
    backoff_s: float
    max_backoff_s: float
    connect_timeout_s: float
    read_timeout_s: float


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """`source` is None for unsigned tokens."""

    expected: Expected
    source: KeySource | None


def read_oauth(
    config: BrokerConfig, listener: Listener, options: Mapping[str, str], environ: Mapping[str, str]
) -> OAuthSettings:
    """Return the settings of a listener; `options` are those of its JAAS entry. Raises ConfigError."""
    own = listener_config(config, listener.name, MECHANISM)
    if not own.is_set(CALLBACKS):
        return _unsecured(config, listener, options)
    if own.text(CALLBACKS) not in HANDLERS:
        raise ConfigError(f"{own.set_name(CALLBACKS)}={own.text(CALLBACKS)}: there is {HANDLERS[0]}, no other class")
    validator = own.text("sasl.oauthbearer.jwt.validator.class")
    if validator not in VALIDATORS:
        key = own.set_name("sasl.oauthbearer.jwt.validator.class")
        raise ConfigError(f"{key}={validator}: a broker has {' or '.join(VALIDATORS)}, which check signatures")
    if find_spec("joserfc") is None:
        raise ConfigError("OAUTHBEARER: to check signatures, pip install 'klamm[oauth]'")
    expected = Expected(
        audiences=_audiences(own),
        issuer=_issuer(own),
        skew_s=max(own.integer("sasl.oauthbearer.clock.skew.seconds"), 0),
        scope_claim=own.text("sasl.oauthbearer.scope.claim.name"),
        subject_claim=own.text("sasl.oauthbearer.sub.claim.name"),
    )
    return OAuthSettings(expected, _source(own, environ))


def _audiences(own: ListenerConfig) -> tuple[str, ...]:
    wanted = tuple(cast("list[str] | None", own["sasl.oauthbearer.expected.audience"]) or ())
    _check_named(own, "audience", bool(wanted), own.flag("sasl.oauthbearer.allow.unverified.audience"))
    return wanted


def _issuer(own: ListenerConfig) -> str | None:
    wanted = own["sasl.oauthbearer.expected.issuer"]
    _check_named(own, "issuer", bool(wanted), own.flag("sasl.oauthbearer.allow.unverified.issuer"))
    return str(wanted) if wanted else None


def _check_named(own: ListenerConfig, what: str, is_named: bool, may_miss: bool) -> None:
    """Raise ConfigError when the config neither says what the claim must be nor that it is not checked."""
    if is_named:
        return
    if not may_miss:
        raise ConfigError(
            f"sasl.oauthbearer.expected.{what} is not set for {own.name}: any token of the key's owner would log in, "
            f"also one for another service; set it, or sasl.oauthbearer.allow.unverified.{what}=true"
        )
    log.warning("%s: the %s of tokens is not checked (sasl.oauthbearer.allow.unverified.%s)", own.name, what, what)


def _source(own: ListenerConfig, environ: Mapping[str, str]) -> KeySource:
    name = own.set_name("sasl.oauthbearer.jwks.endpoint.url")
    url = own["sasl.oauthbearer.jwks.endpoint.url"]
    if not isinstance(url, str) or not url:
        raise ConfigError(f"{name} is not set: it says where the keys of the tokens' issuer are")
    parts = urlsplit(url)
    is_file = parts.scheme == "file" and parts.path.startswith("/") and parts.netloc in ("", "localhost")
    if not is_file and (parts.scheme not in ("http", "https") or not parts.hostname or not _has_port(parts)):
        raise ConfigError(f"{name}: must be https://host/path, http://host/path or file:///path")
    _check_allowed(name, url, parts.path if is_file else None, environ)
    return KeySource(
        url,
        refresh_s=own.integer("sasl.oauthbearer.jwks.endpoint.refresh.ms") / 1000,
        backoff_s=own.integer("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms") / 1000,
        max_backoff_s=own.integer("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms") / 1000,
        connect_timeout_s=_timeout_s(own["sasl.login.connect.timeout.ms"]),
        read_timeout_s=_timeout_s(own["sasl.login.read.timeout.ms"]),
    )


def _has_port(parts: SplitResult) -> bool:
    """Return whether the port, if there is one, is a number that can be one."""
    try:
        return parts.port != 0
    except ValueError:
        return False


def _timeout_s(value: Value) -> float:
    return value / 1000 if isinstance(value, int) and value > 0 else DEFAULT_TIMEOUT_S


def _check_allowed(name: str, url: str, path: str | None, environ: Mapping[str, str]) -> None:
    """Hold the address against the lists that Kafka gives to the process, if there are any."""
    what, value = ("urls", url) if path is None else ("files", path)
    key = f"org.apache.kafka.sasl.oauthbearer.allowed.{what}"
    match = re.search(rf"(?:^|\s)-D{re.escape(key)}=(\S*)", environ.get("KAFKA_OPTS", ""))
    if match is not None and value not in match[1].split(","):
        raise ConfigError(f"{name}={url} is not in {key} of KAFKA_OPTS")


def _unsecured(config: BrokerConfig, listener: Listener, options: Mapping[str, str]) -> OAuthSettings:
    if not config.flag(UNSECURED):
        raise ConfigError(
            f"{CALLBACKS} is not set for {listener.name} and OAUTHBEARER, so anybody could write himself a token; set "
            f"{HANDLERS[0]}, or {UNSECURED}=true for tests on the loopback"
        )
    if not is_loopback(listener.host):
        raise ConfigError(f"{UNSECURED}: {listener} is not on the loopback, and unsigned tokens prove nothing")
    skew = options.get(_OPTION + "AllowableClockSkewMs", "0")
    if not skew.isdecimal():
        raise ConfigError(f"{_OPTION}AllowableClockSkewMs of the JAAS entry must be a number of milliseconds")
    expected = Expected(
        skew_s=int(skew) / 1000,
        scope_claim=options.get(_OPTION + "ScopeClaimName", "scope"),
        subject_claim=options.get(_OPTION + "PrincipalClaimName", "sub"),
        required_scope=frozenset(options.get(_OPTION + "RequiredScope", "").split()),
        needs_iat=False,
    )
    return OAuthSettings(expected, None)
