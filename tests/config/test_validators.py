"""The limits of every key, held against the values right at them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from klamm.config import GROUP_KEYS, TOPIC_KEYS
from klamm.config.broker_keys import BROKER_KEYS
from klamm.config.definitions import INT_MAX, ConfigKey, Type
from klamm.config.validators import Range


def ranges() -> Iterator[tuple[ConfigKey, Range]]:
    for rows in (BROKER_KEYS, TOPIC_KEYS, GROUP_KEYS):
        for row in rows.values():
            if isinstance(row.validator, Range):
                yield row, row.validator


def test_every_range_takes_its_ends_what_lies_between_and_its_extra_value() -> None:
    checked = 0
    for row, limits in ranges():
        least = limits.least if limits.least is not None else 0
        most = limits.most if limits.most is not None else max(least, 32_767 if row.type is Type.SHORT else INT_MAX)
        for value in (least, (least + most) // 2, most, limits.also):
            if value is not None:
                typed = float(value) if row.type is Type.DOUBLE else int(value)
                assert limits.problem(typed) is None, f"{row.name}={value}"
                checked += 1
    assert checked > 300


def test_every_range_refuses_what_is_outside() -> None:
    for row, limits in ranges():
        outside = [limits.least - 1 if limits.least is not None else None]
        outside.append(limits.most + 1 if limits.most is not None else None)
        for value in outside:
            if value is not None and value != limits.also:
                assert limits.problem(value) is not None, f"{row.name}={value}"


@pytest.mark.parametrize(
    ("limits", "shown", "value", "problem"),
    [
        (Range(1), "[1,...]", 0, "Value must be at least 1"),
        (Range(1, 9), "[1,...,9]", 10, "Value must be no more than 9"),
        (Range(1, 9, also=-1), "[1,...,9] or -1", 0, "Value must be between 1 and 9 or equal to -1"),
        (Range(16, also=-1), "[16,...] or -1", 15, "Value must be at least 16 or equal to -1"),
    ],
)
def test_a_range_says_what_would_be_right(limits: Range, shown: str, value: int, problem: str) -> None:
    assert (str(limits), limits.problem(value)) == (shown, problem)
