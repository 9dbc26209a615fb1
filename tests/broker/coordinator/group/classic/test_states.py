"""The table of states, and its picture in the docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.broker.coordinator.group.classic.classic_group import ClassicGroup
from klamm.broker.coordinator.group.classic.states import MEANINGS, TABLE, TRANSITIONS, State, render

DOCS = Path(__file__).parents[5] / "docs" / "groups.md"


def test_docs_show_the_table_that_the_code_goes_by() -> None:
    assert DOCS.read_text() == render(), "run: python -m klamm.broker.coordinator.group.classic.states > docs/groups.md"


def test_every_state_is_explained_and_can_be_reached() -> None:
    assert set(MEANINGS) == set(State)
    assert {step.target for step in TRANSITIONS} == set(State)
    assert not any(step.source is State.DEAD for step in TRANSITIONS)


@pytest.mark.parametrize("source", State)
@pytest.mark.parametrize("target", State)
def test_a_step_that_is_not_in_the_table_is_refused(source: State, target: State) -> None:
    group = ClassicGroup("g", source)
    if TABLE.permits(source, target):
        group.go_to(target, 5)
        assert (group.state, group.previous_state, group.state_timestamp_ms) == (target, source, 5)
    else:
        with pytest.raises(AssertionError):
            group.go_to(target, 5)
