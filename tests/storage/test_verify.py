"""Verification: the files of a broker have no problems, and each kind of damage is one."""

from __future__ import annotations

import io
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from klamm.__main__ import main
from klamm.broker.commands.verify import Progress
from klamm.protocol.records.batch import Record, encode_batch, read_header, seal
from klamm.protocol.records.compression import Codec
from klamm.protocol.records.control import EndMarker, end_marker_batch
from klamm.storage.copying import copy_partition
from klamm.storage.filesystem import OsFilesystem
from klamm.storage.log.index import OFFSET_ENTRY, TIME_ENTRY
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log_dir import LogDir
from klamm.storage.log_loading import load_logs
from klamm.storage.paths import TopicPartition
from klamm.storage.tools.verify.run import Verified, verify
from tests.storage.batches import batch, delete_unreachable, valid
from tests.support.log_dirs import create_log
from tests.support.manual_clock import START_MS, ManualClock

CONFIG = LogConfig(segment_bytes=6000, index_interval_bytes=500)
TOPIC_ID = bytes(range(16))


def append_something(log: Log, rng: random.Random, epoch: int, number: int) -> None:
    times = [START_MS + rng.randrange(1000) for _ in range(rng.randrange(1, 4))]
    value = rng.randbytes(rng.randrange(300))
    if number % 3 == 0:
        producer_id = number % 2
        state = log.producers.get(producer_id)
        sequence = state.last_sequence + 1 if state is not None else 0
        data = encode_batch(
            [Record(index, time, b"k", value) for index, time in enumerate(times)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        guard = log.verifications.begin(producer_id, 0, sequence, begins_at_zero=False, now_ms=START_MS)
        log.append_as_leader(valid(data), leader_epoch=epoch, guard=guard)
    elif number % 7 == 5:
        for producer_id in (0, 1):
            if log.producers.open_epoch(producer_id) is not None:
                marker = EndMarker(rng.random() < 0.5, 0, START_MS)
                data = end_marker_batch(
                    producer_id, 0, is_commit=marker.is_commit, coordinator_epoch=0, timestamp=START_MS
                )
                log.append_marker(valid(data), marker, transaction_version=0, leader_epoch=epoch, now_ms=START_MS)
    else:
        log.append_as_leader(batch(*times, value=value, codec=rng.choice(list(Codec))), leader_epoch=epoch)


def fill(path: Path, seed: int) -> None:
    """Two partitions of several segments, with transactions, epochs and all codecs, closed cleanly."""
    print(f"seed={seed}")
    rng = random.Random(seed)
    log_dir = LogDir.open(path, node_id=1, clock=ManualClock(), filesystem=OsFilesystem())
    for partition in (0, 1):
        log = create_log(log_dir, "t", partition, TOPIC_ID, CONFIG)
        for number in range(100):
            append_something(log, rng, number // 40, number)
            log.set_high_watermark(log.log_end_offset)
        if partition:
            log.advance_log_start(log.log_end_offset // 2)
            log_dir.checkpoint()
            delete_unreachable(log)
    assert log_dir.close()


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verify") / "data"
    fill(path, 1)
    return path


@pytest.fixture
def data(original: Path, tmp_path: Path) -> Path:
    """A copy of the files, to be damaged."""
    return Path(shutil.copytree(original, tmp_path / "data"))


def verified(data: Path, *, deep: bool = True) -> Verified:
    return verify(OsFilesystem(), [data], deep=deep, workers=1)


def problems(data: Path) -> list[str]:
    return [str(finding) for finding in verified(data).findings if not finding.is_note]


def notes(data: Path) -> list[str]:
    result = verified(data)
    assert result.problem_count == 0, result.findings
    return [str(finding) for finding in result.findings]


def logs(data: Path, partition: int = 0) -> list[Path]:
    return sorted((data / f"t-{partition}").glob("*.log"))


@pytest.mark.parametrize("seed", range(2, 12))
def test_what_a_broker_leaves_has_no_findings(tmp_path: Path, seed: int) -> None:
    fill(tmp_path / "data", seed)
    result = verified(tmp_path / "data")
    assert result.findings == []
    assert result.partitions == 2
    assert result.segments > 4
    assert result.records > result.batches > 150
    assert len(list((tmp_path / "data").glob("*/*.txnindex"))) > 1


def test_after_a_kill_a_torn_write_is_a_note(data: Path) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    last = logs(data)[-1]
    last.write_bytes(last.read_bytes()[:-5])
    for path in (data / "t-0").glob(f"{last.stem}.*index"):
        path.unlink()
    (line, *others) = [line for line in notes(data) if last.name in line]
    assert not others
    assert line.startswith("note: ") and line.endswith("; a start cuts it")


def test_the_same_after_a_clean_stop_is_a_problem(data: Path) -> None:
    last = logs(data)[-1]
    last.write_bytes(last.read_bytes()[:-5])
    assert len([line for line in problems(data) if last.name in line]) == 1


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_every_flipped_bit_of_a_log_is_found(data: Path) -> None:
    path = logs(data)[1]
    content = path.read_bytes()
    rng = random.Random(4)
    missed = []
    for _ in range(60):
        position = rng.randrange(len(content))
        flip(path, position)
        if not problems(data):
            missed.append(position)
        path.write_bytes(content)
    assert missed == []


def test_all_damage_of_a_segment_is_reported_with_its_offsets(data: Path) -> None:
    path = logs(data)[1]
    size = path.stat().st_size
    flip(path, size // 4)
    flip(path, size * 3 // 4)
    found = [line for line in problems(data) if path.name in line]
    assert len(found) == 2
    assert all("wrong CRC" in line and "offsets=[" in line for line in found)


def rewrite(path: Path, change: Callable[[bytearray], object]) -> None:
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)


def test_wrong_indexes(data: Path) -> None:
    index, time_index = logs(data)[0].with_suffix(".index"), logs(data)[0].with_suffix(".timeindex")
    first, second = list(OFFSET_ENTRY.iter_unpack(index.read_bytes()))[:2]
    rewrite(index, lambda content: OFFSET_ENTRY.pack_into(content, 0, first[0], first[1] + 1))
    rewrite(index, lambda content: OFFSET_ENTRY.pack_into(content, 8, second[0] + 1, second[1]))
    timestamp, offset = TIME_ENTRY.unpack_from(time_index.read_bytes())
    rewrite(time_index, lambda content: TIME_ENTRY.pack_into(content, 0, timestamp - 1, offset))
    found = problems(data)
    assert len([line for line in found if index.name in line]) == 2
    assert any(f"2 of {index.stat().st_size // 8} entries are wrong" in line for line in found)
    assert len([line for line in found if time_index.name in line]) == 1


def test_indexes_that_are_missing_cut_or_torn(data: Path) -> None:
    first, second, third = logs(data)[:3]
    first.with_suffix(".index").unlink()
    rewrite(second.with_suffix(".timeindex"), lambda content: content.__delitem__(slice(-12, None)))
    rewrite(third.with_suffix(".index"), lambda content: content.extend(b"\1"))
    found = problems(data)
    assert [line.partition(": ")[2].partition(": ")[2] for line in found if first.stem in line] == [
        "is missing; a start rebuilds it"
    ]
    assert any(second.stem in line and "the last timestamp is" in line for line in found)
    assert any(third.stem in line and "not whole entries" in line for line in found)


def test_snapshots_of_producers(data: Path) -> None:
    flip(logs(data)[1].with_suffix(".snapshot"), 20)
    assert any("wrong CRC" in line for line in problems(data))


def test_a_snapshot_that_says_something_else(data: Path) -> None:
    """The batch is one from an earlier place, whole and good."""
    snapshots = sorted((data / "t-0").glob("*.snapshot"))
    shutil.copy(snapshots[0], snapshots[2])
    assert any(snapshots[2].name in line and "the batches say" in line for line in problems(data))


def test_transaction_indexes(data: Path) -> None:
    path = min((data / "t-0").glob("*.txnindex"))
    content = path.read_bytes()
    path.unlink()
    assert any("aborted at offset" in line and "is missing" in line for line in problems(data))
    _, producer_id, first, last, stable = struct.unpack_from(">hqqqq", content)
    path.write_bytes(struct.pack(">hqqqq", 0, producer_id, first + 1, last, stable) + content[34:])
    assert any(f"began at {first}, not at {first + 1}" in line for line in problems(data))
    path.write_bytes(struct.pack(">hqqqq", 0, producer_id, last, first, stable) + content[34:])
    assert any("no valid offsets" in line for line in problems(data))


def test_leader_epochs(data: Path) -> None:
    path = data / "t-0" / "leader-epoch-checkpoint"
    rows = path.read_text().splitlines()
    assert len(rows) == 5
    epoch, start = rows[3].split()
    for text, what in (
        ("0\n2\n0 0\n", "are announced"),
        ("\n".join([*rows[:3], f"{epoch} {int(start) + 1}", rows[4]]), f"offset {start} has leader epoch {epoch}"),
        ("0\n2\n1 0\n0 5\n", "do not ascend"),
    ):
        path.write_text(text)
        assert [line for line in problems(data) if what in line and path.name in line]
    path.unlink()
    assert [line for line in problems(data) if "is missing" in line]


def test_checkpoints_that_know_more_than_there_is(data: Path) -> None:
    (data / "recovery-point-offset-checkpoint").write_text("0\n2\nt 0 9999\nu 0 5\n")
    found = problems(data)
    assert any("t-0 9999 is above the log end" in line for line in found)
    assert any("u-0 5: the partition has no directory here" in line for line in found)
    (data / "recovery-point-offset-checkpoint").write_text("nonsense")
    assert any("recovery-point-offset-checkpoint" in line for line in problems(data))


def test_a_segment_that_is_missing(data: Path) -> None:
    for path in (data / "t-0").glob(f"{logs(data)[1].stem}.*"):
        path.unlink()
    found = [str(finding) for finding in verified(data).findings]
    assert any("offsets are missing, though it was never compacted" in line for line in found)


def test_an_index_at_an_offset_of_another_segment_is_left_over(data: Path) -> None:
    """The loader sees it so, too."""
    first, second = logs(data)[:2]
    inside = int(second.stem) - 1
    path = first.with_name(f"{inside:020d}.index")
    path.write_bytes(b"")
    assert problems(data) == []
    (line,) = [str(finding) for finding in verified(data).findings if path.name in str(finding)]
    assert "belongs to no segment; a start removes it" in line
    log_dir = LogDir.open(data, node_id=1, clock=ManualClock(), filesystem=OsFilesystem())
    assert load_logs(log_dir, lambda _: CONFIG).offline == {}
    assert not path.exists()
    log_dir.leave()


def test_a_log_that_is_missing_with_its_index_left(data: Path) -> None:
    logs(data)[1].unlink()
    (line,) = problems(data)
    assert "is missing, though its index is there" in line
    log_dir = LogDir.open(data, node_id=1, clock=ManualClock(), filesystem=OsFilesystem())
    assert list(load_logs(log_dir, lambda _: CONFIG).offline) == [TopicPartition("t", 0)]
    log_dir.leave()


def test_a_segment_of_which_batches_are_gone_says_nothing_of_producers(data: Path) -> None:
    """The segment was compacted, and no checkpoint says so: a copy of the partition alone."""
    path = logs(data)[1]
    content = path.read_bytes()
    path.write_bytes(content[read_header(content).size_bytes :])
    for suffix in (".index", ".timeindex"):
        path.with_suffix(suffix).unlink()
    assert all("index" in line and "a start rebuilds it" in line for line in problems(data))


def test_segments_that_overlap(data: Path) -> None:
    second = logs(data)[1]
    for path in list((data / "t-0").glob(f"{second.stem}.*")):
        path.rename(path.with_name(f"{int(second.stem) - 1:020d}{path.suffix}"))
    assert any("where the next segment begins with" in line for line in problems(data))


def test_leftovers_are_notes(data: Path) -> None:
    (data / "t-0" / "00000000000000000000.log.deleted").write_bytes(b"x")
    (data / "t-0" / "00000000000000099999.index").write_bytes(b"")
    (data / "t-0" / "notes.txt").write_bytes(b"")
    (data / "t-2.0123456789abcdef0123456789abcdef-delete").mkdir()
    (data / "lost+found").mkdir()
    (data / "meta.properties.tmp").write_bytes(b"")
    assert len(notes(data)) == 6


def test_partitions_of_one_topic_have_one_id(data: Path) -> None:
    (data / "t-2").mkdir()
    copy_partition(OsFilesystem(), data / "t-0", data / "t-2")
    (data / "t-1" / "partition.metadata").write_text("version: 0\ntopic_id: 4o1kcDjlSz2oAWkJkLR0lw\n")
    assert any("other partitions of the topic have" in line for line in problems(data))


def test_a_partition_in_two_directories(data: Path) -> None:
    other = Path(shutil.copytree(data, data.with_name("other")))
    result = verify(OsFilesystem(), [data, other], deep=False, workers=1)
    assert any("is in" in str(finding) and "too" in str(finding) for finding in result.findings)


def test_records_are_read_only_if_asked(data: Path) -> None:
    """A batch with a right checksum and nonsense for records."""
    path = logs(data)[-1]
    log_end = max(int(path.stem) for path in (data / "t-0").glob("*.snapshot"))
    bad = encode_batch([Record(log_end, START_MS, b"k", b"v")], base_offset=log_end, leader_epoch=2)
    bad[61] = 0x7F
    seal(bad)
    path.write_bytes(path.read_bytes() + bad)
    (data / "t-0" / f"{log_end:020d}.snapshot").rename(data / "t-0" / f"{log_end + 1:020d}.snapshot")
    assert verified(data, deep=False).problem_count == 0
    assert any(f"{path.name}: batch at position" in line for line in problems(data))


def test_worker_processes_find_the_same(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klamm.storage.tools.verify.run.ALONE_BYTES", 0)
    flip(logs(data)[1], 300)
    seen: list[tuple[int, int]] = []
    result = verify(
        OsFilesystem(), [data], deep=True, workers=2, on_progress=lambda done, total: seen.append((done, total))
    )
    alone = verified(data)
    assert sorted(map(str, result.findings)) == sorted(map(str, alone.findings))
    assert (result.batches, result.records) == (alone.batches, alone.records)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (result.size_bytes, result.size_bytes)


# The command


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[str], str]:
    code = main(["verify", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out.splitlines(), captured.err


def test_the_command_tells_findings_and_sums_up(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, errors = run(capsys, "--log-dirs", data, "--workers", 1)
    assert (code, errors) == (0, "")
    assert len(lines) == 1
    assert lines[0].startswith("verified log_dirs=1 partitions=2 segments=")
    assert " problems=0 notes=0 " in lines[0]
    flip(logs(data)[0], 70)
    code, lines, _ = run(capsys, "--log-dirs", data, "--deep")
    assert code == 1
    assert lines[0].startswith(f"PROBLEM: {logs(data)[0]}: ")
    assert " problems=1 notes=0 " in lines[-1]


def test_nothing_is_written(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in data.rglob("*")}
    run(capsys, "--log-dirs", data)
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in data.rglob("*")} == before


def test_what_cannot_be_verified(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, errors = run(capsys, "--log-dirs", tmp_path / "nope")
    assert (code, lines) == (3, [])
    assert errors == f"klamm: {tmp_path / 'nope'}: No such file or directory (ENOENT)\n"
    with pytest.raises(SystemExit) as left:
        run(capsys, "--log-dirs", "")
    assert left.value.code == 2


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for out in (terminal, pipe):
        progress = Progress(out)
        for done in range(0, 1025, 128):
            progress.show(done << 20, 1 << 30)
        progress.end()
    bars = terminal.getvalue().split("\r")[1:]
    assert len(bars) == 8
    assert bars[3] == "[" + "#" * 20 + "." * 20 + "]  50%  512 of 1024 MiB"
    assert bars[-1].endswith("1024 of 1024 MiB\n")
    assert pipe.getvalue().splitlines()[:2] == ["verified 12%, 128 of 1024 MiB", "verified 25%, 256 of 1024 MiB"]
