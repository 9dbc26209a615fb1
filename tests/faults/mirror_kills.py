"""A mirror that is killed with -9 at its critical steps, and run again: the rounds of `test_mirror_kills`.

The mirror runs in a child process in which one function is wrapped so that it ends with SIGKILL: with records of an
open transaction in the log, with its offsets in it and all answered, with the request to commit on its way, and once it
is committed. Between the runs more is written to the source, also in transactions, of which some are aborted.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import chain
from typing import Any, Final, NoReturn

from klamm.client.blocking import NodeClient
from klamm.pipeline.__main__ import main
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.kafka.producer import Producer
from klamm.pipeline.kafka.topics import create_topic
from klamm.pipeline.ranges import TopicPartition
from klamm.protocol.messages.end_txn import EndTxnRequest
from klamm.protocol.records.batch import Record, encode_batch
from klamm.protocol.records.compression import Codec
from tests.pipeline.mirroring import all_rows, command, some

KEPT: Final = "kept"
KEYED: Final = "keyed"
PARTITIONS: Final = {KEPT: (2, 2), KEYED: (3, 2)}
"""At the source and at the target."""

FOREVER: Final = {"retention.ms": "-1"}
"""The records are of 1970."""


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def _open(count: Callable[[], bool]) -> None:
    real = Producer.send

    def send(self: Producer, partition: TopicPartition, *rest: Any) -> None:
        real(self, partition, *rest)
        if not partition.topic.endswith(".internal") and count():
            self.flush()
            die()

    Producer.send = send  # type: ignore[method-assign,assignment]


def _before(count: Callable[[], bool]) -> None:
    real = Producer.commit

    def commit(self: Producer) -> None:
        if count():
            self.flush()
            die()
        real(self)

    Producer.commit = commit  # type: ignore[method-assign]


def _asked(count: Callable[[], bool]) -> None:
    real = NodeClient.request

    def request(self: NodeClient, message: Any, *rest: Any, **more: Any) -> Any:
        if isinstance(message, EndTxnRequest) and message.committed and count():
            self.send(message, *rest)
            die()
        return real(self, message, *rest, **more)

    NodeClient.request = request  # type: ignore[method-assign]


def _after(count: Callable[[], bool]) -> None:
    real = Producer.commit

    def commit(self: Producer) -> None:
        real(self)
        if count():
            die()

    Producer.commit = commit  # type: ignore[method-assign]


POINTS: Final[dict[str, Callable[[Callable[[], bool]], None]]] = {
    "open": _open,
    "before": _before,
    "asked": _asked,
    "after": _after,
}


class Kills:
    """Two clusters, and the mirror between them."""

    def __init__(self, source: Cluster, target: Cluster, name: str, rng: random.Random) -> None:
        self.source = source
        self.target = target
        self.rng = rng
        self.killed: Counter[str] = Counter()
        self._written = 0
        self.kept, self.keyed = f"{name}-{KEPT}", f"{name}-{KEYED}"
        for topic, counts in ((self.kept, PARTITIONS[KEPT]), (self.keyed, PARTITIONS[KEYED])):
            for cluster, count in zip((source, target), counts, strict=True):
                create_topic(cluster, topic, partitions=count, configs=FOREVER)

    def write(self) -> None:
        """Write a batch to each partition, one in a committed transaction, and one in an aborted one."""
        topics = self.source.topics([self.kept, self.keyed])
        partitions = [one for topic in topics.values() for one in topic.topic_partitions]
        with Producer(self.source) as producer:
            for partition in partitions:
                producer.send(partition, encode_batch(self._records(partition), codec=self.rng.choice(list(Codec))))
        with Producer(self.source, transactional_id="writer") as producer:
            for is_committed in self.rng.sample([True, False], 2):
                producer.begin()
                for partition in partitions:
                    producer.send(partition, encode_batch(self._records(partition)))
                producer.flush()
                producer.commit() if is_committed else producer.abort()

    def run(self, point: str | None = None) -> None:
        """Run the mirror to its end, or to its death at a point. It may end before that point."""
        nth = self.rng.randint(1, sum(count for count, _ in PARTITIONS.values()))
        child = os.fork()
        if child == 0:
            try:
                if point is not None:
                    POINTS[point](Countdown(nth))
                os._exit(main(self._command()))
            finally:
                os._exit(70)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            self.killed[point or ""] += 1
        else:
            assert os.WEXITSTATUS(status) == 0, f"exit status {os.WEXITSTATUS(status)}, killed so far {self.killed}"

    def run_in_spark(self, delay_s: float) -> None:
        """Run the whole command, in a process group that is killed so long after it has printed its plan."""
        arguments = [*self._command("local[2]"), "--progress", "log"]
        with subprocess.Popen(
            [sys.executable, "-m", "klamm.pipeline", *arguments],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            assert process.stderr is not None
            planned = next((line for line in process.stderr if " planned " in line), None)
            assert planned is not None, f"it ended with {process.wait()}"
            try:
                assert process.wait(delay_s) == 0
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                self.killed["spark"] += 1

    def check(self) -> int:
        """Check that every committed record is there once, and in order; return how many there are."""
        kept = all_rows(self.source, self.kept)
        assert all_rows(self.target, self.kept) == kept
        wanted, found = all_rows(self.source, self.keyed), all_rows(self.target, self.keyed)
        assert Counter(map(repr, chain(*found))) == Counter(map(repr, chain(*wanted)))
        assert _by_key(found) == _by_key(wanted)
        return len(list(chain(*kept, *wanted)))

    def _records(self, partition: TopicPartition) -> list[Record]:
        count = self.rng.randint(1, 40)
        self._written += count
        records = some(count, first=self._written)
        return [one._replace(key=one.key and b"%d-%d" % (partition.partition, one.timestamp % 17)) for one in records]

    def _command(self, master: str = "none") -> list[str]:
        return command(
            self.source.bootstrap_servers,
            self.target.bootstrap_servers,
            "--topics",
            f"{self.kept},{self.keyed}",
            "--no-configs",
            master=master,
        )


class Countdown:
    """A condition that is true once, at the nth call."""

    def __init__(self, nth: int) -> None:
        self._left = nth

    def __call__(self) -> bool:
        self._left -= 1
        return self._left == 0


def _by_key(partitions: list[list[Any]]) -> dict[Any, list[Any]]:
    """The times of each key in one source partition, which is in the key: they ascend there."""
    found = defaultdict(list)
    for rows in partitions:
        for key, _, timestamp, _ in rows:
            if key is not None:
                found[key].append(timestamp)
    return found
