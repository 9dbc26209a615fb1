"""The keys as a reference: plain text for `klamm config`, Markdown for docs/configuration.md."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Final

from klamm.config.broker_keys import BROKER_KEYS
from klamm.config.definitions import ConfigKey, to_text
from klamm.config.rows_cluster import GROUPS, OLD, PRODUCERS, QUORUM, REPLICATION, SECURITY
from klamm.config.rows_log import BATCHES, COMPACTION, FLUSH, RETENTION, SEGMENTS
from klamm.config.rows_oauth import OAUTH
from klamm.config.rows_protection import PROTECTION
from klamm.config.rows_server import IDENTITY, KLAMM, LISTENERS, METRICS, NETWORK, REQUESTS
from klamm.config.rows_tls import ROWS as TLS
from klamm.config.topic_keys import TOPIC_KEYS

SECTIONS: Final[tuple[tuple[str, tuple[ConfigKey, ...]], ...]] = (
    ("Node and data", IDENTITY),
    ("Listeners", LISTENERS),
    ("Network", NETWORK),
    ("Topics and requests", REQUESTS),
    ("Segments", SEGMENTS),
    ("Flushing", FLUSH),
    ("Batches", BATCHES),
    ("Retention", RETENTION),
    ("Compaction", COMPACTION),
    ("Replication", REPLICATION),
    ("Producers and transactions", PRODUCERS),
    ("Groups", GROUPS),
    ("Security", SECURITY),
    ("TLS", TLS),
    ("OAUTHBEARER", OAUTH),
    ("Secrets and files", PROTECTION),
    ("Kafka's metrics", METRICS),
    ("KRaft", QUORUM),
    ("Before Kafka 4.0", OLD),
    ("Klamm's own", KLAMM),
)
assert sum(len(rows) for _, rows in SECTIONS) == len(BROKER_KEYS)

STATUS: Final = {"works": "", "later": "without effect yet", "no use": "not needed here"}

HEAD: Final = """\
# Configuration

<!-- Written by `make docs` from the tables in config/; change those. -->

Klamm reads Kafka's own keys from `server.properties`, then from the environment, then from `--override key=value`; the
later wins. In the environment `KAFKA_LOG_DIRS` or `KAFKA_CFG_LOG_DIRS` is `log.dirs`: one underscore is a dot, two are
an underscore, three a dash. Files written for Kafka 3.x and 4.x can be used as they are. `klamm config` prints this
list.

A key *without effect yet* is stored and reported by DescribeConfigs, and named once in a warning at start. A key *not
needed here* tunes machinery that Klamm does not have. A value that is *refused* stops the start, because to ignore it
would lose data or security. Kafka's remaining keys are accepted and stored, too; an unknown name gets a warning with
the nearest known one.

*Cluster-wide* and *per-broker* keys can be changed while the broker runs (`kafka-configs`), the others need a restart.
"""


def as_text() -> str:
    """Return every key with default and meaning, for a terminal."""
    parts: list[str] = []
    for title, rows in (*SECTIONS, ("Per topic", _topic_rows())):
        parts.append(f"{title}\n{'-' * len(title)}\n")
        for row in rows:
            facts = ", ".join(_facts(row))
            doc = textwrap.fill(row.doc, 100, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
            parts.append(f"{row.name}={_default(row)}\n    ({facts})\n{doc}\n")
    return "\n".join(parts)


def as_markdown() -> str:
    """Return the text of docs/configuration.md."""
    parts = [HEAD]
    for title, rows in SECTIONS:
        parts.append(_table(title, rows))
    parts.append(
        _table(
            "Per topic",
            _topic_rows(),
            "A topic may override these; the default is the value of the broker key in the last column.",
        )
    )
    return "\n".join(parts)


def _table(title: str, rows: Iterable[ConfigKey], intro: str = "") -> str:
    lines = [f"## {title}", ""]
    if intro:
        lines += [intro, ""]
    lines += ["| key | default | type and limits | meaning |", "|---|---|---|---|"]
    for row in rows:
        notes = [row.doc.replace("|", "\\|")]
        if row.name in TOPIC_KEYS and row is TOPIC_KEYS[row.name] and row.fallbacks:
            notes.append(f"Default from `{row.fallbacks[0][0]}`.")
        if STATUS[row.status]:
            notes.append(f"*{STATUS[row.status].capitalize()}.*")
        if row.refuse:
            notes.append(f"*Other values are refused: {row.refuse}.*")
        default = f"`{_default(row)}`" if _default(row) else ""
        lines.append(f"| `{row.name}` | {default} | {', '.join(_facts(row, short=True))} | {' '.join(notes)} |")
    return "\n".join(lines) + "\n"


def _facts(row: ConfigKey, *, short: bool = False) -> list[str]:
    facts = [row.type.name.lower()]
    if row.validator is not None and str(row.validator):
        facts.append(str(row.validator))
    if row.dynamic != "read-only" and not (row.name in TOPIC_KEYS and row is TOPIC_KEYS[row.name]):
        facts.append(row.dynamic)
    if not short:
        facts += [
            fact for fact in (STATUS[row.status], row.refuse and f"other values are refused: {row.refuse}") if fact
        ]
    return facts


def _default(row: ConfigKey) -> str:
    return to_text(row.default) or ""


def _topic_rows() -> tuple[ConfigKey, ...]:
    return tuple(row for row in TOPIC_KEYS.values() if not row.name.startswith("internal."))


if __name__ == "__main__":
    print(as_markdown(), end="")
