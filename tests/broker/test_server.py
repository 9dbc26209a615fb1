"""The life of a process: the state after a start that failed or was stopped half-way."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.stop_signal import StopRequested, StopSignal
from klamm.protocol.messages.list_groups import ListGroupsRequest
from klamm.storage.paths import CLEAN_SHUTDOWN
from tests.support.broker_process import BrokerFailed, BrokerProcess
from tests.support.embedded import EmbeddedBroker, batch, encode_frame


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


def test_two_brokers_in_a_process_share_nothing(tmp_path: Path) -> None:
    """Each serves its own topics, and keeps to its own limit of open files."""
    limits = {"a": 40, "b": 60}
    with (
        EmbeddedBroker(tmp_path / "a", {"klamm.max.open.log.files": limits["a"]}) as a,
        EmbeddedBroker(tmp_path / "b", {"klamm.max.open.log.files": limits["b"], "node.id": 2}) as b,
    ):
        brokers = {"a": a, "b": b}
        for name, broker in brokers.items():
            broker.create_topic(name, partitions=100)
        for index in range(100):
            for name, broker in brokers.items():
                assert broker.produce(name, batch(name.encode()), partition=index).base_offset == 0
        for name, broker in brokers.items():
            assert list(broker.broker.partitions.topics) == [name]
            assert len(broker.filesystem.open_files) == limits[name]
        a.broker.complete_delayed_fetches()
        assert b.produce("b", batch(b"still there")).base_offset == 1
    assert (a.broker.node_id, b.broker.node_id) == (1, 2)


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
        "original = server.PartitionManager.load_logs\n"
        "def load_slowly(self, *arguments):\n"
        "    original(self, *arguments)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "server.PartitionManager.load_logs = load_slowly\n"
        f"sys.exit(server.run(load(None, ['log.dirs={data}', 'listeners=PLAINTEXT://127.0.0.1:0'], {{}})))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


SPINNING = """
import logging, sys, time
from klamm.broker import server, stop_signal
from klamm.broker.apis import list_groups
from klamm.broker.coordinator.runtime.timer import CoordinatorTimer
from klamm.config.load import load

def spin(*_):
    print("spinning", flush=True)
    while True:
        try:
            {body}
        except Exception:
            pass

logging.basicConfig(level="INFO")
stop_signal.GRACE_S = 0.3
where = {where!r}
if where == "a handler":
    list_groups.handle = spin
elif where == "a task":
    async def handle(*_):
        spin()
    list_groups.handle = handle
else:
    start = server.Scheduler.start
    def start_and_tick(self):
        start(self)
        server.asyncio.get_running_loop().call_later(0.2, spin)
    server.Scheduler.start = start_and_tick
sys.exit(server.run(load(None, ["log.dirs={data}", "listeners=PLAINTEXT://127.0.0.1:0"], {{}})))
"""


@pytest.mark.parametrize("body", ["pass", "time.sleep(0.01)"])
@pytest.mark.parametrize("where", ["a handler", "a task", "a timer"])
def test_sigterm_ends_a_broker_with_a_blocked_loop(tmp_path: Path, where: str, body: str) -> None:
    """What spins is interrupted and logged with its stack; then the broker stops as it always does."""
    script = "import time\n" + SPINNING.format(body=body, where=where, data=tmp_path / "data")
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            assert "klamm ready" in ready, process.communicate()
            port = int(ready.split("listeners=")[1].split()[0].rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(bytes(encoded(ListGroupsRequest(), 0)))
                assert process.stdout.readline() == "spinning\n"
                process.send_signal(signal.SIGTERM)
                _, log = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0, log
    assert "in spin\n" in log and log.rstrip().endswith("stopped"), log
    assert "were not drained" not in log
    assert not (tmp_path / "data" / CLEAN_SHUTDOWN).exists()


def test_sigterm_interrupts_nothing_while_the_loop_turns(tmp_path: Path) -> None:
    """The signal may even come again and again."""
    with BrokerProcess(tmp_path / "data") as broker:
        for _ in range(20):
            broker.signal(signal.SIGTERM)
        assert broker.terminate() == 0
        assert "interrupted" not in broker.log()
    assert (tmp_path / "data" / CLEAN_SHUTDOWN).exists()


def encoded(request: Any, version: int) -> bytes:
    frame = bytes(encode_frame(request, version))
    return len(frame).to_bytes(4, "big") + frame


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
