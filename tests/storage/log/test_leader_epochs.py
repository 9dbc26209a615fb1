from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.storage.log.leader_epochs import LeaderEpochCache
from tests.support.jars import run_java
from tests.support.memory_filesystem import MemoryFilesystem


def cache(*entries: tuple[int, int]) -> LeaderEpochCache:
    epochs = LeaderEpochCache(MemoryFilesystem(), Path("/"))
    for entry in entries:
        epochs.assign(*entry)
    return epochs


def test_file_format() -> None:
    epochs = cache((0, 0), (5, 1200))
    epochs.write()
    assert epochs.content() == b"0\n2\n0 0\n5 1200\n"
    again = LeaderEpochCache(epochs._filesystem, Path("/"))
    assert again.load()
    assert (list(again), again.latest) == ([(0, 0), (5, 1200)], 5)


def test_end_offsets() -> None:
    epochs = cache((2, 10), (4, 20), (7, 30))
    found = {epoch: epochs.end_offset_for(epoch, 50) for epoch in (-1, 0, 2, 3, 4, 5, 7, 8)}
    assert found == {
        -1: (-1, -1),
        0: (0, 10),  # before all known epochs: it ended where the first of them begins
        2: (2, 20),
        3: (2, 20),
        4: (4, 30),
        5: (4, 30),
        7: (7, 50),
        8: (-1, -1),
    }


def test_old_epochs_are_ignored_and_empty_ones_replaced() -> None:
    epochs = cache((2, 10), (1, 11), (2, 12), (-1, 13), (3, 10))
    assert list(epochs) == [(3, 10)]


def test_an_epoch_that_contradicts_later_ones_takes_their_place() -> None:
    assert list(cache((2, 10), (4, 20), (7, 30), (4, 25))) == [(2, 10), (4, 25)]
    assert list(cache((2, 10), (4, 20), (4, 15), (4, 18))) == [(2, 10), (4, 15)]
    assert list(cache((2, 10), (4, 20), (5, 3))) == [(5, 3)]


@pytest.mark.java
def test_apache_kafka_gives_the_same_answers() -> None:
    """The same questions, and the entries after each change, in 400 random lives."""
    rng = random.Random(1)
    script: list[str] = []
    ours: list[str] = []
    for _ in range(400):
        epochs = cache()
        script.append("new")
        ours.append("")
        for _ in range(rng.randrange(1, 12)):
            command = rng.choice(["assign", "assign", "assign", "truncate_from_end", "truncate_from_start"])
            numbers = [rng.randrange(8), rng.randrange(40)] if command == "assign" else [rng.randrange(45)]
            getattr(epochs, command)(*numbers)
            script.append(f"{command} {' '.join(map(str, numbers))}")
            ours.append(" ".join(f"{epoch} {offset}" for epoch, offset in epochs))
        for asked in range(-1, 9):
            script.append(f"end_offset_for {asked} 50")
            found = epochs.end_offset_for(asked, 50)
            ours.append(f"{found.leader_epoch} {found.end_offset}")
        for offset in range(0, 50, 3):
            script.append(f"epoch_of {offset}")
            ours.append(str(epochs.epoch_of(offset)))
    oracle = Path(__file__).parent / "EpochsOracle.java"
    theirs = run_java("broker", oracle, input_text="\n".join(script) + "\n").split("\n")
    assert list(zip(script, ours, strict=True)) == list(zip(script, theirs[: len(script)], strict=True))


def test_truncation() -> None:
    epochs = cache((2, 10), (4, 20), (7, 30))
    epochs.truncate_from_start(20)
    assert list(epochs) == [(4, 20), (7, 30)]
    epochs.truncate_from_start(25)
    assert list(epochs) == [(4, 25), (7, 30)]
    epochs.truncate_from_end(30)
    assert (list(epochs), epochs.latest) == ([(4, 25)], 4)
    epochs.truncate_from_end(25)
    assert (list(epochs), epochs.latest) == ([], -1)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.data())
def test_against_the_epoch_of_every_offset(steps: list[int], data: st.DataObject) -> None:
    """A model that knows the epoch of each record."""
    model: list[int] = []
    epochs = cache()
    epoch = 0
    for step in steps:
        epoch += step
        epochs.assign(epoch, len(model))
        model.append(epoch)
    end = data.draw(st.integers(1, len(model)))
    start = data.draw(st.integers(0, end - 1))
    epochs.truncate_from_end(end)
    epochs.truncate_from_start(start)
    model = model[:end]
    assert [epochs.epoch_of(offset) for offset in range(start, end)] == model[start:]
    assert epochs.latest == model[-1]
    for asked in range(model[start], model[-1] + 1):
        known = max(value for value in model[start:] if value <= asked)
        ends = max(offset for offset in range(start, end) if model[offset] <= asked) + 1
        assert epochs.end_offset_for(asked, end) == (known, ends)
