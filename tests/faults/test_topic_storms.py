"""kill -9 in the middle of storms of topic creations, deletions and partition additions.

After each restart metadata and disk agree: every topic is whole (each partition has its directory with the right topic
id and takes records) or gone (no directory). Acknowledged changes hold; those in flight went one way or the other.
"""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from klamm.client.blocking import NodeClient
from klamm.client.errors import ClientError
from klamm.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from klamm.protocol.messages.create_topics import CreateTopicsRequest
from klamm.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from klamm.protocol.messages.metadata import MetadataRequest
from klamm.protocol.wire import uuid_to_text
from tests.faults.campaign import scaled, seeded
from tests.faults.network_cases import Broker, new_topic, one
from tests.support.broker_process import BrokerProcess

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]

ROUNDS = scaled(5, 60)
STORMS = 3
GONE = 0  # a topic with no partitions


class Storm(threading.Thread):
    """A thread that changes its own few topics until the broker dies, and knows what each may be afterwards."""

    def __init__(self, port: int, number: int, known: dict[str, set[int]], seed: float) -> None:
        super().__init__(daemon=True)
        self._client = NodeClient("127.0.0.1", port)
        self._rng = random.Random(seed)
        self._names = [f"storm-{number}-{n}" for n in range(4)]
        self.known = known  # name: the partition counts that it may have
        self.changes = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while True:
                self._change(self._rng.choice(self._names))
        except ClientError:
            pass  # killed
        except BaseException as error:
            self.error = error
        finally:
            self._client.close()

    def _change(self, name: str) -> None:
        (count,) = self.known[name]
        if count == GONE:
            after = self._rng.randint(1, 6)
            request: Any = CreateTopicsRequest(topics=[new_topic(name, partitions=after)], timeout_ms=10_000)
        elif self._rng.random() < 0.5:
            after = GONE
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000)
        else:
            after = count + self._rng.randint(1, 3)
            wanted = CreatePartitionsTopic(name=name, count=after, assignments=None)
            request = CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000)
        self.known[name] = {count, after}
        answer = self._client.request(request)
        results = getattr(answer, "topics", None) or getattr(answer, "responses", None) or answer.results
        assert results[0].error_code == 0, (request, answer)
        self.known[name] = {after}
        self.changes += 1


def test_topics_are_whole_or_gone_after_a_kill(tmp_path: Path) -> None:
    rng = seeded("topic storms")
    known: list[dict[str, set[int]]] = [{f"storm-{n}-{m}": {GONE} for m in range(4)} for n in range(STORMS)]
    changes = 0
    with BrokerProcess(tmp_path / "data", {"auto.create.topics.enable": "false"}) as process:
        for _ in range(ROUNDS):
            storms = [Storm(process.port, n, known[n], rng.random()) for n in range(STORMS)]
            for storm in storms:
                storm.start()
            time.sleep(rng.uniform(0.1, 0.8))
            process.kill()
            for storm in storms:
                storm.join(30)
                if storm.error is not None:
                    raise storm.error
                changes += storm.changes
            process.restart()
            with Broker(process.port) as peer:
                counts = check(peer, process.data)
            for topics in known:
                for name, possible in topics.items():
                    assert counts.get(name, GONE) in possible, f"{name}: {counts.get(name, GONE)}, not in {possible}"
                    topics[name] = {counts.get(name, GONE)}
        assert process.terminate() == 0
    print(f"{changes} changes")
    assert changes >= ROUNDS
    assert "Traceback" not in process.log()
    assert " offline" not in process.log()


def check(peer: Broker, data: Path) -> dict[str, int]:
    """Check that metadata and disk agree, and every partition takes a record; return partition counts by topic."""
    counts: dict[str, int] = {}
    expected: dict[str, str] = {}
    for topic in peer.ask(MetadataRequest(topics=None), 12).topics:
        assert topic.error_code == 0
        counts[topic.name] = len(topic.partitions)
        assert sorted(p.partition_index for p in topic.partitions) == list(range(len(topic.partitions)))
        for partition in topic.partitions:
            assert (partition.error_code, partition.leader_id) == (0, 1)
            expected[f"{topic.name}-{partition.partition_index}"] = uuid_to_text(topic.topic_id)
            assert peer.produce(one(), topic=topic.name, partition=partition.partition_index) == 0
    found = {path.name: path for path in data.iterdir() if path.is_dir()}
    assert found.keys() == expected.keys()
    for name, topic_id in expected.items():
        assert f"topic_id: {topic_id}" in (found[name] / "partition.metadata").read_text()
    return counts
