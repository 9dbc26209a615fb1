"""JAAS entries, the form in which Apache Kafka's configs name users and their secrets.

    entry    class flag name=value ... ;             flag: required, requisite, sufficient, optional
    file     section { entry ... };  ...             section: KafkaServer, or <listener>.KafkaServer

Words are as `java.io.StreamTokenizer` has them, and wider: whatever is not a space, a quote, `=`, `;` or a brace. A
value may stand in double or single quotes with Java's escapes: `\\"`, `\\\\`, `\\n`, up to three octal digits. Comments
are `// ...`, `/* ... */` and, in a file, `# ...`. An error never quotes the text, for it holds passwords.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<quoted>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<sign>[=;{}])
    |(?P<word>(?:(?!//|/\*)[^\s"'=;{}])+)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_CONTROL: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_HASH_COMMENT: Final = re.compile(r"^\s*#.*$", re.MULTILINE)


class JaasError(ValueError):
    """The text is no JAAS entry; the message has nothing of it."""


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """`options` has the secrets, and is not shown."""

    module: str
    flag: str
    options: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    is_sign: bool


def parse_entries(text: str) -> list[JaasEntry]:
    """Return the entries of a `sasl.jaas.config`. Raises JaasError."""
    tokens = _Tokens(text)
    entries = []
    while tokens.has_more:
        entries.append(_entry(tokens))
    return entries


def parse_file(text: str) -> dict[str, list[JaasEntry]]:
    """Return the sections of a login file. Raises JaasError."""
    tokens = _Tokens(_HASH_COMMENT.sub("", text))
    sections: dict[str, list[JaasEntry]] = {}
    while tokens.has_more:
        name = tokens.word("the name of a section")
        tokens.sign("{", "after the name of a section")
        entries = sections.setdefault(name, [])
        while not tokens.take("}"):
            entries.append(_entry(tokens))
        tokens.sign(";", "after the brace that ends a section")
    return sections


def _entry(tokens: _Tokens) -> JaasEntry:
    module = tokens.word("the class of a login module")
    flag = tokens.word("the control flag after the class")
    if flag.lower() not in FLAGS:
        raise JaasError(f"the control flag must be one of {', '.join(FLAGS)}")
    options: dict[str, str] = {}
    while not tokens.take(";"):
        name = tokens.word("an option or the semicolon that ends the entry")
        tokens.sign("=", "and a value after the name of an option")
        options[name] = tokens.word("the value of an option")
    return JaasEntry(module, flag.lower(), options)


class _Tokens:
    """The words and signs of a text, one after the other."""

    def __init__(self, text: str) -> None:
        self._rest = list(_tokens(text))[::-1]

    @property
    def has_more(self) -> bool:
        return bool(self._rest)

    def take(self, sign: str) -> bool:
        """Pass over the sign if it comes next."""
        if self._rest and self._rest[-1] == _Token(sign, True):
            self._rest.pop()
            return True
        return False

    def sign(self, sign: str, where: str) -> None:
        if not self.take(sign):
            raise JaasError(f"{sign!r} is missing {where}")

    def word(self, what: str) -> str:
        if not self._rest or self._rest[-1].is_sign:
            raise JaasError(f"{what} is missing")
        return self._rest.pop().text


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise JaasError(
                "a quote is not closed on its line" if text[position] in "\"'" else "a comment does not end"
            )
        position = match.end()
        if match["quoted"] is not None:
            yield _Token(_ESCAPE.sub(_unescaped, match["quoted"][1:-1]), False)
        elif match["sign"] is not None:
            yield _Token(match["sign"], True)
        elif match["word"] is not None:
            yield _Token(match["word"], False)


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    return chr(int(escape, 8)) if escape[0] in "01234567" else _CONTROL.get(escape, escape)
