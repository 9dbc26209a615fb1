"""`klamm start` as a process: the samples of Kafka, the ready line, exit codes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.clients

FILES = Path(__file__).parents[1] / "config" / "files"


def start(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A start that is expected to fail."""
    command = [sys.executable, "-m", "klamm", "start", *arguments]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", ["kraft_4_combined", "kraft_4_broker", "kraft_3_combined", "zookeeper_3"])
def test_a_sample_of_kafka_starts_a_broker(name, tmp_path):
    """Only directory and ports are changed, as tests run side by side."""
    listeners = "PLAINTEXT://127.0.0.1:0" + (",CONTROLLER://127.0.0.1:0" if "combined" in name else "")
    advertised = {"advertised.listeners": "PLAINTEXT://localhost:9092"} if name.startswith("kraft") else {}
    later = {"num.replica.fetchers": 1}  # a key that waits for the cluster
    config = {**sample(name), "listeners": listeners, **advertised, **later}
    with BrokerProcess(tmp_path / "data", config) as broker:
        broker.connect().close()
        assert broker.terminate() == 0
    log = broker.log()
    assert log.count("Stored, but without effect yet") == 1
    assert log.count("is not opened: it belongs to KRaft's quorum") == ("combined" in name)
    assert "Unknown config key" not in log


def sample(name: str) -> dict[str, object]:
    lines = (FILES / f"{name}.properties").read_text(encoding="utf-8").splitlines()
    values: dict[str, object] = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    del values["log.dirs"]
    return values


def test_a_bad_value_ends_with_code_2_and_one_line(tmp_path):
    done = start("--override", "num.partitions=0", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "klamm: --override: Invalid value 0 for configuration num.partitions: Value must be at least 1\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_limit_for_an_unknown_host_is_a_warning(tmp_path):
    overrides = {"max.connections.per.ip.overrides": "nosuch.invalid:5,127.0.0.1:100"}
    with BrokerProcess(tmp_path / "data", overrides) as broker:
        broker.connect().close()
        assert broker.terminate() == 0
    assert broker.log().count("cannot resolve 'nosuch.invalid'") == 1
    assert "Traceback" not in broker.log()


def test_a_limit_that_is_none_ends_with_code_2(tmp_path):
    done = start("--override", "max.connections.per.ip.overrides=here:many", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "'here:many' is not host:count" in done.stderr


def test_a_locked_directory_ends_with_code_3(tmp_path):
    with BrokerProcess(tmp_path / "data"):
        overrides = ("log.dirs=data", "listeners=PLAINTEXT://127.0.0.1:0", "klamm.metrics.listener=none")
        done = start(*(part for override in overrides for part in ("--override", override)), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "Traceback" not in done.stderr


def test_a_directory_that_is_named_twice_ends_with_code_3_and_one_line(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to("a")
    overrides = ("log.dirs=a,b", "listeners=PLAINTEXT://127.0.0.1:0", "klamm.metrics.listener=none")
    done = start(*(part for override in overrides for part in ("--override", override)), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1 and "b is the same directory as a: name it once" in done.stderr


def test_a_port_in_use_ends_with_code_3(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = start("--override", f"listeners=PLAINTEXT://127.0.0.1:{port}", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert str(port) in done.stderr
    assert "Traceback" not in done.stderr
