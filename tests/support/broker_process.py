"""A real Klamm process for tests: on free ports, ready when its ready line is printed, ended by pid.

    with BrokerProcess(tmp_path / "data") as broker:
        Producer({"bootstrap.servers": broker.address})

`kill` is `kill -9`; `restart` starts again on the same data and the same port.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from klamm.config.secrets import holds_secret

READY = re.compile(r"klamm ready node=(\d+) listeners=(\S+) metrics=(\S+)\n")
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0


class BrokerFailed(Exception):
    """The process did not become ready; the message has its exit code and its log."""


class BrokerProcess:
    """See the module's head. ``config`` are overrides in Kafka's names; secrets among them go into a file."""

    def __init__(
        self, data: Path, config: Mapping[str, object] | None = None, *, prefix: Sequence[str] = (), port: int = 0
    ) -> None:
        self.data = data
        self.config = dict(config or {})
        self.prefix = list(prefix)
        self.host = "127.0.0.1"
        self.port = port
        self.metrics_url = ""
        self.listeners: dict[str, int] = {}
        """The ports of the listeners, by name."""
        self.log_path = data.with_name(data.name + ".log")
        self._process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self) -> Self:
        """Start and wait for the ready line; raises BrokerFailed."""
        overrides = {
            "log.dirs": self.data,
            "listeners": f"PLAINTEXT://{self.host}:{self.port}",
            "klamm.metrics.listener": "127.0.0.1:0",
            **self.config,
        }
        command = [*self.prefix, sys.executable, "-m", "klamm", "start", *self._secrets()]
        for key, value in overrides.items():
            if not holds_secret(key):
                command += ["--override", f"{key}={value}"]
        with self.log_path.open("a") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        match = READY.fullmatch(line)
        if match is None:
            code = self._process.wait(START_TIMEOUT_S)
            self._process.stdout.close()
            self._process = None
            raise BrokerFailed(f"exit code {code}, stdout {line!r}, log:\n{self.log()}")
        self.port = int(match[2].split(",")[0].rpartition(":")[2])
        self.listeners = {
            name: int(address.rpartition(":")[2])
            for name, _, address in (each.partition("://") for each in match[2].split(","))
        }
        self.metrics_url = match[3]
        return self

    def _secrets(self) -> list[str]:
        """The argument for the config file, written when there are secrets."""
        lines = [f"{key}={escaped(str(value))}" for key, value in self.config.items() if holds_secret(key)]
        if not lines:
            return []
        path = self.data.with_name(self.data.name + ".properties")
        path.touch(mode=0o600)
        path.write_text("\n".join(lines) + "\n")
        return [str(path)]

    def log(self) -> str:
        """The log of the process, over all its starts."""
        return self.log_path.read_text() if self.log_path.exists() else ""

    def terminate(self) -> int:
        """Send SIGTERM, wait, and return the exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL and wait."""
        self._end(signal.SIGKILL)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def restart(self) -> Self:
        return self.start()

    def rss_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def connect(self, timeout_s: float = 10.0) -> socket.socket:
        """A raw TCP connection to the broker."""
        return socket.create_connection((self.host, self.port), timeout_s)

    def _end(self, number: int) -> int:
        assert self._process is not None, "not started"
        process, self._process = self._process, None
        if process.poll() is None:
            process.send_signal(number)
        try:
            return process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            assert process.stdout is not None
            process.stdout.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.terminate() if kind is None else self.kill()


def escaped(value: str) -> str:
    """Return a value as it is written in a properties file."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def wait_for(condition: object, timeout_s: float = 10.0, what: str = "the condition") -> None:
    """Poll ``condition()`` until it is true; raises AssertionError after ``timeout_s``."""
    assert callable(condition)
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {timeout_s} s")
        time.sleep(0.01)
