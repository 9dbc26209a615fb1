"""A real broker process: its files as a second user sees them, core dumps, secrets in its environment."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from klamm.broker.metadata.sqlite_store import FILE_NAME
from klamm.broker.security.file_modes import NotPrivate, check_private, make_private, wide_log_dirs
from klamm.client.blocking import NodeClient
from klamm.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.broker_process import BrokerFailed, BrokerProcess

pytestmark = pytest.mark.clients

READER, GROUP, STRANGERS = 54321, 54322, 54323


def create_topic(broker: BrokerProcess) -> None:
    with NodeClient(broker.host, broker.port) as client:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        response = client.request(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert [result.error_code for result in response.topics] == [0]


def readable_by(path: Path, group: int) -> bool:
    """Whether a second user of this group can open the file."""
    done = subprocess.run(
        ["cat", path], user=READER, group=group, extra_groups=[], capture_output=True, check=False, cwd="/"
    )
    assert done.returncode == 0 or b"Permission denied" in done.stderr, done.stderr
    return done.returncode == 0


@pytest.fixture
def open_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that everybody can walk into, so that only what the broker makes decides."""
    path = tmp_path_factory.mktemp("open")
    for directory in (path, *path.parents):
        if directory.owner() == Path("/tmp").owner() and directory.is_relative_to("/tmp") and directory != Path("/tmp"):
            directory.chmod(0o755)
    return path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a second user")
@pytest.mark.parametrize(("mode", "in_group"), [("private", False), ("group", True)])
def test_a_second_user_reads_segments_only_in_group_mode(open_path: Path, mode: str, in_group: bool) -> None:
    data = open_path / "data"
    if mode == "group":
        data.mkdir()
        os.chown(data, 0, GROUP)
        data.chmod(0o2750)
    with BrokerProcess(data, {"klamm.data.mode": mode, "klamm.data.mode.check": "refuse"}) as broker:
        create_topic(broker)
        segment = data / "t-0" / f"{0:020d}.log"
        assert readable_by(segment, GROUP) is in_group
        assert not readable_by(segment, STRANGERS)
        assert not readable_by(data / FILE_NAME, GROUP)
        assert stat.S_IMODE((data / FILE_NAME).stat().st_mode) == 0o600
        assert stat.S_IMODE(data.stat().st_mode) == (0o2750 if in_group else 0o700)


def test_a_wide_log_directory_is_a_warning_or_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    with BrokerProcess(data) as broker:
        pass
    assert f"chmod 700 {data}" in broker.log()
    for setting in ({"klamm.data.mode.check": "refuse"}, {"klamm.security.strict": "true"}):
        with pytest.raises(BrokerFailed, match="exit code 3"):
            BrokerProcess(data, setting).start()


def test_group_mode_says_when_the_group_is_kept_out(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert wide_log_dirs([tmp_path], "private") == []
    (problem,) = wide_log_dirs([tmp_path], "group")
    assert "keeps out its group" in problem
    tmp_path.chmod(0o2750)
    assert wide_log_dirs([tmp_path], "group") == []
    assert wide_log_dirs([tmp_path / "absent"], "private") == []


def test_a_secret_file_is_narrowed_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    path.chmod(0o644)
    with pytest.raises(NotPrivate):
        check_private(path)
    make_private(path)
    check_private(path)
    assert path.read_text() == "x"


def core_limit(broker: BrokerProcess) -> str:
    limits = Path(f"/proc/{broker.pid}/limits").read_text().splitlines()
    return next(line for line in limits if line.startswith("Max core file size")).split()[4]


def test_there_is_no_core_dump_unless_asked_for(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "one") as broker:
        assert core_limit(broker) == "1"
    with BrokerProcess(tmp_path / "two", {"klamm.core.dumps": "true"}) as broker:
        mine = Path("/proc/self/limits").read_text().splitlines()
        assert core_limit(broker) == next(line for line in mine if "core file" in line).split()[4]


def test_strict_refuses_what_is_otherwise_a_warning(tmp_path: Path) -> None:
    everywhere = {"klamm.metrics.listener": "0.0.0.0:0"}
    with BrokerProcess(tmp_path / "data", everywhere) as broker:
        pass
    assert "set klamm.metrics.auth" in broker.log()
    with pytest.raises(BrokerFailed, match=r"(?s)exit code 2.*klamm\.security\.strict"):
        BrokerProcess(tmp_path / "data2", {**everywhere, "klamm.security.strict": "true"}).start()


def test_a_secret_on_the_command_line_does_not_start(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "klamm", "start", "--override", "ssl.key.password=MARK"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "ssl.key.password=@3" in done.stderr
    assert "MARK" not in done.stderr
