"""Letters hold the record as it was, and tell where it is and why it is one."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from klamm.pipeline.arrow import SCHEMA_WITH_HEADERS
from klamm.pipeline.errors import UnknownTopic
from klamm.pipeline.jobs.dead_letters import DeadLetters, Reason, own_headers
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.kafka.topics import create_topic
from klamm.protocol.records.batch import Record, batches, records
from tests.clients.raw import fetch_all
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with BrokerProcess(tmp_path_factory.mktemp("klamm") / "data") as broker, Cluster(broker.address) as found:
        yield found


def all_records(cluster: Cluster, topic: str, partition: int = 0) -> list[Record]:
    data = fetch_all(cluster.client(*cluster._bootstrap[0]), topic, partition)
    return [one for at, header in batches(data) if not header.is_control for one in records(data, header, 1 << 30, at)]


def a_batch() -> pa.RecordBatch:
    rows = [
        {"key": b"k%d" % n, "value": b"v%d" % n, "topic": "t", "partition": 3, "offset": 40 + n, "timestamp": n * 1000,
         "timestampType": 0, "headers": [{"key": "h", "value": None}] if n % 2 else None}
        for n in range(4)
    ]  # fmt: skip
    rows[2]["key"] = None
    return pa.RecordBatch.from_pylist(rows, SCHEMA_WITH_HEADERS)


def test_a_letter_is_the_record_with_the_reason_after_its_headers(cluster: Cluster) -> None:
    create_topic(cluster, "dead")
    with DeadLetters(cluster, "dead", job="load", task="t-3") as letters:
        letters.put(a_batch(), {})
        letters.put(a_batch(), {1: "value: no JSON", 2: "key: not UTF-8"})
        assert letters.count == 2
    first, second = all_records(cluster, "dead")
    assert (first.key, first.value, first.timestamp) == (b"k1", b"v1", 1)
    assert (second.key, second.value, second.timestamp) == (None, b"v2", 2)
    assert first.headers == (
        ("h", None),
        ("__connect.errors.topic", b"t"),
        ("__connect.errors.partition", b"3"),
        ("__connect.errors.offset", b"41"),
        ("__connect.errors.connector.name", b"load"),
        ("__connect.errors.task.id", b"t-3"),
        ("__connect.errors.stage", b"VALUE_CONVERTER"),
        ("__connect.errors.class.name", b"klamm.pipeline.load"),
        ("__connect.errors.exception.class.name", b"klamm.pipeline.errors.BadRecord"),
        ("__connect.errors.exception.message", b"value: no JSON"),
    )
    assert Reason.of(second.headers) == Reason("t", 3, 42, "load", "KEY_CONVERTER", "key: not UTF-8")
    assert own_headers(first.headers) == [("h", None)]


def test_keys_choose_the_partition(cluster: Cluster) -> None:
    create_topic(cluster, "spread", partitions=5)
    with DeadLetters(cluster, "spread", job="load") as letters:
        letters.put(a_batch(), dict.fromkeys(range(4), "no"))
    found = {partition: [one.key for one in all_records(cluster, "spread", partition)] for partition in range(5)}
    assert None in found[3]  # as the record was in partition 3
    assert sorted(key for keys in found.values() for key in keys if key) == [b"k0", b"k1", b"k3"]


def test_a_missing_topic_is_an_error_and_nothing_is_asked_without_letters(cluster: Cluster) -> None:
    with DeadLetters(Cluster("127.0.0.1:1"), "nosuch", job="load") as letters:
        letters.flush()
    with pytest.raises(UnknownTopic, match="nosuch"), DeadLetters(cluster, "nosuch", job="load") as letters:
        letters.put(a_batch(), {0: "no"})


def test_letters_of_connect_are_understood() -> None:
    reason = Reason.of([("__connect.errors.topic", b"t"), ("__connect.errors.offset", b"x"), ("other", b"1")])
    assert reason == Reason("t", None, None, "", "", "")
