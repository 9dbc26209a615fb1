"""The demo's check finds what it is there to find."""

from __future__ import annotations

import json

import pytest

from examples.flights import ROW_HEADER, Check

ROWS = [{"carrier": carrier, "flight": str(number)} for number, carrier in enumerate(["UA", "AA", "UA"])]


def add(check: Check, number: int, **changed: str) -> None:
    row = ROWS[number]
    value = json.dumps({**row, **changed}).encode()
    check.add(row["carrier"].encode(), value, {ROW_HEADER: str(number).encode()})


def test_all_rows_once_and_in_order_within_their_carrier() -> None:
    check = Check(ROWS)
    for number in (1, 0, 2):
        add(check, number)
    assert check.problems() == [] and check.seen_count == 3


@pytest.mark.parametrize(
    ("numbers", "changed", "problem"),
    [
        ((0, 1), {}, "1 rows are missing"),
        ((0, 1, 2, 2), {}, "row 2 came twice"),
        ((2, 0, 1), {}, "row 0 came after row 2 of the same carrier"),
        ((0, 1, 2), {"flight": "x"}, "row 0 was changed"),
    ],
)
def test_a_problem_is_reported(numbers: tuple[int, ...], changed: dict[str, str], problem: str) -> None:
    check = Check(ROWS)
    for number in numbers:
        add(check, number, **changed)
    assert any(problem in found for found in check.problems())
