"""A real Apache Kafka broker (one KRaft node, from the `broker` jars) beside Klamm, for comparisons.

    with apache_kafka(tmp_path) as kafka:
        kafka.port, kafka.log_dir, kafka.pid

It listens on free ports of the loopback, keeps its files in the directory given, and is stopped at the end of the
block.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.jars import classpath, java

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 120.0  # with 10,000 partitions on a slow disk
CLUSTER_ID: Final = "Yc0lUXk4T7-kLAMMtest0A"


@dataclass(frozen=True, slots=True)
class ApacheKafka:
    """`log_dir` holds the partitions. Stop `process` early with `stop` to look at its files."""

    port: int
    log_dir: Path
    output: Path
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self) -> None:
        """Stop it in good order (SIGTERM), so that the log directory is cleanly closed."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise


@contextlib.contextmanager
def apache_kafka(
    directory: Path,
    config: Mapping[str, str] | None = None,
    *,
    log_dir: Path | None = None,
    heap: str = "512m",
    sasl_port: int = 0,
    tls_port: int = 0,
) -> Iterator[ApacheKafka]:
    """Format `log_dir` (if it is new), start a broker over it with the extra `config`, and wait until it serves. With a
    `sasl_port` it has a SASL_PLAINTEXT listener, too, with a `tls_port` an SSL listener."""
    directory.mkdir(parents=True, exist_ok=True)
    log_dir = log_dir if log_dir is not None else directory / "kafka-logs"
    port, controller_port = free_ports(2)
    file = directory / "server.properties"
    file.write_text(_properties(port, controller_port, (sasl_port, tls_port), log_dir, config or {}), encoding="utf-8")
    output = directory / "kafka.out"
    command = [java(), f"-Xmx{heap}", f"-Dkafka.logs.dir={directory}", "-cp", classpath("broker")]
    with output.open("ab") as out:
        if not (log_dir / "meta.properties").exists():
            formatting = [*command, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file)]
            done = subprocess.run(formatting, stdout=out, stderr=out, timeout=START_TIMEOUT_S, check=False)
            assert done.returncode == 0, output.read_text(errors="replace")[-4000:]
        process = subprocess.Popen([*command, "kafka.Kafka", str(file)], stdout=out, stderr=out, cwd=directory)
    broker = ApacheKafka(port, log_dir, output, process)
    try:
        _await_port(broker)
        yield broker
    finally:
        broker.stop()


def free_ports(count: int) -> list[int]:
    """Distinct ports of the loopback that are free just now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _properties(
    port: int, controller_port: int, others: tuple[int, int], log_dir: Path, more: Mapping[str, str]
) -> str:
    advertised = f"PLAINTEXT://127.0.0.1:{port}"
    for protocol, other in zip(("SASL_PLAINTEXT", "SSL"), others, strict=True):
        if other:
            advertised += f",{protocol}://127.0.0.1:{other}"
    values = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"{advertised},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": advertised,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,"
        "SSL:SSL",
        "log.dirs": str(log_dir),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        **more,
    }
    return "".join(f"{key}={value}\n" for key, value in values.items())


def _await_port(broker: ApacheKafka) -> None:
    """A KRaft broker opens its port when it is ready to serve."""
    end = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end:
        if broker.process.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", broker.port), 1):
            return
        time.sleep(0.05)
    raise AssertionError(f"Apache Kafka did not start\n{broker.output.read_text(errors='replace')[-4000:]}")
