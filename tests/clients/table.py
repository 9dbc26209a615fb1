"""The table of docs/clients.md, made from the reports of the matrix' tests and from nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from tests.clients import matrix
from tests.clients.driver import CLIENTS
from tests.clients.transacting import transacts

COLUMNS: Final[dict[str, Callable[[matrix.Bench], str]]] = {
    "produces": matrix.produces,
    "reads others": matrix.reads,
    "is read by others": matrix.is_read,
    "shares a group": matrix.shares,
    "shares a KIP-848 group": matrix.shares_new,
    "goes on from its commit": matrix.goes_on,
    "finds a time": matrix.finds_times,
    "transactions": transacts,
}
"""The scenario of each column."""

HEAD: Final = """# Clients

<!-- Written by `make clients` from the scenarios that passed in its run. -->

Stock clients tested with this version of Klamm. Each column is a scenario in `tests/clients/matrix.py`, the same for
all clients. A cell names the codecs that passed; *n/a* has its reason below. In *transactions*
(`tests/clients/transacting.py`) a client commits and aborts transactions, some with positions of its group. Readers of
both isolation levels read its records, and a second producer with its transactional id fences it.
"""

Cells = Mapping[str, Mapping[str, str]]
"""By client: its columns, and its `version`."""


def cells(properties: Iterable[tuple[Mapping[str, object], bool]]) -> dict[str, dict[str, str]]:
    """Return the cells by the properties of each test and whether it has passed."""
    found: dict[str, dict[str, str]] = {}
    for facts, passed in properties:
        row = found.setdefault(str(facts["client"]), {})
        row[str(facts["column"])] = str(facts["cell"]) if passed else "**failed**"
        if "version" in facts:
            row["version"] = str(facts["version"]).removeprefix("v")
    return found


def table(found: Cells) -> str:
    """One row for each client that was run, in the order of CLIENTS; reasons are notes below it."""
    notes: list[str] = []
    lines = [_line(["client", "version", *COLUMNS]), _line(["---"] * (2 + len(COLUMNS)))]
    for name in CLIENTS:
        if name in found:
            row = found[name]
            version = row.get("version", "")
            cells = [_noted(row.get(column, ""), notes) for column in COLUMNS]
            lines.append(_line([name.removesuffix(f"-{version}"), version, *cells]))
    reasons = [f"{number}. {note}" for number, note in enumerate(notes, 1)]
    return "\n".join([*lines, *([""] if reasons else []), *reasons]) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _noted(cell: str, notes: list[str]) -> str:
    passed, found, reason = cell.partition("n/a: ")
    if not found:
        return cell
    if reason not in notes:
        notes.append(reason)
    return f"{passed}n/a ({notes.index(reason) + 1})"
