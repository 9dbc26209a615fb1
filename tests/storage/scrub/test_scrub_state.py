"""The file `klamm.scrub`."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.storage import paths
from klamm.storage.filesystem import make_durable_directory
from klamm.storage.log.results import DamagedRange
from klamm.storage.paths import TopicPartition
from klamm.storage.scrub.scrub_state import KnownDamage, ScrubState, forget_damage, load, save
from tests.support.memory_filesystem import MemoryFilesystem

DATA = Path("/data")
ONE = DamagedRange(100, 5, 9, 101, 103, "wrong CRC")
TWO = DamagedRange(200, 0, 70, 200, 201, "no whole batch")
DAMAGE = [KnownDamage(TopicPartition("t", 3), "id", (ONE, TWO)), KnownDamage(TopicPartition("u", 0), "", (ONE,))]
STATE = ScrubState(12, None, ("t", 3, 100), DAMAGE)


def filesystem_with(content: bytes | None) -> MemoryFilesystem:
    filesystem = MemoryFilesystem()
    make_durable_directory(filesystem, DATA)
    if content is not None:
        filesystem.open_file(DATA / paths.SCRUB, create=True).write_at(content, 0)
    return filesystem


def test_what_is_written_is_read() -> None:
    filesystem = filesystem_with(None)
    assert load(filesystem, DATA) == ScrubState()
    save(filesystem, DATA, STATE)
    filesystem.crash()
    assert load(filesystem, DATA) == STATE


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\0",
        b"7",
        b"[]",
        b"{}",
        b'{"version": 2}',
        STATE.format()[:-20],
        STATE.format().replace(b'"segment": 100', b'"segment": "x"'),
        STATE.format().replace(b'"position"', b'"nothing"'),
    ],
)
def test_garbage_means_a_new_beginning(content: bytes) -> None:
    assert load(filesystem_with(content), DATA) == ScrubState()


def test_a_repaired_partition_is_forgotten() -> None:
    filesystem = filesystem_with(STATE.format())
    forget_damage(filesystem, DATA, TopicPartition("t", 3))
    assert load(filesystem, DATA).damage == STATE.damage[1:]
