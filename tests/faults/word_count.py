"""A word count of Kafka Streams, exactly once, which is killed together with the broker, again and again.

Nothing is cached in it, so it writes for each word the numbers 1, 2, 3 and so on up to its count, in this order: a word
that is counted twice or left out shows as a number that is doubled or missing.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Self

from confluent_kafka import Consumer, Producer, TopicPartition

from klamm.client.blocking import NodeClient
from klamm.protocol.messages.metadata import MetadataRequest
from tests.clients.raw import create
from tests.support.broker_process import BrokerProcess, wait_for
from tests.support.jars import JAVA, classpath, java

LINES, COUNTS = "lines", "counts"
PARTITIONS = 2
WORDS = [f"word-{number}" for number in range(40)]
WORDS_A_LINE = 5
PATIENCE_S = 120.0
CONFIG = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}


class Streams:
    """The program, in a JVM of its own."""

    def __init__(self, directory: Path, address: str) -> None:
        self._directory = directory
        self._address = address
        self._process: subprocess.Popen[bytes] | None = None
        self.output = directory / "streams.out"
        javac = shutil.which("javac")
        assert javac is not None, "there is no javac: install default-jdk-headless"
        source = JAVA / "streams" / "WordCount.java"
        command = [javac, "-cp", classpath("streams"), "-d", str(directory / "classes"), str(source)]
        subprocess.run(command, check=True, timeout=PATIENCE_S)

    def start(self) -> None:
        command = [java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
        command += ["-cp", classpath("streams", self._directory / "classes"), "WordCount", self._address]
        with self.output.open("ab") as out:
            self._process = subprocess.Popen([*command, str(self._directory / "state")], stdout=out, stderr=out)

    def kill(self) -> None:
        """kill -9, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *what: object) -> None:
        self.kill()


class Reader(threading.Thread):
    """A thread that reads the counts, committed ones only, from the first to the last."""

    def __init__(self, address: str) -> None:
        super().__init__(name="reader", daemon=True)
        self.numbers: dict[str, list[int]] = {word: [] for word in WORDS}
        self.total = 0
        self.stopping = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(COUNTS, partition, 0) for partition in range(PARTITIONS)])

    def run(self) -> None:
        while not self.stopping.is_set():
            for message in self._consumer.consume(1000, 0.1):
                key, value = message.key(), message.value()
                if message.error() is None and isinstance(key, bytes) and isinstance(value, bytes):
                    self.numbers[key.decode()].append(int.from_bytes(value, "big"))
                    self.total += 1
        self._consumer.close()


class WordCounts:
    """One campaign: `run` does the rounds, `verify` looks at every number."""

    def __init__(self, directory: Path, rng: random.Random) -> None:
        self.directory = directory
        self.rng = rng
        self.broker = BrokerProcess(directory / "data", CONFIG)
        self.expected: Counter[str] = Counter()
        self.numbers: dict[str, list[int]] = {}

    def run(self, rounds: int, lines: int) -> None:
        """Write `lines` in each round, and kill both while they are counted."""
        with NodeClient(self.broker.host, self.broker.port) as node:
            for topic in (LINES, COUNTS):
                create(node, topic, PARTITIONS)
        reader = Reader(self.broker.address)
        reader.start()
        producer = Producer({"bootstrap.servers": self.broker.address, "enable.idempotence": True, "log_level": 0})
        with Streams(self.directory, self.broker.address) as streams:
            for _ in range(rounds):
                before = reader.total
                self._write(producer, lines)
                due = before + self.rng.randint(1, lines * WORDS_A_LINE // 2)
                self._wait(lambda due=due: reader.total >= due, streams, "counts")
                time.sleep(self.rng.uniform(0, 0.1))
                self._kill(streams)
            self._write(producer, lines)
            total = sum(self.expected.values())
            self._wait(lambda: reader.total >= total, streams, f"all {total} counts")
            time.sleep(0.5)  # nothing more may come
        reader.stopping.set()
        reader.join()
        self.numbers = reader.numbers

    def _write(self, producer: Producer, lines: int) -> None:
        for _ in range(lines):
            words = self.rng.choices(WORDS, k=WORDS_A_LINE)
            self.expected.update(words)
            producer.produce(LINES, " ".join(words).encode(), partition=self.rng.randrange(PARTITIONS))
        assert producer.flush(PATIENCE_S) == 0

    def _kill(self, streams: Streams) -> None:
        kills = [self.broker.kill, streams.kill]
        self.rng.shuffle(kills)
        for kill in kills:
            kill()
            time.sleep(self.rng.uniform(0, 0.05))
        self.broker.restart()
        streams.start()

    def _wait(self, condition: object, streams: Streams, what: str) -> None:
        try:
            wait_for(condition, PATIENCE_S, what)
        except AssertionError:
            print(streams.output.read_text()[-4000:])
            raise

    def verify(self) -> dict[str, int]:
        """The facts for the report."""
        for word, numbers in self.numbers.items():
            expected = list(range(1, self.expected[word] + 1))
            assert numbers == expected, f"{word}: {numbers[-10:]}, {len(numbers)} instead of {len(expected)}"
        log = self.broker.log()
        assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:3000]
        with NodeClient(self.broker.host, self.broker.port) as node:
            names = topics(node)
        made = {f"word-count-counts-store-{kind}" for kind in ("changelog", "repartition")}
        assert made <= names, names
        return {"words": sum(self.expected.values()), "different ones": len(self.expected)}


def topics(node: NodeClient) -> set[str]:
    """The names of all topics."""
    return {topic.name for topic in node.request(MetadataRequest(topics=None), 12).topics}
