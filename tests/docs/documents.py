"""The fenced blocks of a document, and whether an output is the one that it shows.

A comment on the line before a block changes how it is run: `<!-- not run: REASON -->` leaves it out, and
`<!-- run: with the broker stopped -->` stops the broker before it. An ```output``` block shows the output of the last
block that was run; `...` stands for any text within a line, alone on a line for any lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]

RUN: Final = {"sh", "python", "properties"}
SHOWN: Final = {"text", "mermaid"}  # neither a command nor a snippet
STOPPED: Final = "run: with the broker stopped"

FENCED: Final = re.compile(
    r"(?:^ *<!-- (?P<mark>[^\n]*?) -->\n)?^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Block:
    place: str  # page:line
    language: str
    text: str
    mark: str

    @property
    def is_run(self) -> bool:
        return self.language in RUN and not self.mark.startswith("not run: ")


def blocks(page: str) -> list[Block]:
    source = (ROOT / page).read_text()
    return [
        Block(
            place=f"{page}:{source.count(chr(10), 0, match.start('text')) + 1}",
            language=match["language"],
            text=re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE),
            mark=match["mark"] or "",
        )
        for match in FENCED.finditer(source)
    ]


def pattern(expected: str) -> str:
    """A regular expression for an output."""
    lines = (
        "(?:.*\n)*" if line == "..." else ".*".join(map(re.escape, line.split("..."))) + " *\n"
        for line in expected.splitlines()
    )
    return "".join(lines)


def is_shown(expected: str, found: str, *, whole: bool) -> bool:
    """Return whether `found` is what a document shows; lines of its own around that may be allowed."""
    if whole:
        return re.fullmatch(pattern(expected), found.rstrip("\n") + "\n") is not None
    return re.search("^" + pattern(expected), found, re.MULTILINE) is not None
