"""`ssl.principal.mapping.rules`: from the name in a certificate to the name of the user.

    rules = rule [, rule]*        rule = DEFAULT | RULE:pattern/replacement/[L|U]

The first rule that matches gives the name; L and U make it lower or upper case. A pattern must match the whole name;
then every match in it is replaced, as Java's `replaceAll` does. `DEFAULT` takes the name as it is. Without a rule that
matches, the login fails. `/` within a rule is written `\\/`.

Patterns are Java's regular expressions, matched by RE2, which takes time in proportion to the length of the name. What
RE2 does not have (look-around, possessive quantifiers, references to groups in the pattern) is refused at the start.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

DEFAULT: Final = "DEFAULT"
MAX_MEMORY_BYTES: Final = 8 << 20  # of one expression, compiled
_RULE: Final = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)", re.DOTALL)
_BETWEEN: Final = re.compile(r"\s*(?:,\s*|$)")
_JAVA_CLASSES: Final = re.compile(
    r"\\([pP])\{(?:Is)?(Lower|Upper|ASCII|Alpha|Digit|Alnum|Punct|Graph|Print|Blank|Cntrl|XDigit|Space)\}"
)
_GROUP: Final = re.compile(r"\\(.)|\$\{(\w+)\}|\$(\d+)|([\\$])", re.DOTALL)
_OTHER_CLASSES: Final = re.compile(r"\[(?:\\.|[^\]\\])*(?:&&|(?<!\\)\[(?!:))", re.DOTALL)


class BadRule(ValueError):
    """A rule that cannot be used; the message is one line."""


class NoMatchingRule(Exception):
    """No rule knows this name."""


class PrincipalRules:
    """The rules of one listener. Raises BadRule when made."""

    def __init__(self, text: str) -> None:
        self._rules = [_Rule(*parts) for parts in _split(text)]

    def name(self, distinguished_name: str) -> str:
        """Return the user's name. Raises NoMatchingRule."""
        for rule in self._rules:
            found = rule.apply(distinguished_name)
            if found is not None:
                return found
        raise NoMatchingRule(f"no rule of ssl.principal.mapping.rules matches {distinguished_name!r}")


def _split(text: str) -> list[tuple[str, ...]]:
    found, position, text = [], 0, text.strip()
    while position < len(text):
        match = _RULE.match(text, position)
        end = _BETWEEN.match(text, match.end()) if match is not None else None
        if match is None or end is None:
            raise BadRule(f"{text[position:]!r} does not begin with DEFAULT or RULE:pattern/replacement/[LU]")
        found.append(tuple(part or "" for part in match.groups()))
        position = end.end()
    if not found:
        raise BadRule("there is no rule, so nobody could log in; DEFAULT takes the name as it is")
    return found


class _Rule:
    """One rule; DEFAULT has no pattern."""

    def __init__(self, default: str, pattern: str, replacement: str, case: str) -> None:
        self._pattern = None if default else _compiled(pattern)
        self._pieces = [] if self._pattern is None else _pieces(replacement, self._pattern)
        self._case: Callable[[str], str] = {"L": str.lower, "U": str.upper}.get(case, str)

    def apply(self, name: str) -> str | None:
        if self._pattern is None:
            return name
        if self._pattern.fullmatch(name) is None:
            return None
        replaced, position = [], 0
        for match in self._pattern.finditer(name):
            replaced.append(name[position : match.start()])
            replaced += [piece if isinstance(piece, str) else match[piece.group] or "" for piece in self._pieces]
            position = match.end()
        return self._case("".join(replaced) + name[position:])


class _Reference(NamedTuple):
    """A part of a replacement that stands for a group of the pattern."""

    group: int | str


def _compiled(pattern: str) -> Any:
    import re2

    if _OTHER_CLASSES.search(pattern):
        raise BadRule(f"{pattern!r}: classes within classes are not known here")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY_BYTES
    try:
        return re2.compile(_JAVA_CLASSES.sub(_posix_class, pattern), options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise BadRule(f"{pattern!r} is not understood: {text}") from None


def _posix_class(match: re.Match[str]) -> str:
    """`\\p{Alpha}` -> `[:alpha:]`, in brackets of its own unless it stands in some."""
    name = f"[:{'^' if match[1] == 'P' else ''}{match[2].lower()}:]"
    before = re.sub(r"\\.", "", match.string[: match.start()])
    return name if before.rfind("[") > before.rfind("]") else f"[{name}]"


def _pieces(replacement: str, pattern: Any) -> list[str | _Reference]:
    """A replacement as texts and references; a number that no group has is a shorter number and a digit, or text."""
    pieces: list[str | _Reference] = []
    position = 0
    for match in _GROUP.finditer(replacement):
        pieces.append(replacement[position : match.start()])
        position = match.end()
        escaped, name, number, stray = match.groups()
        if stray or (name and name not in pattern.groupindex):
            raise BadRule(f"replacement {replacement!r}: {match[0]!r} is no reference to a group")
        if escaped:
            pieces.append(escaped)
        elif name:
            pieces.append(_Reference(name))
        else:
            pieces += _numbered(number, pattern.groups)
    return [*pieces, replacement[position:]]


def _numbered(number: str, groups: int) -> list[str | _Reference]:
    length = next((size for size in range(len(number), 0, -1) if int(number[:size]) <= groups), 0)
    return [_Reference(int(number[:length])), number[length:]] if length else ["$" + number]
