"""Kafka Streams 4.3 counts words with `exactly_once_v2`, and dies with the broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.campaign import scaled, seeded
from tests.faults.word_count import WordCounts

pytestmark = [pytest.mark.campaign, pytest.mark.faults, pytest.mark.java, pytest.mark.timeout(1800)]


def test_counts_are_exact(tmp_path: Path) -> None:
    """One round, in which both are killed, or ten."""
    counts = WordCounts(tmp_path, seeded("word count"))
    with counts.broker:
        counts.run(scaled(1, 10), scaled(400, 2_000))
        print(counts.verify())
