"""A table of states and permitted transitions. State machines check it, and the docs show it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=Enum)


class Transition(NamedTuple, Generic[S]):
    """One permitted transition, and its cause."""

    source: S
    target: S
    cause: str


class StateTable(Generic[S]):
    """States with meanings and transitions. `shown` gives the name of a state in the docs; by default its value."""

    def __init__(
        self,
        meanings: Mapping[S, str],
        transitions: Sequence[Transition[S]],
        shown: Callable[[S], str] = lambda state: str(state.value),
    ) -> None:
        self.meanings = meanings
        self.transitions = transitions
        self._shown = shown
        self._permitted = frozenset((step.source, step.target) for step in transitions)

    def permits(self, source: S, target: S) -> bool:
        """Return whether a machine may go from ``source`` to ``target``."""
        return (source, target) in self._permitted

    def states(self, heading: str) -> str:
        """Render the states and their meanings as a Markdown table."""
        rows = "".join(f"| {self._shown(state)} | {meaning} |\n" for state, meaning in self.meanings.items())
        return f"| {heading} |\n|---|---|\n{rows}"

    def drawing(self, first: S, last: S | None = None) -> str:
        """Render the transitions as a Mermaid diagram."""
        steps = "".join(f"    {self._shown(step.source)} --> {self._shown(step.target)}\n" for step in self.transitions)
        end = f"    {self._shown(last)} --> [*]\n" if last is not None else ""
        return f"```mermaid\nstateDiagram-v2\n    [*] --> {self._shown(first)}\n{steps}{end}```\n"

    def causes(self) -> str:
        """Render the transitions and their causes as a Markdown table."""
        rows = "".join(
            f"| {self._shown(step.source)} | {self._shown(step.target)} | {step.cause} |\n" for step in self.transitions
        )
        return f"| from | to | when |\n|---|---|---|\n{rows}"
