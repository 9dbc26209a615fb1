"""What the config says of logging in on a listener, checked before the broker starts.

A JAAS entry comes from `sasl.jaas.config` with the prefixes of listener and mechanism, else from the section
`<listener>.KafkaServer` or `KafkaServer` of a login file. PLAIN needs one, it holds the users; SCRAM does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

from klamm.broker.security.sasl.authenticator import EnabledMechanism
from klamm.broker.security.sasl.jaas import JaasEntry, JaasError, parse_entries, parse_file
from klamm.broker.security.sasl.mechanism import Mechanism
from klamm.broker.security.sasl.oauth.bearer import Check, OAuthBearer
from klamm.broker.security.sasl.oauth.settings import MECHANISM as OAUTHBEARER
from klamm.broker.security.sasl.oauth.settings import MODULE as OAUTH_MODULE
from klamm.broker.security.sasl.oauth.settings import OAuthSettings, read_oauth
from klamm.broker.security.sasl.plain import Plain
from klamm.broker.security.sasl.scram import Scram, ScramUsers
from klamm.config import BrokerConfig, ConfigError, Listener, listener_config
from klamm.config.exposure import is_loopback
from klamm.protocol.scram import BY_NAME, ScramMechanism

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, *BY_NAME, OAUTHBEARER)
MODULES: Final = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    **dict.fromkeys(BY_NAME, "org.apache.kafka.common.security.scram.ScramLoginModule"),
    OAUTHBEARER: OAUTH_MODULE,
}
JAAS: Final = "sasl.jaas.config"
CALLBACKS: Final = "sasl.server.callback.handler.class"
USER_OPTION: Final = "user_"
_LOGIN_FILE: Final = re.compile(r"-Djava\.security\.auth\.login\.config==?(\S+)")


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The logins of one listener. `max_session_ms` is by mechanism, in the order in which they are enabled."""

    max_frame_bytes: int
    max_session_ms: Mapping[str, int]
    passwords: Mapping[str, str] = field(repr=False)
    oauth: OAuthSettings | None = None

    @property
    def scram(self) -> list[ScramMechanism]:
        return [BY_NAME[name] for name in self.max_session_ms if name in BY_NAME]

    def mechanisms(
        self, scram_users: Callable[[ScramMechanism], ScramUsers], check_token: Check | None = None
    ) -> dict[str, EnabledMechanism]:
        """Return the enabled mechanisms; `scram_users` knows the users of one of SCRAM, `check_token` the tokens of
        OAUTHBEARER."""

        def begins(name: str) -> Callable[[], Mechanism]:
            if name == PLAIN:
                return lambda: Plain(self.passwords)
            if name == OAUTHBEARER:
                assert check_token is not None
                return lambda: OAuthBearer(check_token)
            users = scram_users(BY_NAME[name])
            return lambda: Scram(users)

        return {name: EnabledMechanism(begins(name), limit) for name, limit in self.max_session_ms.items()}


def read_settings(config: BrokerConfig, listener: Listener, environ: Mapping[str, str]) -> SaslSettings:
    """Return the settings of a listener with SASL. Raises ConfigError."""
    of_listener = listener_config(config, listener.name)
    enabled = cast(list[str], of_listener["sasl.enabled.mechanisms"])
    missing = [name for name in enabled if name not in MECHANISMS]
    if missing or not enabled:
        key = of_listener.set_name("sasl.enabled.mechanisms")
        raise ConfigError(f"{key}={','.join(enabled)}: {listener.name} can have {', '.join(MECHANISMS)}")
    _check_plain(config, listener, enabled)
    sections = _sections(config, environ)
    entries = {name: _entry(config, listener, name, sections) for name in enabled}
    plain, bearer = entries.get(PLAIN), entries.get(OAUTHBEARER)
    oauth = None
    if OAUTHBEARER in enabled:
        oauth = read_oauth(config, listener, bearer.options if bearer is not None else {}, environ)
    return SaslSettings(
        max_frame_bytes=of_listener.integer("sasl.server.max.receive.size"),
        max_session_ms={
            name: listener_config(config, listener.name, name).integer("connections.max.reauth.ms") for name in enabled
        },
        passwords=_passwords(plain) if plain is not None else {},
        oauth=oauth,
    )


def _check_plain(config: BrokerConfig, listener: Listener, enabled: list[str]) -> None:
    if PLAIN not in enabled or listener.protocol != "SASL_PLAINTEXT" or config.flag("klamm.sasl.plain.without.tls"):
        return
    if not is_loopback(listener.host):
        raise ConfigError(
            f"listeners: {listener} takes passwords in clear text (PLAIN without TLS) from other machines; use "
            "SCRAM-SHA-512, a loopback address, or set klamm.sasl.plain.without.tls=true"
        )


def _entry(
    config: BrokerConfig, listener: Listener, mechanism: str, sections: Mapping[str, list[JaasEntry]]
) -> JaasEntry | None:
    """Return the JAAS entry of a mechanism; None for one that can do without. Raises ConfigError."""
    own = listener_config(config, listener.name, mechanism)
    if own.is_set(CALLBACKS) and mechanism != OAUTHBEARER:
        raise ConfigError(f"{own.set_name(CALLBACKS)}: Java classes cannot run here")
    if own.is_set(JAAS):
        name = own.set_name(JAAS)
        try:
            entries = parse_entries(own.text(JAAS))
        except JaasError as error:
            raise ConfigError(f"{name}: {error}") from None
        if len(entries) != 1:
            raise ConfigError(f"{name}: there must be one entry, there are {len(entries)}")
        if entries[0].module != MODULES[mechanism]:
            raise ConfigError(f"{name}: {mechanism} needs the login module {MODULES[mechanism]}")
        return entries[0]
    section = next((each for each in (f"{listener.name.lower()}.KafkaServer", "KafkaServer") if each in sections), "")
    found = [entry for entry in sections.get(section, ()) if entry.module == MODULES[mechanism]]
    if not found and mechanism == PLAIN:
        key = f"listener.name.{listener.name.lower()}.plain.{JAAS}"
        raise ConfigError(f'{key} is not set: {MODULES[PLAIN]} required user_<name>="<password>";')
    return found[0] if found else None


def _passwords(entry: JaasEntry) -> dict[str, str]:
    begins = len(USER_OPTION)
    return {name[begins:]: value for name, value in entry.options.items() if name.startswith(USER_OPTION)}


def _sections(config: BrokerConfig, environ: Mapping[str, str]) -> dict[str, list[JaasEntry]]:
    """Return the sections of the login file, none without one. Raises ConfigError."""
    named = _LOGIN_FILE.search(environ.get("KAFKA_OPTS", ""))
    path = config["klamm.jaas.file"] or (named[1] if named is not None else None)
    if path is None:
        return {}
    try:
        return parse_file(Path(str(path)).read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"klamm.jaas.file: {path} cannot be read: {error.strerror}") from None
    except (JaasError, UnicodeDecodeError) as error:
        reason = error if isinstance(error, JaasError) else "it is not UTF-8"
        raise ConfigError(f"klamm.jaas.file: {path}: {reason}") from None
