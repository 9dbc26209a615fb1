"""The index of the storage faults: each of the 33 rows of the table has tests whose names begin with it.

    test_row_4_...          a test of row 4
    test_rows_15_16_...     of both
Those in tests/storage make the bytes by hand on a filesystem in memory, those in tests/faults damage the data of a real
process, fill its disk or let its system calls fail. `pytest -rP tests/faults/test_storage_rows.py` prints the index;
`pytest -k "row_4_ or rows_ and _4_"` runs a row.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FOLDERS = ("storage", "faults", "broker")
OTHER_TABLES = ("test_network_",)
"""Files whose rows are those of other tables."""
NUMBERS = re.compile(r"test_rows?((?:_\d+)+)_[a-z]")

ROWS = {
    1: "torn last batch",
    2: "zero-filled tail",
    3: "garbage tail",
    4: "bit flip in the middle of an unflushed segment",
    5: "bit flip in an old segment",
    6: "good CRC, wrong base offset",
    7: "missing .index",
    8: "corrupt .timeindex",
    9: "corrupt or missing .txnindex",
    10: "corrupt producer snapshot",
    11: "missing producer snapshot",
    12: ".log missing, index left",
    13: "orphan log without topic metadata",
    14: "interrupted compaction: .cleaned left",
    15: ".swap left",
    16: ".swap and .cleaned left",
    17: ".deleted and -delete left",
    18: "garbage leader-epoch-checkpoint",
    19: "garbage recovery point, log start, high watermark",
    20: "corrupt metadata or meta.properties",
    21: "torn write in the metadata, offsets, transactions",
    22: "no space on append",
    23: "no space for index, snapshot, checkpoint",
    24: "read-only directory at the start",
    25: "EROFS or EIO on write",
    26: "EIO on fsync",
    27: "EIO on read",
    28: "no descriptors on roll or accept",
    29: "second process on the same directory",
    30: "rename without directory sync, power cut",
    31: "clock jumps by a day",
    32: "kill -9 in each step of roll, compaction, delete, add, marker, move",
    33: "leftover of a half-created topic",
}

NEEDS_A_PROCESS = {22, 23, 24, 25, 26, 27, 28, 29, 31, 32, 33}
"""Rows that count only in a real process: there has to be a test in tests/faults."""


@cache
def rows_tested() -> dict[int, list[str]]:
    """`file::name` of every test of a row."""
    found: dict[int, list[str]] = defaultdict(list)
    for folder in FOLDERS:
        for path in sorted((TESTS / folder).rglob("test_*.py")):
            if path.name.startswith(OTHER_TABLES):
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef) and (match := NUMBERS.match(node.name)):
                    for number in match[1].split("_")[1:]:
                        found[int(number)].append(f"{path.relative_to(TESTS)}::{node.name}")
    return found


@pytest.mark.parametrize("row", ROWS)
def test_each_row_has_its_tests(row: int) -> None:
    found = rows_tested()[row]
    print(f"row {row}: {ROWS[row]}", *found, sep="\n    ")
    assert found, f"row {row}, {ROWS[row]}, has no test"
    if row in NEEDS_A_PROCESS:
        assert any(name.startswith("faults/") for name in found), f"row {row} has no test with a real process"


def test_no_test_is_of_a_row_that_does_not_exist() -> None:
    assert rows_tested().keys() <= ROWS.keys()
