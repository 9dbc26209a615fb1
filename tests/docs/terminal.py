"""A terminal in which the blocks of a document are run as a reader would.

It stands in a checkout: a folder with links to the files of the repository and Klamm's environment on the path. Apache
Kafka's tools have the names of its scripts. Ports and folders that a document names are replaced by ones of this test,
and put back in the output.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.docs.documents import ROOT, STOPPED, Block
from tests.support.broker_process import wait_for
from tests.support.jars import JarSet, classpath, java

TIMEOUT_S: Final = 120.0
PORTS: Final = ("9092", "9093", "9404")
FOLDERS: Final = ("/backup", "/tmp", "/var/lib/kafka")
SERVER: Final = re.compile(r"^(?:make run|klamm start)\b[^\n]*\n", re.MULTILINE)
KAFKA_TOOLS: Final = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
}


class Terminal:
    """One broker runs at a time; `folder` is the working directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "klamm"
        self.log = folder / "broker.log"
        self._names = dict(zip(PORTS, map(str, lasting_ports(len(PORTS))), strict=True))
        self._names |= {name: f"{folder}{name}" for name in FOLDERS}
        self._broker: subprocess.Popen[bytes] | None = None
        self._make_checkout(folder / "bin")
        (folder / "tmp").mkdir()
        (folder / "backup").mkdir()
        (folder / "var/lib").mkdir(parents=True)

    @property
    def port(self) -> int:
        return int(self._names["9092"])

    def _make_checkout(self, tools: Path) -> None:
        self.folder.mkdir()
        for path in ROOT.iterdir():
            if path.name not in ("data", ".git"):
                (self.folder / path.name).symlink_to(path)
        config = (ROOT / "config/server.properties").read_text()
        (self.folder / "server.properties").write_text(self._translated(config))
        tools.mkdir()
        for name, main in KAFKA_TOOLS.items():
            script = tools / name
            script.write_text(f'#!/bin/sh\nexec {" ".join(java_command("tools"))} {main} "$@"\n')
            script.chmod(0o755)
        address = f"PLAINTEXT://127.0.0.1:{self.port}"
        self._environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONUNBUFFERED": "1",
            "KAFKA_LISTENERS": address,
            "KAFKA_KLAMM_METRICS_LISTENER": f"127.0.0.1:{self._names['9404']}",
        }

    def _translated(self, text: str) -> str:
        return re.sub(rf"(?<![\w/.])({'|'.join(self._names)})\b", lambda match: self._names[match[1]], text)

    def _as_written(self, output: str) -> str:
        names = {own: name for name, own in self._names.items()}
        return re.sub("|".join(map(re.escape, names)), lambda match: names[match[0]], output)

    def leave_listeners_to_the_page(self) -> None:
        """Let the page's own config name the listeners, and not the environment."""
        del self._environment["KAFKA_LISTENERS"]

    # -- blocks

    def run(self, block: Block) -> str:
        """Run a block and return its output. Raises AssertionError when a command fails."""
        if block.mark == STOPPED:
            self.stop()
        text = self._translated(block.text)
        if block.language == "python":
            return self._done(block, [sys.executable, "-c", text])
        if block.language == "properties":
            return self._start_kafka(text)
        return self._run_shell(block, text)

    def _run_shell(self, block: Block, text: str) -> str:
        """Commands in their order; a line that starts a broker is waited for, and ends the broker before it."""
        output, begin = "", 0
        for server in SERVER.finditer(text):
            output += self._run_commands(block, text[begin : server.start()])
            output += self.start(server[0].split("&")[0])
            begin = server.end()
        return output + self._run_commands(block, text[begin:])

    def _run_commands(self, block: Block, text: str) -> str:
        return self._done(block, ["bash", "-eu", "-o", "pipefail", "-c", text]) if text.strip() else ""

    def _done(self, block: Block, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{block.place}: {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        return self._as_written(done.stdout)

    # -- brokers

    def start(self, command: str = "klamm start") -> str:
        """Start a broker in the place of the one before, and return what it prints and logs until it is ready."""
        return self._start(["bash", "-c", f"exec {command}"], lambda output: b"klamm ready " in output)

    def _start_kafka(self, properties: str) -> str:
        (self.folder / "kafka.properties").write_text(properties)
        return self._start([*java_command("broker"), "kafka.Kafka", "kafka.properties"], self._listens)

    def _listens(self, _: bytes) -> bool:
        """Apache Kafka opens its port when it is ready to serve."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def _start(self, command: list[str], is_ready: Callable[[bytes], bool]) -> str:
        self.stop()
        begin = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._broker = subprocess.Popen(
                command, cwd=self.folder, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        broker = self._broker
        wait_for(lambda: is_ready(self.log.read_bytes()[begin:]) or broker.poll() is not None, TIMEOUT_S, "a broker")
        assert broker.poll() is None, self.log.read_text()[begin:][-4000:]
        return self._as_written(self.log.read_text()[begin:])

    def stop(self) -> None:
        broker, self._broker = self._broker, None
        if broker is None:
            return
        broker.send_signal(signal.SIGTERM)
        try:
            broker.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            broker.kill()
            broker.wait()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def lasting_ports(count: int) -> list[int]:
    """Free ports below those that the kernel gives to connections, so that a restarted broker finds them free."""
    found: list[int] = []
    for port in itertools.count(20_000 + os.getpid() % 10_000):
        with contextlib.suppress(OSError), socket.socket() as one:
            one.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free ports")


def java_command(jars: JarSet) -> list[str]:
    return [java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-cp", classpath(jars)]
