"""docs/faults.md is the table of faults: each row names tests that exist, and no test is of a row that does not."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.faults.network_cases import CASES
from tests.test_rooms import PACKAGES

ROOT: Final = Path(__file__).parents[2]
TESTS: Final = ROOT / "tests"

NUMBERS: Final = re.compile(r"test_rows?((?:_\d{1,2})+)_")
STORAGE_FOLDERS: Final = ("storage", "faults", "broker")
NETWORK_FILES: Final = ("test_network_",)
SECURITY_FILES: Final = ("test_login_", "test_tls_", "test_acl")  # their rows are those of another table

# Rows that count only in a real process: one of their tests is in tests/faults.
NEEDS_A_PROCESS: Final = {22, 23, 24, 25, 26, 27, 28, 29, 31, 32, 33}
OF_SECURITY: Final = range(53, 60)


@cache
def rows(section: str) -> dict[int, str]:
    """The last column of each row of a section, by number."""
    text = (ROOT / "docs/faults.md").read_text().split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    found = re.findall(r"^\| (\d+) \|.+\| ([^|]+) \|$", text, re.MULTILINE)
    assert len(found) == len({number for number, _ in found})
    return {int(number): tests for number, tests in found}


@cache
def functions() -> dict[str, list[Path]]:
    """The files of each test, by its name."""
    found = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        for name in re.findall(r"^ *def (test_\w+)", path.read_text(), re.MULTILINE):
            found[name].append(path)
    return found


def named(cell: str) -> list[str]:
    return re.findall(r"`(test_\w+)`", cell)


@pytest.mark.parametrize(("section", "numbers"), [("Storage", set(range(1, 34))), ("Network", set(range(1, 71)))])
def test_each_row_names_tests_that_exist(section: str, numbers: set[int]) -> None:
    table = rows(section)
    assert table.keys() == (numbers - {*OF_SECURITY} if section == "Network" else numbers)
    assert not {number for number, cell in table.items() if not named(cell) and cell != "cases"}
    assert not {name for cell in table.values() for name in named(cell)} - functions().keys()


def test_the_cases_are_of_the_rows_that_say_so() -> None:
    assert {case.row for case in CASES} == {row for row, cell in rows("Network").items() if cell.startswith("cases")}


def test_a_row_that_needs_a_process_has_a_test_with_one() -> None:
    for number in NEEDS_A_PROCESS:
        paths = [path for name in named(rows("Storage")[number]) for path in functions()[name]]
        assert any(path.is_relative_to(TESTS / "faults") for path in paths), number


def test_a_test_named_after_rows_stands_in_one_of_them() -> None:
    for name, paths in functions().items():
        if not (match := NUMBERS.match(name)) or paths[0].name.startswith(SECURITY_FILES):
            continue
        if paths[0].relative_to(TESTS).parts[0] in STORAGE_FOLDERS:
            table = rows("Network" if paths[0].name.startswith(NETWORK_FILES) else "Storage")
            assert {int(number) for number in match[1].split("_")[1:]} <= table.keys(), name


def test_source_comments_cite_rows_of_the_page() -> None:
    cited = re.compile(r"docs/faults\.md, (storage|network) rows?\s+([\d, -]+)")
    found = 0
    for path in (path for folder in (*PACKAGES, "tests") for path in (ROOT / folder).rglob("*.py")):
        for section, numbers in cited.findall(re.sub(r"[\s#]+", " ", path.read_text())):
            assert {int(number) for number in re.findall(r"\d+", numbers)} <= rows(section.capitalize()).keys(), path
            found += 1
    assert found
