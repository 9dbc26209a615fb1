"""Every command and snippet in README.md and docs/ is run, and gives the output that the page shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.documents import PAGES, ROOT, RUN, SHOWN, STOPPED, blocks, is_shown
from tests.docs.scenes import SCENES
from tests.docs.terminal import SERVER, Terminal

CAMPAIGN: Final = {"docs/pipeline.md": pytest.mark.spark}  # what needs Spark
RUN_PAGES: Final = [
    pytest.param(page, marks=[pytest.mark.campaign, CAMPAIGN[page]] if page in CAMPAIGN else [])
    for page in PAGES
    if any(block.is_run for block in blocks(page))
]


@pytest.mark.java
@pytest.mark.parametrize("page", RUN_PAGES)
def test_the_blocks_of_a_page_run_and_show_their_output(page: str, tmp_path: Path) -> None:
    output, whole = "", True
    with Terminal(tmp_path) as terminal:
        SCENES.get(page, lambda _: None)(terminal)
        for block in blocks(page):
            if block.is_run:
                output, whole = terminal.run(block), not SERVER.search(block.text)
            elif block.language == "output":
                assert is_shown(block.text, output, whole=whole), f"{block.place}: the output is\n{output}"


@pytest.mark.parametrize("page", PAGES)
def test_each_block_is_run_shown_or_says_why_not(page: str) -> None:
    for block in blocks(page):
        assert block.language in RUN | SHOWN | {"output"}, block.place
        assert block.mark in ("", STOPPED) or re.fullmatch(r"not run: .{10,}", block.mark), block.place
    text = re.sub(r"^ *```.*?^ *```$", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    assert "```" not in text, "a fence that is not closed"
    assert not re.search(r"\n\n {4,}\S", text), "an indented block; fence it"


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_sections(page: str) -> None:
    for target, section in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", (ROOT / page).read_text()):
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.exists(), target
        titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE) if section else []
        assert not section or section in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md"])
def test_the_files_that_a_page_names_exist(page: str) -> None:
    named = set(re.findall(r"`([a-z_]+/[\w/]+(?:\.py|\.c|/))`", (ROOT / page).read_text()))
    assert not [name for name in named if not (ROOT / name).exists()]


def test_the_glossary_names_classes_that_are_in_its_files() -> None:
    section = (ROOT / "docs/architecture.md").read_text().split("\n## Glossary\n", 1)[1].split("\n## ", 1)[0]
    for row in section.splitlines():
        names = re.findall(r"`([\w/]+(?:\.py)?/?)`", row.rpartition(" | ")[2])
        files = [ROOT / name for name in names if "/" in name]
        source = "".join(
            path.read_text() for file in files for path in ([file] if file.is_file() else file.glob("*.py"))
        )
        assert not [name for name in names if "/" not in name and "." not in name and name not in source], row


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text()
    assert not [page for page in PAGES[1:] if page != "docs/README.md" and f"({Path(page).name})" not in index]


@pytest.mark.parametrize(
    ("expected", "found", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\n", "a\nb\n", False),
        ("a ... c\n", "a long c\n", True),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("a.c\n", "abc\n", False),
    ],
)
def test_an_output_is_compared_line_by_line(expected: str, found: str, *, same: bool) -> None:
    assert is_shown(expected, found, whole=True) == same
