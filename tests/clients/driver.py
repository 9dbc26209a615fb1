"""The stock clients, each a process of its own that answers a JSON line with a JSON line, by means of its library.

    with Driver("java-0.9.0.1") as client:
        client.produce(address, topic, [Sent(0, b"key", b"value")], {"compression.type": "gzip"})

The questions that every driver below `drivers/` knows:

    hello                                          {"version", "codecs": [..], "protocols": [..], "cannot": {what: why}}
    produce      address topic records config      the offset of each record, or null if the library does not give it
    consume      address topic starts ends config  the rows of these partitions, without a group
    offset_for_time  address topic partition timestamp   an offset or null
    open         address topic group config [id]   a member of the group (one for each process) that subscribes
    poll         timeout_ms                        {"rows": [..]}; some add "assigned" and "revoked"
    commit, close                                  the polled rows are committed; the member leaves
    begin        address id                        a transaction; the first has the id's producer initialized
    send         topic records                     in the transaction; answered when they have arrived
    end          commit positions group            with `positions`, those of the member are part of it

A record to send is `[partition, timestamp, key, value, [[name, value], ..]]`, a row that was read `[partition, offset,
timestamp, key, value, headers]`; all bytes are base64 or null. `config` has librdkafka's and Java's common names
(`acks`, `enable.idempotence`, `compression.type`). The answer is `{"ok": ..}` or `{"error": text}`. What a library
cannot do its driver says in `hello`, with the reason, by the names that the scenarios in `matrix.py` ask for; one with
several producers names them there, too, and takes the choice as `producer` in the config. One that knows the group
protocol of KIP-848 has "consumer" among its `protocols`, and takes `group.protocol` in the config of `open`. `id` in
`open` is the transactional id of the transactions that the member's positions will be part of.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.clients.samples import NAMELESS_HEADERS, NOTHING, NULL_HEADERS, TIMESTAMPS, Received, Sent

DRIVERS: Final = Path(__file__).parent / "drivers"
END_TIMEOUT_S: Final = 30.0
ANSWER_TIMEOUT_S: Final = 60.0

Ends = Mapping[int, int]
"""End offset by partition: a consumer stops when it has reached all of them."""


class Unavailable(Exception):
    """This machine lacks what the client needs; the message is the reason."""


class DriverError(AssertionError):
    """A client has failed at what it was asked."""


@dataclass(frozen=True, slots=True)
class Client:
    """How one client is started. `built` must be there, `needs` says what builds it."""

    name: str
    command: tuple[str, ...]
    built: Path
    needs: str
    cannot_send: frozenset[str] = frozenset()
    in_make_test: bool = False


def _python(name: str, script: str, **more: Any) -> Client:
    source = DRIVERS / "python" / script
    return Client(name, (sys.executable, str(source)), source, "Python", in_make_test=True, **more)


def _old_kafka_python(version: str) -> Client:
    python = DRIVERS / "python" / "target" / version / "bin" / "python"
    command = (str(python), str(DRIVERS / "python" / "kafka_python.py"))
    cannot_send = frozenset({NULL_HEADERS, NOTHING})
    return Client(f"kafka-python-{version}", command, python, "Python 3.11", cannot_send)


def _java(version: str, **more: Any) -> Client:
    built = DRIVERS / "java" / "target" / version
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
    command = ("java", *options, "-cp", f"{built}/classes:{built}/jars/*", "Driver")
    return Client(f"java-{version}", command, built / "classes" / "Driver.class", "a JDK and Maven", **more)


def _built(name: str, path: str, needs: str) -> Client:
    return Client(name, (str(DRIVERS / path),), DRIVERS / path, needs)


def _node(name: str) -> Client:
    command = ("node", str(DRIVERS / "node" / "driver.js"))
    return Client(name, command, DRIVERS / "node" / "node_modules" / "kafkajs", "Node.js and npm")


CLIENTS: Final = {
    client.name: client
    for client in (
        _python("confluent-kafka", "confluent.py"),
        _python("kafka-python", "kafka_python.py", cannot_send=frozenset({NULL_HEADERS, NOTHING})),
        _old_kafka_python("2.0.2"),
        _old_kafka_python("1.4.7"),
        _python("aiokafka", "aio_kafka.py", cannot_send=frozenset({NOTHING})),
        _python("kcat", "kcat.py", cannot_send=frozenset({TIMESTAMPS, NAMELESS_HEADERS})),
        _java("0.8.2.2"),
        _java("0.9.0.1", in_make_test=True),
        _java("0.10.2.2"),
        _java("0.11.0.3"),
        _java("1.1.1"),
        _java("2.8.2", in_make_test=True),
        _java("3.9.2"),
        _java("4.4.0", in_make_test=True),
        _built("franz-go", "go/target/franz", "Go"),
        _built("sarama", "go/target/sarama", "Go"),
        _built("kafka-go", "go/target/kafkago", "Go"),
        _node("KafkaJS"),
        _built("rdkafka", "rust/target/release/rdkafka", "Rust, cmake"),
        _built("rskafka", "rust/target/release/rskafka", "Rust"),
    )
}

NEWEST: Final = ("confluent-kafka", "kafka-python", "aiokafka", "kcat", "java-4.4.0")
"""The five that are asked for every detail, in the other tests of this directory."""
GIVES_UP: Final = {"confluent-kafka": {"message.timeout.ms": "1000"}, "kafka-python": {"max.block.ms": "1000"}}
"""The config with which these producers stop trying when they are refused. The others of NEWEST fail at once."""


class Driver:
    """One process, ended by the end of its input. Raises Unavailable, DriverError."""

    def __init__(self, name: str) -> None:
        client = CLIENTS[name]
        if shutil.which(client.command[0]) is None or not client.built.exists():
            raise Unavailable(f"needs {client.needs}")
        self.name = name
        self.cannot_send = client.cannot_send
        self._process = subprocess.Popen(
            client.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def send(self, what: str, **more: Any) -> None:
        """Ask, and take the answer later: several drivers work at the same time."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **more}) + "\n")
        self._process.stdin.flush()

    def answer(self, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        """Return the answer to the last question. Raises queue.Empty when it is not there in time."""
        line = self._lines.get(timeout=timeout_s)
        if not line:
            raise DriverError(f"{self.name} has ended with {self._process.wait(END_TIMEOUT_S)}")
        answer = json.loads(line)
        if "error" in answer:
            raise DriverError(f"{self.name}: {answer['error']}")
        return answer["ok"]

    def ask(self, what: str, **more: Any) -> Any:
        self.send(what, **more)
        return self.answer()

    def produce(
        self, address: str, topic: str, records: Sequence[Sent], config: Mapping[str, str] | None = None
    ) -> list[int] | None:
        """The offset of each record if the client tells it, and None for a client that does not."""
        rows = rows_of(records)
        offsets = self.ask("produce", address=address, topic=topic, records=rows, config=dict(config or {}))
        assert offsets is None or len(offsets) == len(records)
        return offsets if offsets is None else [int(offset) for offset in offsets]

    def consume(
        self,
        address: str,
        topic: str,
        ends: Ends,
        *,
        starts: Ends | None = None,
        config: Mapping[str, str] | None = None,
    ) -> list[Received]:
        """What these partitions have from their beginning, or from `starts`, to `ends`."""
        rows = self.ask(
            "consume",
            address=address,
            topic=topic,
            starts={str(partition): (starts or {}).get(partition, 0) for partition in ends},
            ends={str(partition): end for partition, end in ends.items()},
            config=dict(config or {}),
        )
        return [received(row) for row in rows]

    def offset_for_time(self, address: str, topic: str, timestamp: int, partition: int = 0) -> int | None:
        offset = self.ask(
            "offset_for_time", address=address, topic=topic, partition=partition, timestamp=timestamp, config={}
        )
        return None if offset is None else int(offset)

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(END_TIMEOUT_S)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Member:
    """A driver's member of a group. It must be polled to take part.

    `assigned` and each of `revoked` are of confluent-kafka and Java only.
    """

    def __init__(
        self,
        driver: Driver,
        address: str,
        topic: str,
        group: str,
        config: Mapping[str, str] | None,
        transactional_id: str = "",
    ) -> None:
        self.driver = driver
        self.revoked: list[set[int]] = []
        self.assigned: set[int] = set()
        self._polling = False
        self._rows: list[Received] = []
        asked = {"topic": topic, "group": group, "id": transactional_id, "config": dict(config or {})}
        driver.ask("open", address=address, **asked)

    def commit(self) -> None:
        self.finish()
        self.driver.ask("commit")

    def leave(self) -> None:
        self.finish()
        self.driver.ask("close")

    def begin(self, timeout_ms: int) -> None:
        """Poll, unless a poll is still on its way: in a rebalance some libraries come back when it is over."""
        if not self._polling:
            self.driver.send("poll", timeout_ms=timeout_ms)
            self._polling = True

    def take(self, timeout_s: float) -> list[Received]:
        """What polls have brought, after so long at most."""
        try:
            self.finish(timeout_s)
        except queue.Empty:
            return []
        taken, self._rows = self._rows, []
        return taken

    def finish(self, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """No poll is on its way any more."""
        if self._polling:
            answer = self.driver.answer(timeout_s)
            self._polling = False
            self.revoked += [set(partitions) for partitions in answer.get("revoked", ())]
            self.assigned = set(answer.get("assigned", ()))
            self._rows += [received(row) for row in answer["rows"]]


class Transactions:
    """Those of a driver's producer that has a transactional id (one for each process), one after the other."""

    def __init__(self, driver: Driver, address: str, transactional_id: str, group: str = "") -> None:
        self._driver = driver
        self._address = address
        self._id = transactional_id
        self._group = group

    def begin(self) -> None:
        self._driver.ask("begin", address=self._address, id=self._id)

    def send(self, topic: str, records: Sequence[Sent]) -> None:
        self._driver.ask("send", topic=topic, records=rows_of(records))

    def end(self, *, commit: bool) -> None:
        """End the transaction, with the positions of the process' member of the group, if there is one."""
        self._driver.ask("end", commit=commit, positions=bool(self._group), group=self._group)

    def transact(self, topic: str, records: Sequence[Sent], *, commit: bool) -> None:
        self.begin()
        self.send(topic, records)
        self.end(commit=commit)


def poll(members: Sequence[Member], timeout_ms: int = 100) -> list[Received]:
    """All at once: some libraries live only while they are polled."""
    for member in members:
        member.begin(timeout_ms)
    return [record for member in members for record in member.take(2 * timeout_ms / 1000)]


def rows_of(records: Sequence[Sent]) -> list[list[Any]]:
    return [
        [
            record.partition,
            record.timestamp,
            encoded(record.key),
            encoded(record.value),
            [[name, encoded(value)] for name, value in record.headers],
        ]
        for record in records
    ]


def received(row: list[Any]) -> Received:
    partition, offset, timestamp, key, value, headers = row
    named = tuple((name, decoded(content)) for name, content in headers)
    return Received(partition, offset, decoded(key), decoded(value), named, timestamp)


def encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
