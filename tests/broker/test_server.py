"""The life of a process: what a start leaves behind that failed or was stopped half-way."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from klamm.broker.server import StopRequested, StopSignal
from klamm.storage.paths import CLEAN_SHUTDOWN
from tests.support.broker_process import BrokerFailed, BrokerProcess
from tests.support.embedded import EmbeddedBroker, batch


def test_a_failed_start_does_not_undo_a_clean_shutdown(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t")
        broker.produce("t", batch(b"x"))
    marker = tmp_path / "data" / CLEAN_SHUTDOWN
    assert marker.exists()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(BrokerFailed, match="exit code 3"):
            BrokerProcess(tmp_path / "data", port=taken.getsockname()[1]).start()
    assert marker.exists()
    with EmbeddedBroker(tmp_path) as broker:
        partition = broker.broker.partitions.topics["t"].partitions[0]
        assert (partition.high_watermark, partition.leader_epoch) == (1, 0)


def test_a_signal_interrupts_the_opening_of_the_logs_and_is_remembered_after_it() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        stop = StopSignal()
        with pytest.raises(StopRequested):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_sigterm_while_starting_exits_with_0(tmp_path: Path) -> None:
    data = tmp_path / "data"
    script = (
        "import os, signal, sys\n"
        "from klamm.broker import server\n"
        "from klamm.config.load import load\n"
        "original = server.PartitionManager.load\n"
        "def load_slowly(self, *arguments):\n"
        "    original(self, *arguments)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "server.PartitionManager.load = load_slowly\n"
        f"sys.exit(server.run(load(None, ['log.dirs={data}', 'listeners=PLAINTEXT://127.0.0.1:0'], {{}})))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_a_start_tells_what_checks_records(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "compiled") as broker:
        assert build_info(broker).endswith('record_check="compiled"} 1')
    assert " INFO " in (line := line_about_records(broker)) and "compiled code" in line
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['klamm.protocol.records._check'] = None")
    with BrokerProcess(tmp_path / "portable", prefix=["env", f"PYTHONPATH={tmp_path}"]) as broker:
        assert build_info(broker).endswith('record_check="python"} 1')
    assert " WARNING " in (line := line_about_records(broker)) and "install a C compiler" in line


def build_info(broker: BrokerProcess) -> str:
    with urllib.request.urlopen(broker.metrics_url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return next(line for line in lines if line.startswith("klamm_build_info{"))


def line_about_records(broker: BrokerProcess) -> str:
    (line,) = [line for line in broker.log().splitlines() if "the records of produced batches" in line]
    return line
