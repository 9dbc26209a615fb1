"""The scan of the project's English: `python -m tests.support.words [FOLDER ...]`, a part of `make check`.

It covers docstrings, comments and strings that hold more than one word in Python, comments in other languages, and
documents whole. Code between backticks is left out. CONTRIBUTING.md ("English") explains the rules; a scan can hold
only these. `CLEAN` names what must pass; other folders can be named on the command line.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

# The tree: files, and folders with all below them.
CLEAN: Final = (
    ".ci",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Makefile",
    "README.md",
    "bench",
    "broker",
    "cli",
    "client",
    "config",
    "docker",
    "docs",
    "examples",
    "hatch_build.py",
    "klamm",
    "pipeline",
    "protocol",
    "storage",
    "tests",
)

DOCUMENTS: Final = {".md", ".properties", ".toml", ".txt", ".yaml", "Dockerfile", "Makefile"}
CODE: Final = {".java", ".go", ".js", ".rs", ".c"}
LEFT_OUT: Final = {"words.py", "test_words.py"}  # they hold the words themselves
BUILT: Final = {"target", "node_modules", "__pycache__", ".venv", ".git"}
DOCUMENTED: Final = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

# How a word ends that may have "who" after it: someone, nobody, users.
PEOPLE: Final = (
    "administrator administrators contributor contributors developer developers operator operators people".split()
)
PEOPLE += "one body person reader readers those user users".split()


@dataclass(frozen=True, slots=True)
class Rule:
    pattern: re.Pattern[str]
    advice: str


def rule(pattern: str, advice: str) -> Rule:
    return Rule(re.compile(pattern), advice)


RULES: Final = (
    rule(r"(?i)\btold\b", "say what is sent, written or returned"),
    rule(r"(?i)\banew\b", "`again`, or `re` before the verb"),
    rule(r"(?i)(?<!lag )(?<!lags )(?<!lagging )(?<!fall )(?<!falls )(?<!fell )(?<!left )\bbehind\b(?! NAT)", "`after`"),
    rule(
        rf"(?i){''.join(f'(?<!{one} )' for one in PEOPLE)}\b(who|whom|whose)\b(?![^.]*\?)",
        "`that`, or the thing itself",
    ),
    rule(r"(?i)\bwhat\s+(is|was|are|were)\b(?![^.]*\?)", "the noun that is meant"),
    rule(r"(?:\A|[.:!?]\s+|^\s*[-*|]\s+)Of\b", "begin the sentence with its subject"),
)

# A docstring begins with a noun phrase or a verb in the imperative; these words begin neither.
NO_START: Final = re.compile(
    r"(He|She|It|They|We|You|I|Its|Our|Who|Whom|Whoever|Whose)\b"
    r"|(Of|As|At|By|For|From|In|On|To|Up|With|Without|Until|Also|And|But|Or|So|Then|Not|Such|When|If|Because)\b"
    r"|(Here|There|Now|Again|Is|Are|Was|Were|Does|Has|Had|May|Can|Must|Should|Will|Would)\b"
    r"|[A-Z][a-z]+s (a|an|the|all|its|each|every|this|no)\b"  # Writes the ...: Write the ...
    r"|[^.:]*\?"
)
START: Final = Rule(NO_START, "a docstring begins with a noun phrase or an imperative verb")


@dataclass(frozen=True, slots=True)
class Text:
    line: int
    text: str
    is_docstring: bool = False

    def findings(self) -> Iterator[tuple[int, str]]:
        """Line and message of each breach of a rule."""
        plain = re.sub(r"`+[^`]*`+", lambda code: re.sub(r"\S", "`", code[0]), self.text)
        for one in RULES:
            for match in one.pattern.finditer(plain):
                line = self.line + plain.count("\n", 0, match.end())
                yield line, f"{' '.join(match[0].split())!r}: {one.advice}"
        if self.is_docstring and (match := START.pattern.match(plain)):
            yield self.line, f"{match[0]!r}: {START.advice}"


def python_texts(source: str) -> Iterator[Text]:
    """The docstrings, prose strings and comments of a module."""
    tree = ast.parse(source)
    documented = (node for node in ast.walk(tree) if isinstance(node, DOCUMENTED) and ast.get_docstring(node))
    yield from strings(tree, {id(node.body[0].value) for node in documented})
    yield from comments(source)


def strings(node: ast.AST, docstrings: set[int]) -> Iterator[Text]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if id(node) in docstrings or len(node.value.split()) > 1:
            yield Text(node.lineno, node.value, id(node) in docstrings)
    elif isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        yield from strings(ast.copy_location(ast.Constant("".join(map(str, parts))), node), docstrings)
    else:
        for child in ast.iter_child_nodes(node):
            yield from strings(child, docstrings)


def comments(source: str) -> Iterator[Text]:
    """Comments; those on lines that follow each other are one text."""
    first, lines = 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != first + len(lines):
            yield Text(first, "\n".join(lines))
            first, lines = token.start[0], []
        lines.append(token.string.lstrip("# "))
    yield Text(first, "\n".join(lines))


def code_texts(source: str) -> Iterator[Text]:
    """The comments of a language that has those of C++."""
    for match in re.finditer(r"(?:^\s*//[^\n]*\n?)+|//[^\n]*|/\*.*?\*/", source, re.DOTALL | re.MULTILINE):
        line = source.count("\n", 0, match.start()) + 1
        yield Text(line, re.sub(r"^\s*(//|/?\*+)\s?", "", match[0], flags=re.MULTILINE))


def texts(path: Path) -> Iterator[Text]:
    if path.suffix == ".py" and path.name not in LEFT_OUT:
        yield from python_texts(path.read_text())
    if path.suffix in CODE:
        yield from code_texts(path.read_text())
    if (path.suffix or path.name) in DOCUMENTS:
        yield Text(1, path.read_text())


def files(names: list[str]) -> Iterator[Path]:
    """The files of these names, and those below the folders of these names, without built ones."""
    for name in names:
        path = ROOT / name
        below = (path,) if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
        assert below, f"{name} is neither a file nor a folder with files"
        yield from (one for one in below if BUILT.isdisjoint(one.parts))


def main(names: list[str]) -> int:
    found = 0
    for path in files(names or list(CLEAN)):
        for line, message in sorted({one for text in texts(path) for one in text.findings()}):
            print(f"{path.relative_to(ROOT)}:{line}: {message}")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
