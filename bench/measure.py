"""The common parts of the suites: a broker under load (`Target`), a table of figures, and the two brokers to compare.

A row of a `Table` is a load, its columns are brokers, and each cell has the figures of every round. Where both brokers
were measured, the last column is the ratio of Klamm's figure to Apache Kafka's: of the medians, with the smallest and
largest ratio of the rounds.
"""

from __future__ import annotations

import os
import platform
import re
import socket
import statistics
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from klamm.client.blocking import NodeClient
from klamm.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.apache_kafka import apache_kafka
from tests.support.broker_process import BrokerProcess

TICKS = os.sysconf("SC_CLK_TCK")
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
KAFKA_HEAP = "1g"
COLUMNS = {"klamm": "Klamm", "kafka": "Apache Kafka 4.4"}


@dataclass(slots=True)
class Target:
    """A broker under load."""

    name: str
    host: str
    port: int
    pid: int

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


# -- figures

UNITS: dict[str, Callable[[float], str]] = {
    "records_s": lambda value: f"{value / 1000:,.0f} k records/s",
    "requests_s": lambda value: f"{value / 1000:,.1f} k requests/s",
    "transactions_s": lambda value: f"{value:,.0f} transactions/s",
    "retries": lambda value: f"{value:.2f} retries each",
    "average_us": lambda value: f"average {value:,.0f} us",
    "p50_us": lambda value: f"p50 {value:,.0f} us",
    "p99_us": lambda value: f"p99 {value:,.0f} us",
    "p99_ms": lambda value: f"p99 {value:,.1f} ms",
    "longest_ms": lambda value: f"longest {value:,.1f} ms",
    "cpu_s": lambda value: f"{value:.1f} s CPU",
    "cpu_us": lambda value: f"{value:.0f} us CPU each",
    "cpu_s_gb": lambda value: f"{value:.2f} s CPU a GB",
    "look_ups_s": lambda value: f"{value:,.0f} look-ups/s",
    "appends_s": lambda value: f"{value:,.0f} appends/s",
    "ratio": lambda value: f"{value:.2f} of it",
    "p99_ratio": lambda value: f"{value:.2f} times the idle p99",
    "mb_s": lambda value: f"{value:,.0f} MB/s",
    "gb_s": lambda value: f"{value:,.2f} GB/s",
    "loop_ms": lambda value: f"{value:.1f} ms of them on the loop",
    "seconds": lambda value: f"{value:.2f} s",
    "ms": lambda value: f"{value:,.1f} ms",
    "kb_each": lambda value: f"{value:,.1f} KB each",
    "mb": lambda value: f"{value:.0f} MB",
    "percent": lambda value: f"{value:.0f} %",
}
SHORT = {"cpu_s": "CPU", "cpu_us": "CPU", "cpu_s_gb": "CPU", "p50_us": "p50", "p99_us": "p99", "mb": "memory"}
"""The names of figures in the column of ratios, except for the first of a row."""


def text(figures: Mapping[str, float]) -> str:
    """Format figures, as in `480 k records/s, 2.7 s CPU`."""
    return ", ".join(UNITS[name](value) for name, value in figures.items())


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Return the median of each figure over the rounds; empty without rounds."""
    return {name: statistics.median(figures[name] for figures in rounds) for name in rounds[0]} if rounds else {}


@dataclass(slots=True)
class Table:
    """Figures by row and broker; a cell shows their median."""

    cells: dict[str, dict[str, list[dict[str, float]]]] = field(default_factory=dict)

    def add(self, row: str, broker: str, **figures: float) -> None:
        self.cells.setdefault(row, {}).setdefault(broker, []).append(figures)
        print(f"  {broker:>7} {row}: " + text(figures), file=sys.stderr, flush=True)

    def ratios(self, row: str) -> dict[str, tuple[float, float, float]]:
        """Return Klamm's figures over Apache Kafka's: of the medians, the smallest and the largest of the rounds."""
        ours, theirs = (self.cells[row].get(name, []) for name in ("klamm", "kafka"))
        found = {}
        for name in ours[0] if ours and theirs else ():
            rounds = [mine[name] / other[name] for mine, other in zip(ours, theirs, strict=False) if other[name]]
            base = medians(theirs)[name]
            if base and rounds:
                found[name] = (medians(ours)[name] / base, min(rounds), max(rounds))
        return found

    def markdown(self, columns: Mapping[str, str] = COLUMNS) -> str:
        has_ratios = columns is COLUMNS and any(self.ratios(row) for row in self.cells)
        heads = [*columns.values(), *(["Klamm to Kafka"] if has_ratios else [])]
        lines = [f"| work | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
        for row, brokers in self.cells.items():
            shown = [text(medians(brokers.get(name, []))) for name in columns]
            if has_ratios:
                shown.append(_ratios_text(self.ratios(row)))
            lines.append(f"| {row} | {' | '.join(shown)} |")
        return "\n".join(lines)


def _ratios_text(ratios: Mapping[str, tuple[float, float, float]]) -> str:
    parts = []
    for number, (name, (ratio, low, high)) in enumerate(ratios.items()):
        label = "" if number == 0 else SHORT.get(name, name) + " "
        spread = f" ({low:.2f}-{high:.2f})" if f"{low:.2f}" != f"{high:.2f}" else ""
        parts.append(f"{label}{ratio:.2f}x{spread}")
    return ", ".join(parts)


def machine(rounds: int | None = None) -> str:
    """Return a description of this machine."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    processor = f"{os.cpu_count()} cores" + (f" of {model[1]}" if model else "")
    line = f"{platform.platform()}, {processor}, Python {platform.python_version()}"
    return line if rounds is None else f"{line}, {rounds} round(s)"


# -- the brokers


@contextmanager
def klamm(directory: Path) -> Iterator[Target]:
    with BrokerProcess(directory / "klamm") as broker:
        yield Target("klamm", broker.host, broker.port, broker.pid)


@contextmanager
def kafka(directory: Path) -> Iterator[Target]:
    with apache_kafka(directory / "kafka", heap=KAFKA_HEAP) as broker:
        yield Target("kafka", "127.0.0.1", broker.port, broker.pid)


BROKERS = (klamm, kafka)


def create_topic(target: Target, name: str, partitions: int) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    with NodeClient(target.host, target.port, timeout_s=600) as client:
        response = client.request(CreateTopicsRequest(topics=[topic], timeout_ms=600_000), 5)
    assert response.topics[0].error_code == 0, response


def first_answer(port: int) -> None:
    """Wait until ApiVersions is answered."""
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as asking:
                asking.sendall(API_VERSIONS)
                if asking.recv(4096):
                    return
        except OSError:
            time.sleep(0.002)
