"""Windows side by side, and the messages of producers."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from klamm.pipeline.errors import BadOption, PipelineError
from klamm.pipeline.jobs.audit.comparison import Row, coarser, compare
from klamm.pipeline.jobs.audit.counter import AuditCounter, lines_to
from klamm.pipeline.jobs.audit.tiers import producer_counts_of_file, producers


def test_rows_of_the_windows_that_count() -> None:
    tiers = {
        "broker": Counter({("t", 0): 5, ("t", 10): 3, ("u", 0): 1}),
        "mirror": Counter({("t", 0): 5, ("t", 20): 1}),
    }
    rows = compare(tiers, {"t": range(0, 30, 10)})
    assert rows == [Row("t", 0, (5, 5)), Row("t", 10, (3, 0)), Row("t", 20, (0, 1))]
    assert [row.is_equal for row in rows] == [True, False, False]
    assert rows[1].line(list(tiers)) == "t 1970-01-01T00:00:00Z broker=3 mirror=0 MISMATCH"


def test_small_windows_make_large_ones() -> None:
    assert coarser([("t", 0, 1), ("t", 5, 2), ("t", 10, 4)], 10) == Counter({("t", 0): 3, ("t", 10): 4})


def test_a_counter_tells_what_came_since_and_doubles_count_once(tmp_path: Path) -> None:
    path = tmp_path / "counts"
    counter = AuditCounter(lines_to(path), window_ms=1000)
    for at in (1, 2, 1500):
        counter.count("t", at)
    counter.flush()
    counter.count("t", 3, 10)
    counter.flush()
    counter.flush()
    again = [*producer_counts_of_file(str(path)), *producer_counts_of_file(str(path))]
    assert len(again) == 6
    assert producers(again, 1000, "x") == Counter({("t", 0): 12, ("t", 1000): 1})
    assert producers(again, 2000, "x") == Counter({("t", 0): 13})
    with pytest.raises(BadOption, match="--window 1: producers have counted windows of 1 s"):
        producers(again, 1500, "x")


def test_what_could_not_be_sent_is_reported_later() -> None:
    sent: list[bytes] = []

    def send(key: bytes, value: bytes) -> None:
        if not fails:
            sent.append(value)
        elif len(sent) == 1:
            raise OSError
        else:
            sent.append(value)

    fails = True
    counter = AuditCounter(send, window_ms=1000)
    counter.count("a", 1)
    counter.count("b", 1)
    with pytest.raises(OSError):
        counter.flush()
    fails = False
    counter.flush()
    assert [(json.loads(one)["topic"], json.loads(one)["sequence"]) for one in sent] == [("a", 0), ("b", 1)]


@pytest.mark.parametrize("message", [b"no", b"[]", b'{"tier": "producer"}', b'{"tier": "producer", "count": "1"}'])
def test_a_value_that_is_no_message_is_reported(message: bytes) -> None:
    with pytest.raises(PipelineError, match=r"topic audit: .* is no audit message"):
        producers([message], 1000, "topic audit")
