"""Repair of a damaged log: the parts it cuts, the parts it keeps, and that a crash on the way loses nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.protocol.records.batch import read_header
from klamm.storage import checkpoints, paths
from klamm.storage.filesystem import OsFilesystem
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log.results import DamagedRange
from klamm.storage.log_dir import LogDir
from klamm.storage.log_loading import load_logs
from klamm.storage.paths import TopicPartition
from klamm.storage.recovery.damage import find_damage
from klamm.storage.scrub.scrub_state import KnownDamage, ScrubState, load, save
from klamm.storage.tools.repair import Mode, Repair, RepairError
from tests.storage.batches import all_offsets, batch
from tests.support.log_dirs import create_log
from tests.support.manual_clock import START_MS, ManualClock
from tests.support.memory_filesystem import Crash, MemoryFilesystem

DATA = Path("/data")
T0 = TopicPartition("t", 0)
BATCHES = 40
CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=200)


def written(filesystem: MemoryFilesystem, *, clean: bool = True) -> list[int]:
    """A log of one-record batches in several segments, closed; the base offsets of its segments."""
    data = opened(filesystem)
    log = create_log(data, "t", 0, bytes(16), CONFIG)
    for number in range(BATCHES):
        made = batch(START_MS + number, producer_id=7, epoch=0, sequence=number, value=b"%03d" % number)
        log.append_as_leader(made, leader_epoch=number // 25)
    log.high_watermark = BATCHES
    bases = [segment.base_offset for segment in log.local.segments.all]
    data.checkpoint()
    data.close(clean=clean)
    return bases


def opened(filesystem: MemoryFilesystem) -> LogDir:
    data = LogDir.open(DATA, node_id=1, filesystem=filesystem, clock=ManualClock())
    load_logs(data, lambda _: CONFIG)
    return data


def path_of(base_offset: int) -> Path:
    return paths.offset_file(DATA / "t-0", base_offset, ".log")


def flip(filesystem: MemoryFilesystem, offset: int, at: int = 70) -> int:
    """Damage a byte of the batch with that offset; the position of the batch."""
    base = max(known for known in bases_of(filesystem) if known <= offset)
    content = filesystem.read_bytes(path_of(base))
    position = 0
    while read_header(content, position).base_offset < offset:
        position += read_header(content, position).size_bytes
    filesystem.open_file(path_of(base)).write_at(bytes([content[position + at] ^ 0x41]), position + at)
    filesystem.open_file(path_of(base)).sync()
    return position


def bases_of(filesystem: MemoryFilesystem) -> list[int]:
    found = (paths.parse_offset_file(entry.name) for entry in filesystem.list_directory(DATA / "t-0"))
    return sorted(parsed[0] for parsed in found if parsed is not None and parsed[1] == ".log")


def repair(filesystem: MemoryFilesystem, mode: Mode) -> tuple[bool, list[str]]:
    said: list[str] = []
    changed = Repair(DATA, T0, mode, filesystem=filesystem, clock=ManualClock(), say=said.append).run()
    return changed, said


def kept(filesystem: MemoryFilesystem) -> dict[str, bytes]:
    directory = Path("/data.cut")
    return {
        entry.name: filesystem.read_bytes(directory / each.name / entry.name)
        for each in filesystem.list_directory(directory)
        for entry in filesystem.list_directory(directory / each.name)
    }


def test_nothing_damaged_nothing_changed() -> None:
    filesystem = MemoryFilesystem()
    written(filesystem)
    changes = filesystem.changes
    changed, said = repair(filesystem, Mode.SKIP)
    assert not changed and "nothing is damaged" in said[-1] and f"batches={BATCHES}" in said[0]
    assert filesystem.changes == changes


@pytest.mark.parametrize("at", [8, 16, 30, 70], ids=["length", "magic", "timestamp", "records"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_skip_loses_only_the_damaged_batches(at: int, clean: bool) -> None:
    filesystem = MemoryFilesystem()
    bases = written(filesystem, clean=clean)
    for offset in (17, 4, 3):
        flip(filesystem, offset, at)
    before = {base: filesystem.read_bytes(path_of(base)) for base in bases}
    changed, said = repair(filesystem, Mode.SKIP)
    assert changed
    text = "\n".join(said)
    assert "offsets=[3, 5)" in text or ("offsets=[3, 4)" in text and "offsets=[4, 5)" in text), text
    assert "offsets=[17, 18)" in text and f"offsets=[0, {BATCHES})" in said[-1]
    copies = kept(filesystem)
    assert sum(map(len, copies.values())) == sum(map(len, before.values())) - sum(
        len(filesystem.read_bytes(path_of(base))) for base in bases
    )
    for name, content in copies.items():
        base, position = int(name[:20]), int(name.rpartition("-")[2])
        assert before[base][position : position + len(content)] == content
    good = [offset for offset in range(BATCHES) if offset not in (3, 4, 17)]
    data = opened(filesystem)
    log = data.logs[T0]
    assert all_offsets(log) == good
    assert list(log.leader_epochs) == [(0, 0), (1, 25)]
    again = batch(START_MS, producer_id=7, epoch=0, sequence=BATCHES - 1)
    assert log.append_as_leader(again, leader_epoch=1).duplicate
    log.append_as_leader(batch(START_MS, producer_id=7, epoch=0, sequence=BATCHES), leader_epoch=1)
    assert data.close()
    assert all_offsets(opened(filesystem).logs[T0]) == [*good, BATCHES]


def test_truncate_ends_at_the_first_damage() -> None:
    filesystem = MemoryFilesystem()
    bases = written(filesystem)
    position = flip(filesystem, 17)
    flip(filesystem, 30)
    base = max(known for known in bases if known <= 17)
    before = {known: filesystem.read_bytes(path_of(known)) for known in bases if known >= base}
    changed, said = repair(filesystem, Mode.TRUNCATE)
    assert changed and "offsets=[0, 17)" in said[-1]
    expected = {f"{known:020d}.log.from-{position if known == base else 0}": known for known in before}
    copies = kept(filesystem)
    assert copies.keys() == expected.keys()
    for name, known in expected.items():
        assert copies[name] == before[known][position if known == base else 0 :]
    for name in (paths.RECOVERY_POINT_CHECKPOINT, paths.HIGH_WATERMARK_CHECKPOINT):
        assert checkpoints.read_offsets(filesystem, DATA / name)[T0] == 17
    data = opened(filesystem)
    log = data.logs[T0]
    assert all_offsets(log) == list(range(17)) and log.log_end_offset == 17
    assert list(log.leader_epochs) == [(0, 0)]
    log.append_as_leader(batch(START_MS, producer_id=7, epoch=0, sequence=17), leader_epoch=1)
    assert data.close()


def test_a_segment_without_a_good_batch_goes_whole() -> None:
    filesystem = MemoryFilesystem()
    bases = written(filesystem)
    victim, following = bases[1], bases[2]
    filesystem.open_file(path_of(victim)).write_at(bytes(filesystem.open_file(path_of(victim)).size()), 0)
    repair(filesystem, Mode.SKIP)
    assert victim not in bases_of(filesystem)
    offsets = [offset for offset in range(BATCHES) if not victim <= offset < following]
    assert all_offsets(opened(filesystem).logs[T0]) == offsets


@pytest.mark.parametrize("mode", Mode)
def test_a_missing_tail_lowers_what_was_known(mode: Mode) -> None:
    filesystem = MemoryFilesystem()
    bases = written(filesystem)
    for base in bases[-2:]:
        filesystem.unlink(path_of(base))
    assert "data is missing" in opened(filesystem).offline[T0].reason
    filesystem.kill()
    changed, said = repair(filesystem, mode)
    assert changed and any(f"lowered from {BATCHES} to {bases[-2]}" in line for line in said)
    assert all_offsets(opened(filesystem).logs[T0]) == list(range(bases[-2]))


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_a_log_missing_in_the_middle_is_never_passed_over(mode: Mode, clean: bool) -> None:
    filesystem = MemoryFilesystem()
    bases = written(filesystem, clean=clean)
    filesystem.unlink(path_of(bases[2]))
    offline = opened(filesystem).offline[T0]
    assert f"segment {bases[2]} has lost its log" in offline.reason
    filesystem.kill()
    changed, said = repair(filesystem, mode)
    assert changed and any(f"offsets=[{bases[2]}, {bases[3]})" in line for line in said)
    kept_offsets = list(range(bases[2])) + (list(range(bases[3], BATCHES)) if mode is Mode.SKIP else [])
    assert all_offsets(opened(filesystem).logs[T0]) == kept_offsets
    filesystem.kill()
    assert not repair(filesystem, mode)[0]


@pytest.mark.parametrize("mode", Mode)
def test_an_index_at_an_offset_of_another_segment_is_no_damage(mode: Mode) -> None:
    filesystem = MemoryFilesystem()
    bases = written(filesystem)
    for inside in range(bases[1] + 1, bases[2]):
        filesystem.open_file(path_of(inside).with_suffix(".index"), create=True)
    assert not repair(filesystem, mode)[0]
    assert all_offsets(opened(filesystem).logs[T0]) == list(range(BATCHES))


def test_what_the_scrubber_knew_is_forgotten() -> None:
    filesystem = MemoryFilesystem()
    written(filesystem)
    flip(filesystem, 17)
    other = KnownDamage(TopicPartition("u", 0), "", (DamagedRange(0, 0, 9, 0, 1, "wrong CRC"),))
    mine = KnownDamage(T0, "", (DamagedRange(12, 80, 160, 17, 18, "wrong CRC"),))
    save(filesystem, DATA, ScrubState(5, None, ("t", 0, 12), [mine, other]))
    repair(filesystem, Mode.SKIP)
    assert load(filesystem, DATA) == ScrubState(5, None, ("t", 0, 12), [other])


def test_a_partition_without_segments_is_refused() -> None:
    filesystem = MemoryFilesystem()
    for base in written(filesystem):
        filesystem.unlink(path_of(base))
    with pytest.raises(RepairError, match="no segment"):
        repair(filesystem, Mode.TRUNCATE)


@pytest.mark.parametrize("mode", Mode)
def test_a_power_cut_at_any_step_leaves_what_can_be_repaired(mode: Mode) -> None:
    seed = 20261121
    print(f"seed {seed}")
    for step in range(1, 400):
        filesystem = MemoryFilesystem()
        written(filesystem)
        for offset in (17, 9):
            flip(filesystem, offset)
        filesystem.crash_after(step)
        try:
            repair(filesystem, mode)
        except Crash:
            filesystem.heal()
            filesystem.crash(random.Random(seed + step))
        else:
            filesystem.heal()
            break
        data = opened(filesystem)
        if T0 in data.logs:
            assert set(all_offsets(data.logs[T0])) >= set(range(9)), step
        data.leave()
        filesystem.kill()
        repair(filesystem, mode)
        left = all_offsets(opened(filesystem).logs[T0])
        assert left == [offset for offset in range(BATCHES if mode is Mode.SKIP else 9) if offset not in (9, 17)], step
    else:
        raise AssertionError("it never came to an end")
    assert step > 20


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damage_is_where_it_was_done(data: st.DataObject) -> None:
    filesystem = MemoryFilesystem()
    bases = written(filesystem)
    base = bases[0]
    content = filesystem.read_bytes(path_of(base))
    count = bases[1]
    positions = [0]
    for _ in range(count):
        positions.append(positions[-1] + read_header(content, positions[-1]).size_bytes)
    bad = sorted(data.draw(st.sets(st.integers(0, count - 1), max_size=4)))
    file = filesystem.open_file(path_of(base))
    for number in bad:
        size = data.draw(st.integers(1, 40))  # the leader epoch, before 16, is not covered by the CRC
        at = positions[number] + data.draw(st.integers(16, positions[number + 1] - positions[number] - size - 1))
        file.write_at(bytes(byte ^ 0x5A for byte in filesystem.read_bytes(path_of(base))[at : at + size]), at)
    found = list(find_damage(file, base, len(content), end_offset=count))
    lost = {offset for damage in found for offset in range(damage.first_offset, damage.next_offset)}
    assert lost == set(bad)
    assert all(positions.index(damage.position) == damage.first_offset for damage in found)


def test_a_base_offset_that_jumps_is_damage() -> None:
    filesystem = MemoryFilesystem()
    bases = written(filesystem)
    flip(filesystem, 3, 2)
    (damage,) = find_damage(
        filesystem.open_file(path_of(0)), 0, filesystem.open_file(path_of(0)).size(), end_offset=bases[1]
    )
    assert (damage.first_offset, damage.next_offset) == (3, 4)


def test_on_a_real_disk(tmp_path: Path) -> None:
    data = LogDir.open(tmp_path / "data", node_id=1)
    load_logs(data, lambda _: CONFIG)
    log = create_log(data, "t", 0, bytes(16), CONFIG)
    for number in range(BATCHES):
        log.append_as_leader(batch(START_MS + number), leader_epoch=0)
    assert data.close()
    first = tmp_path / "data" / "t-0" / f"{0:020d}.log"
    content = bytearray(first.read_bytes())
    content[75] ^= 1
    first.write_bytes(content)
    said: list[str] = []
    assert Repair(
        tmp_path / "data", T0, Mode.SKIP, filesystem=OsFilesystem(), clock=ManualClock(), say=said.append
    ).run()
    again = LogDir.open(tmp_path / "data", node_id=1)
    assert again.was_clean
    load_logs(again, lambda _: CONFIG)
    assert all_offsets(again.logs[T0]) == list(range(1, BATCHES))
    again.close()
