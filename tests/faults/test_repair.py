"""`klamm repair` between two starts of a real broker: damage, offline, the operator's choice, served again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from klamm.protocol.errors import ErrorCode
from tests.faults.damage import BATCHES, VICTIM, Data, contents, filled, flip
from tests.faults.network_cases import Broker
from tests.faults.test_storage_damage import goes_on, is_offline, started

pytestmark = pytest.mark.faults

BAD = 70


def klamm_repair(data: Data, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "klamm", "repair", "--partition", f"{VICTIM}-0", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def damaged(directory: Path, *, clean: bool) -> tuple[Data, int]:
    """The data, and the offset of the bad batch."""
    data = filled(directory, clean=clean)
    file = [path for path in data.files(".log") if int(path.stem) <= BAD][-1]
    flip(file, data.positions(file)[BAD - int(file.stem)] + 1000)
    return data, BAD


def test_skip_after_a_kill(tmp_path: Path) -> None:
    data, bad = damaged(tmp_path, clean=False)
    where = ("--log-dirs", str(data.process.data))
    data.process.restart()
    with Broker(data.process.port) as peer:
        is_offline(data, peer)
        refused = klamm_repair(data, "--skip", *where)
        assert (refused.returncode, refused.stdout) == (3, "")
        assert refused.stderr == f"klamm: {data.process.data}: another process holds .lock: stop the broker first\n"
    data.process.kill()
    done = klamm_repair(data, "--skip", *where)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert f"offsets=[{bad}, {bad + 1}): wrong CRC" in done.stdout
    assert f"offsets=[0, {BATCHES})" in done.stdout.splitlines()[-1]
    with started(data) as peer:
        assert contents(peer) == [number for number in range(BATCHES) if number != bad]
        error = peer.fetched(offset=bad, topic=VICTIM).responses[0].partitions[0].error_code
        assert error == ErrorCode.NONE
        assert data.append(peer, VICTIM, BATCHES - 1) == 0
        assert peer.end_offset(VICTIM) == BATCHES, "a duplicate is still known"


def test_truncate_after_a_kill(tmp_path: Path) -> None:
    data, bad = damaged(tmp_path, clean=False)
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={data.process.data}\n")
    done = klamm_repair(data, "--truncate", "--config", str(file))
    assert (done.returncode, done.stderr) == (0, ""), done
    assert f"offsets=[0, {bad})" in done.stdout.splitlines()[-1]
    assert list(tmp_path.glob(f"data.cut/{VICTIM}-0.*/*.log.from-*"))
    with started(data) as peer:
        goes_on(data, peer, bad)


def test_bad_command_lines(tmp_path: Path) -> None:
    data = filled(tmp_path, clean=True)
    where = ("--log-dirs", str(data.process.data))
    nowhere = klamm_repair(data, "--skip", "--log-dirs", str(tmp_path))
    assert (nowhere.returncode, nowhere.stderr) == (2, f"klamm: {VICTIM}-0 is in none of {tmp_path}\n")
    assert klamm_repair(data, *where).returncode == 2
    assert klamm_repair(data, "--skip", "--truncate", *where).returncode == 2
    well = klamm_repair(data, "--skip", *where)
    assert well.returncode == 0 and "nothing is damaged" in well.stdout
    with started(data) as peer:
        assert "checking the logs" not in data.process.log()
        goes_on(data, peer, BATCHES)
