"""Klamm beside Apache Kafka 4.4 over TLS 1.3, with the same certificate (EC P-256): produce, fetch, handshakes.

    python -m bench tls [--rounds 3] [--quick]

Loads: Apache Kafka's own producer (idempotent, acks=all), and the generator of `bench/load` with Go's TLS: one record
per request, fetches of a partition from the page cache, connections made and closed. Each broker is started fresh and
has served each load once before it is measured. `--quick` is one round with a tenth of the loads; it writes nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import loads
from bench.measure import KAFKA_HEAP, Table, Target, create_topic, machine
from bench.page import write_section
from tests.support.apache_kafka import apache_kafka, free_ports
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority

FETCHES = ((1 << 20, 1), (1 << 20, 4), (1 << 16, 1), (1 << 16, 4))  # bytes at a time, connections
CONNECTIONS = (1, 16)


@dataclass(frozen=True, slots=True)
class Secured:
    """A broker with a plain listener for the preparations and one with TLS for the loads."""

    target: Target
    tls_port: int
    authority: Path

    def properties(self) -> list[str]:
        """Return the client properties of Kafka's own tools."""
        return [
            f"bootstrap.servers=localhost:{self.tls_port}",
            "security.protocol=SSL",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={self.authority}",
        ]

    def options(self) -> list[str]:
        """Return the options of the generator."""
        return ["-tls", f"localhost:{self.tls_port}", "-ca", str(self.authority)]


def stores(directory: Path) -> dict[str, str]:
    """A new certificate, and the config that names it."""
    authority = Authority()
    authority.write(directory / "ca.pem")
    authority.server().write(directory / "server.pem")
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(directory / "server.pem")}


@contextmanager
def klamm(directory: Path) -> Iterator[Secured]:
    config = {**stores(directory), "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"}
    with BrokerProcess(directory / "klamm", config) as broker:
        target = Target("klamm", broker.host, broker.port, broker.pid)
        yield Secured(target, broker.listeners["SSL"], directory / "ca.pem")


@contextmanager
def kafka(directory: Path) -> Iterator[Secured]:
    (port,) = free_ports(1)
    with apache_kafka(directory / "kafka", stores(directory), heap=KAFKA_HEAP, tls_port=port) as broker:
        yield Secured(Target("kafka", "127.0.0.1", broker.port, broker.pid), port, directory / "ca.pem")


def one_round(table: Table, secured: Secured, scale: float, seconds: float) -> None:
    target = secured.target
    for topic in ("small", "large", "single"):
        create_topic(target, topic, 1)
    for topic, size, count in (("small", 100, int(5_000_000 * scale)), ("large", 1000, int(1_000_000 * scale))):
        loads.java_producer(target, topic, count // 5, size, *secured.properties())  # warm
        figures = loads.java_producer(target, topic, count, size, *secured.properties())
        table.add(f"{count / 1e6:g} M x {size} B, Java producer", target.name, **figures)
    for connections in CONNECTIONS:
        table.add(
            f"one record per request, {connections} connection(s)",
            target.name,
            **loads.produce(target, "single", connections, seconds, options=secured.options()),
        )
    for size, connections in FETCHES:
        loads.fetch(target, "large", connections, size, seconds / 4, options=secured.options())  # warm
        table.add(
            f"fetch {size >> 10} KB at a time, {connections} connection(s)",
            target.name,
            **loads.fetch(target, "large", connections, size, seconds, options=secured.options()),
        )
    table.add("handshakes", target.name, **loads.handshakes(target, seconds, secured.options()))


def main() -> None:
    parser = argparse.ArgumentParser(description="Klamm beside Apache Kafka over TLS.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round, a tenth of the load; writes nothing")
    options = parser.parse_args()
    if not loads.available(loads.LOAD):
        raise SystemExit("the loads need Go: make bench-tools")
    rounds, scale, seconds = (1, 0.1, 2.0) if options.quick else (options.rounds, 1.0, 5.0)
    table = Table()
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as temporary:
        for number in range(rounds):
            for broker in (klamm, kafka) if number % 2 == 0 else (kafka, klamm):
                directory = Path(temporary) / f"{broker.__name__}-{number}"
                directory.mkdir()
                with broker(directory) as secured:
                    one_round(table, secured, scale, seconds)
            print(f"round {number + 1}\n\n{table.markdown()}", file=sys.stderr)
    body = f"Measured on {machine(rounds)}.\n\n{table.markdown()}"
    print(body)
    if not options.quick:
        write_section("tls", body)


if __name__ == "__main__":
    main()
