"""Checks of a compacted segment before it takes the place of others, and the end of one that fails them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from klamm.protocol.errors import CorruptMessage, KafkaStorageError
from klamm.storage import paths
from klamm.storage.compaction.cleanable import cleanable
from klamm.storage.compaction.cleaner import Cleaner
from klamm.storage.filesystem import replace_file
from klamm.storage.log.cleaned_segment import Cleaned, check
from klamm.storage.log.swap_manifest import SwapManifest
from klamm.storage.recovery.loader import LogDamaged
from tests.storage.batches import DIRECTORY, open_log
from tests.storage.compaction.test_cleaner import CONFIG, append, contents, job_of
from tests.storage.log.test_swap_manifest import cleaned_log, names_of, reopen
from tests.support.manual_clock import START_MS
from tests.support.memory_filesystem import MemoryFile, MemoryFilesystem


def cleaned_file(filesystem: MemoryFilesystem, group: Cleaned) -> MemoryFile:
    return filesystem.open_file(paths.offset_file(DIRECTORY, group.base_offset, ".log.cleaned"))


def compacted() -> tuple[MemoryFilesystem, Cleaned]:
    """A segment of two batches."""
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=CONFIG)
    for key in (b"a", b"b", b"a"):
        append(log, (key, b"x"), (key + b"2", b"x"))
    log.roll()
    log.local.flush()
    found = cleanable(log, 0, START_MS)
    assert found is not None
    (group,) = Cleaner(job_of(log, found, START_MS), filesystem).run().groups
    return filesystem, group


def test_a_good_one() -> None:
    filesystem, group = compacted()
    assert (group.record_count, group.end_offset) == (4, 6)
    check(cleaned_file(filesystem, group), group)


@pytest.mark.parametrize("why", ["bytes instead of", "wrong CRC", "no whole batch", "records instead of", "it ends at"])
def test_what_is_wrong_is_found(why: str) -> None:
    filesystem, group = compacted()
    file = cleaned_file(filesystem, group)
    if why == "bytes instead of":
        file.truncate(group.size_bytes - 1)
    elif why == "wrong CRC":
        file.write_at(b"\xff", group.size_bytes - 1)
    elif why == "no whole batch":  # another has written at the beginning of the file
        file.write_at(bytes(80), 0)
    elif why == "records instead of":
        group = replace(group, record_count=5)
    else:
        group = replace(group, end_offset=5)
    with pytest.raises(CorruptMessage, match=why):
        check(file, group)


def test_offsets_that_do_not_ascend_are_found() -> None:
    filesystem, group = compacted()
    file = cleaned_file(filesystem, group)
    content = file.read_at(group.size_bytes, 0)
    file.write_at(content, group.size_bytes)
    with pytest.raises(CorruptMessage, match="where 6 or more is due"):
        check(file, replace(group, size_bytes=2 * group.size_bytes, record_count=8))


def test_two_never_write_into_one_file() -> None:
    log, filesystem, group = cleaned_log()
    before = cleaned_file(filesystem, group).read_at(1 << 20, 0)
    found = cleanable(log, 0, START_MS)
    assert found is not None
    with pytest.raises(FileExistsError):
        Cleaner(job_of(log, found, START_MS), filesystem).run()
    assert cleaned_file(filesystem, group).read_at(1 << 20, 0) == before


def test_a_file_that_has_changed_since_it_was_checked_is_not_swapped_in() -> None:
    log, filesystem, group = cleaned_log()
    cleaned_file(filesystem, group).truncate(group.size_bytes + 1)
    assert log.local.begin_swap(group)
    with pytest.raises(KafkaStorageError, match="bytes instead of"):
        log.local.swap_files(group)
    assert log.local.offline_reason is None
    assert [record.offset for record in contents(log)] == list(range(30))
    assert contents(reopen(filesystem)) == contents(log)


def test_what_was_made_of_a_log_before_it_was_cut_is_not_swapped_in() -> None:
    """The log's segments may have the same names and sizes again."""
    log, _, group = cleaned_log()
    log.local.configure(CONFIG)
    log.truncate_to(0)
    for _ in range(30):
        append(log, (b"a", b"y"))
    log.roll()
    log.local.flush()
    assert set(group.sources) <= {segment.base_offset for segment in log.local.segments.all[:-1]}
    assert not log.local.begin_swap(group)


@pytest.mark.parametrize("mark", [".cleaned", ".swap", ""])
def test_a_start_does_not_finish_with_a_segment_that_is_not_the_one_of_the_manifest(mark: str) -> None:
    _, filesystem, group = cleaned_log()
    swap = SwapManifest(group.base_offset, group.sources, size_bytes=group.size_bytes, record_count=group.record_count)
    assert SwapManifest.parse(swap.format()) == swap
    replace_file(filesystem, DIRECTORY / paths.COMPACTION_MANIFEST, swap.format())
    cleaned_file(filesystem, group).write_at(bytes(80), 0)
    old, new = (paths.offset_file(DIRECTORY, group.base_offset, ".log" + end) for end in (".cleaned", mark))
    if mark != ".cleaned":
        filesystem.rename(old, new)
    before = names_of(filesystem)
    with pytest.raises(LogDamaged, match=r"is not what klamm.compaction says"):
        open_log(filesystem, config=CONFIG, recovery_point=30)
    assert names_of(filesystem) == before
