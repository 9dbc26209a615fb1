"""The parser of `.properties` text, as in `java.util.Properties`: comments, separators, continued lines, escapes."""

from __future__ import annotations

import re
from typing import Final

_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY: Final = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_NEWLINE: Final = re.compile(r"\r\n|\r|\n")


def parse_properties(text: str) -> dict[str, str]:
    """Return the keys and values of `text`. The last value of a repeated key counts, as in Java."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _KEY.fullmatch(line)
        assert match is not None, line
        found[_unescape(match[1])] = _unescape(match[2])
    return found


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    begun = ""
    continued = False
    for line in _NEWLINE.split(text):
        line = line.lstrip(" \t\f")
        if not continued and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        continued = backslashes % 2 == 1
        begun += line[:-1] if continued else line
        if not continued:
            lines.append(begun)
            begun = ""
    return [*lines, begun] if begun else lines


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda m: chr(int(m[1][1:], 16)) if len(m[1]) == 5 else _CONTROL.get(m[1], m[1]), text)
