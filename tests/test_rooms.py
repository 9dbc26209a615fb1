"""The rooms of the house: docs/architecture.md names each, no modules import each other in a circle, and nothing grows
beyond what one can take in.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("broker", "cli", "client", "config", "pipeline", "protocol", "storage")

MOST_LINES, MOST_LONG_FILES = 400, 3
MOST_METHODS = 30
MOST_FILES = 25
MANY_FILES = {"protocol/messages/", "broker/apis/"}  # one file for each API

Graph = dict[str, set[str]]

# Imports within folders that are being taken apart.
ALLOWED = {("storage.log.log", "storage.recovery.loader")}


@cache
def modules() -> dict[str, Path]:
    """The path of each module, by its name below `klamm`; a package has that of its folder."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def rooms() -> set[str]:
    return {f"{path.parent.relative_to(ROOT)}/" for path in modules().values()}


def test_the_table_of_rooms_names_each_folder() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    section = text.split("## The rooms of the house", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| `([^`]+/)` \| (.+?) \|.*\|$", section, re.MULTILINE)
    named = [folder for folder, _ in rows]
    assert len(named) == len(set(named))
    assert set(named) == rooms() | {"tests/"}
    assert all(holds.strip() for _, holds in rows)


def imported(tree: ast.AST) -> Iterator[str]:
    """The names that a module imports when it runs: also in its functions, not for types alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole.removeprefix("klamm.") in modules() else node.module
        else:
            yield from imported(node)


def imports() -> Graph:
    graph = {}
    for module, path in modules().items():
        names = {name.removeprefix("klamm.") for name in imported(ast.parse(path.read_text()))}
        graph[module] = {name for name in names & modules().keys() if (module, name) not in ALLOWED}
    return graph


def circle(graph: Graph) -> list[str]:
    """Modules that import each other, each the one before it; none when there is no circle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_circle_between_modules_at_run_time() -> None:
    assert not circle(imports())


def test_a_circle_is_found() -> None:
    code = "if TYPE_CHECKING:\n    import klamm.cli.b\nelse:\n    pass\ndef f():\n    from klamm.storage import paths\n"
    assert list(imported(ast.parse(code))) == ["klamm.storage.paths"]
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}
    assert not circle({"a": {"b", "c"}, "b": {"c"}, "c": set()})


def test_few_files_are_long_and_these_say_why() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in modules().values()}
    long = {name for name, text in texts.items() if len(text.splitlines()) > MOST_LINES}
    assert len(long) <= MOST_LONG_FILES, sorted(long)
    silent = {name for name in long if "One file" not in (ast.get_docstring(ast.parse(texts[name])) or "")}
    assert not silent, "their heads say why this is `One file`"


def test_no_class_has_too_many_methods() -> None:
    counts = {
        f"{module}.{node.name}": sum(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in node.body)
        for module, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    assert not {name: count for name, count in counts.items() if count > MOST_METHODS}


def test_no_room_has_too_many_files() -> None:
    counts = Counter(f"{path.parent.relative_to(ROOT)}/" for path in modules().values() if path.stem != "__init__")
    assert not {room: count for room, count in counts.items() if count > MOST_FILES and room not in MANY_FILES}
