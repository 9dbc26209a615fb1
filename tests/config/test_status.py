"""What the tables say about a key's effect is held against the code that would have to read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.config import BROKER_KEYS, TOPIC_KEYS, ConfigKey

ROOT = Path(__file__).parents[2]

# Read under a composed name: compression.<codec>.level, <prefix>.num and <prefix>.size.seconds.
COMPOSED = {f"compression.{codec}.level" for codec in ("gzip", "lz4", "zstd")}
COMPOSED |= {f"controller.quota.window.{what}" for what in ("num", "size.seconds")}
# Read by the config itself.
RESOLVED = {"broker.id", "internal.segment.bytes", "config.providers"}


@pytest.fixture(scope="module")
def code() -> str:
    own = ROOT / "config" / "broker_config.py"
    files = [path for folder in ("broker", "client", "storage") for path in (ROOT / folder).rglob("*.py")]
    return "\n".join(path.read_text(encoding="utf-8") for path in [*files, own])


def is_read(row: ConfigKey, code: str) -> bool:
    by_topic = [topic for topic in TOPIC_KEYS.values() if row.name in dict(topic.fallbacks)]
    names = {row.name, *(topic.name for topic in by_topic)}
    return bool(names & (COMPOSED | RESOLVED)) or any(f'"{name}"' in code for name in names)


def test_a_key_that_is_said_to_work_is_read_by_some_code(code):
    rows = [*BROKER_KEYS.values(), *TOPIC_KEYS.values()]
    assert [row.name for row in rows if row.status == "works" and not row.refuse and not is_read(row, code)] == []
