"""A flush in its thread, and an append between any two of its steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from klamm.storage import paths
from klamm.storage.log.durability import Durability
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from tests.storage.batches import DIRECTORY, fill, open_log
from tests.support.manual_clock import ManualClock
from tests.support.memory_filesystem import MemoryFilesystem

FIELDS = ("directory_unsynced", "first_unflushed_ms")


class Interrupted(Durability):
    """Marks that run a function right after the n-th look at one of them, as another thread may at any time."""

    __slots__ = ("after_look", "looks_left", "values")

    def __getattribute__(self, name: str) -> object:
        if name not in FIELDS:
            return super().__getattribute__(name)
        value = self.values[name]
        self.looks_left -= 1
        if self.looks_left == 0:
            self.after_look()
        return value

    def __setattr__(self, name: str, value: object) -> None:
        if name in FIELDS:
            self.values[name] = value
        else:
            super().__setattr__(name, value)


def interrupt(log: Log, filesystem: MemoryFilesystem, look: int, by: Callable[[], None]) -> dict[str, object]:
    """Let `by` run after that look of the next flush; return the marks."""
    old = log.local.durability
    values = {name: getattr(old, name) for name in FIELDS}
    new = Interrupted.__new__(Interrupted)
    new.values, new.after_look, new.looks_left = values, by, 0
    Durability.__init__(new, filesystem, DIRECTORY, log.leader_epochs, old.recovery_point, old.flushed_offset, None)
    values.update({name: getattr(old, name) for name in FIELDS})
    log.local.durability = new
    new.looks_left = look
    return values


@pytest.mark.parametrize("look", range(1, 5))
@pytest.mark.parametrize("unsynced", [True, False])
def test_a_segment_that_is_begun_while_a_flush_runs_has_its_name_synced_by_this_one_or_the_next(
    look: int, unsynced: bool
) -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=LogConfig(segment_bytes=200))
    fill(log, 1)
    if not unsynced:
        log.local.flush()
        fill(log, 1)
    assert len(log.local.segments.all) == 1
    interrupt(log, filesystem, look, lambda: fill(log, 3))
    log.local.flush()
    log.local.durability.looks_left = 0  # type: ignore[attr-defined]
    log.local.flush()
    filesystem.crash()
    found = [
        name
        for name in (entry.name for entry in filesystem.list_directory(DIRECTORY))
        if name.endswith(paths.LOG_SUFFIX)
    ]
    assert len(found) == len(log.local.segments.all)


@pytest.mark.parametrize("look", range(1, 5))
@pytest.mark.parametrize("unflushed", [True, False])
def test_a_batch_that_comes_while_a_flush_runs_is_due_by_time_nevertheless(look: int, unflushed: bool) -> None:
    filesystem, clock = MemoryFilesystem(), ManualClock()
    log = open_log(filesystem, config=LogConfig(flush_ms=1000), clock=clock)
    fill(log, 1)
    if not unflushed:
        log.local.flush()
        log.local.durability.directory_unsynced = True  # there is something to do
    interrupt(log, filesystem, look, lambda: fill(log, 1))
    log.local.flush()
    log.local.durability.looks_left = 0  # type: ignore[attr-defined]
    assert log.local.unflushed_messages == 0 or log.local.flush_due(clock.wall_ms() + 1000)
