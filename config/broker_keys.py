"""All keys of the broker in one table, and other known names.

A name that is not in the table may be one of Kafka's other keys (`known.py`, names only), an old alias, or a key with a
listener's prefix (`listener.name.<listener>.<key>`). Any other name is unknown.
"""

from __future__ import annotations

from typing import Final

from klamm.config import rows_cluster, rows_log, rows_oauth, rows_protection, rows_server, rows_tls
from klamm.config.definitions import ConfigKey

BROKER_KEYS: Final[dict[str, ConfigKey]] = {
    row.name: row
    for rows in (rows_server, rows_log, rows_cluster, rows_tls, rows_oauth, rows_protection)
    for row in rows.ROWS
}

# Old names; each sets every name on its right that is not set itself.
ALIASES: Final[dict[str, tuple[str, ...]]] = {
    "log.message.timestamp.difference.max.ms": (
        "log.message.timestamp.before.max.ms",
        "log.message.timestamp.after.max.ms",
    ),
    "max.message.time.difference.ms": ("log.message.timestamp.before.max.ms", "log.message.timestamp.after.max.ms"),
    "delegation.token.master.key": ("delegation.token.secret.key",),
}
TOPIC_ALIASES: Final[dict[str, tuple[str, ...]]] = {
    "message.timestamp.difference.max.ms": ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"),
    "max.message.time.difference.ms": ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"),
}

LISTENER_PREFIX: Final = "listener.name."
SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
_MECHANISM_PREFIXES: Final = frozenset(name.lower() for name in SASL_MECHANISMS)


def without_listener(name: str) -> str:
    """Remove the listener's prefix: `listener.name.inside.max.connections` -> `max.connections`.

    A mechanism after the listener is removed too: `listener.name.inside.plain.sasl.jaas.config` -> `sasl.jaas.config`.
    """
    if not name.startswith(LISTENER_PREFIX):
        return name
    key = name[len(LISTENER_PREFIX) :].partition(".")[2]
    mechanism, _, rest = key.partition(".")
    return rest if mechanism in _MECHANISM_PREFIXES else key
