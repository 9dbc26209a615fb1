"""The TLS settings of a listener, from texts as in server.properties."""

from __future__ import annotations

from collections.abc import Mapping

from klamm.broker.security.tls.settings import TlsSettings, tls_settings
from klamm.config import BrokerConfig, listener_config


def settings_of(texts: Mapping[str, str], protocol: str = "SSL") -> TlsSettings:
    """The settings of the one listener, SECURE. Raises BadTlsSettings."""
    given = {
        "log.dirs": "data",
        "listeners": "SECURE://127.0.0.1:9093",
        "listener.security.protocol.map": f"SECURE:{protocol}",
        "inter.broker.listener.name": "SECURE",
        **texts,
    }
    return tls_settings(listener_config(BrokerConfig(given), "SECURE"), with_sasl=protocol == "SASL_SSL")
