"""The reference of all keys."""

from __future__ import annotations

from pathlib import Path

from klamm.config import BROKER_KEYS, TOPIC_KEYS
from klamm.config.reference import as_markdown, as_text

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_current():
    assert (DOCS / "configuration.md").read_text(encoding="utf-8") == as_markdown(), "run `make docs`"


def test_every_key_is_listed_with_a_meaning():
    text, page = as_text(), as_markdown()
    for row in (*BROKER_KEYS.values(), *TOPIC_KEYS.values()):
        if not row.name.startswith("internal."):
            assert f"\n{row.name}=" in text
            assert f"| `{row.name}` |" in page
            assert row.doc.endswith(".")
