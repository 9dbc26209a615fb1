"""docs/security.md: each row of hostile input names tests that exist, and each such test is in the table."""

from __future__ import annotations

import re

from tests.docs.test_faults import ROOT, functions

ROW = re.compile(r"^\| (\d+) \|.+\| ([^|]+) \|$", re.MULTILINE)
NUMBERS = re.compile(r"test_security_rows?((?:_\d{1,2})+)_")


def test_the_table_and_the_tests_name_each_other() -> None:
    rows = ROW.findall((ROOT / "docs/security.md").read_text().split("\n## Hostile input\n", 1)[1])
    named = {name for _, cell in rows for name in re.findall(r"`(test_\w+)`", cell)}
    assert named == {name for name in functions() if NUMBERS.match(name)}
    numbers = {int(number) for number, cell in rows if NUMBERS.search(cell)}
    assert numbers == {int(number) for number, _ in rows}
