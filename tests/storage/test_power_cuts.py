"""The power goes at every step of many lives, and any part of the unsynced data is on the disk: rows 30 and 32.

At each change that a life makes, the disk is copied and cut off in several ways: without any unsynced data, and with a
random part of it (writes dropped or torn, renames done or not). A log directory is started on each copy, but for equal
disks with equal expectations; only distinct disks are counted.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Iterator

import pytest

from tests.faults.campaign import LONG, scaled
from tests.storage.power_cuts import MODES, Expectation, TopicPartition, World, check, open_directory
from tests.support.memory_filesystem import Crash, MemoryFilesystem

STATES = scaled(1300, 25_000)
"""Distinct ones of each mode."""
TORN = 1
"""Random cuts at each step, beside the one that leaves nothing unsynced."""
TWICE_EVERY = 8
"""One in so many is cut off again while it is started."""

Cut = tuple[MemoryFilesystem, dict[TopicPartition, Expectation], str]


class Campaign:
    """All cuts of the lives of one mode; `states` counts the distinct ones."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.seen: set[bytes] = set()
        self.checked: set[object] = set()
        self.cuts = self.twice = 0
        self.lives = 0

    def run(self, states: int) -> None:
        while len(self.seen) < states:
            self.lives += 1
            self.live(self.lives, states)

    def live(self, seed: int, states: int) -> None:
        filesystem = MemoryFilesystem()
        world = World(filesystem, self.mode, seed)

        def cut() -> None:
            if len(self.seen) >= states:
                raise Crash("enough")
            where = f"mode={self.mode} seed={seed} change={filesystem.changes}"
            for torn in range(TORN + 1):
                self.check(filesystem.clone(), world, f"{where} torn={torn}", strict=torn == 0)

        filesystem.before_change = cut
        with contextlib.suppress(Crash):
            world.live()

    def check(self, disk: MemoryFilesystem, world: World, where: str, *, strict: bool) -> None:
        rng = random.Random(where)
        self.cuts += 1
        disk.crash(None if strict else rng)
        expected = world.expectations()
        fingerprint = disk.fingerprint()
        state = (
            fingerprint,
            tuple((key, each.must_exist, each.least, each.log_starts) for key, each in expected.items()),
        )
        if state in self.checked:
            return
        self.checked.add(state)
        self.seen.add(fingerprint)
        try:
            if len(self.checked) % TWICE_EVERY == 0:
                self.cut_again(disk, world, rng)
            check(disk, world, expected)
        except BaseException as error:
            error.add_note(where)
            raise

    def cut_again(self, disk: MemoryFilesystem, world: World, rng: random.Random) -> None:
        self.twice += 1
        disk.crash_after(rng.randint(0, 40))
        with contextlib.suppress(Crash):
            open_directory(disk, world.clock, world.log_config)
        disk.crash(rng)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Silence the log: thousands of starts after a power cut log much."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("mode", MODES)
def test_rows_30_32_a_power_cut_takes_no_more_than_the_mode_allows(mode: str) -> None:
    campaign = Campaign(mode)
    try:
        campaign.run(STATES)
    finally:
        print(
            f"power cuts, {mode}: {len(campaign.seen)} distinct states of {campaign.cuts} cuts in {campaign.lives} "
            f"lives (seeds 1-{campaign.lives}), {campaign.twice} of them cut again while starting, long={LONG}"
        )
    assert len(campaign.seen) >= STATES


def test_what_is_served_after_a_cut_in_the_fsync_mode_survives_the_next() -> None:
    """The unacknowledged tail is on the disk by chance, and is served: so it must stay."""
    filesystem = MemoryFilesystem()
    world = World(filesystem, "fsync", 1)
    world.live()
    filesystem.crash(random.Random(1))
    log_dir = open_directory(filesystem, world.clock, world.log_config)
    ends = {key: log.log_end_offset for key, log in log_dir.logs.items()}
    filesystem.crash()
    again = open_directory(filesystem, world.clock, world.log_config)
    assert {key: log.log_end_offset for key, log in again.logs.items()} == ends
