"""Loads without Spark's tasks: the rows of the table, the errors that stop a load, its messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from klamm.pipeline.arrow import record_batches
from klamm.pipeline.errors import (
    BadOption,
    BadRecord,
    ConcurrentCommit,
    DataLoss,
    PipelineError,
    SchemaChanged,
    UnknownTopic,
)
from klamm.pipeline.jobs.dead_letters import Reason
from klamm.pipeline.jobs.load.rows import Rows
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.kafka.fetcher import fetch_columns
from klamm.pipeline.ranges import EARLIEST, LATEST, OffsetRange, TopicPartition
from klamm.pipeline.report import Report
from klamm.pipeline.spark.source.options import Bound
from klamm.pipeline.table import Change, Table
from klamm.pipeline.values import parse_format
from tests.pipeline.jobs.load.changing import delete_before, delete_topic
from tests.pipeline.jobs.load.loading import (
    START_MS,
    Loading,
    duckdb_rows,
    json_rows,
    log_rows,
    new_topic,
    one_line,
    produce,
    rows_of,
)
from tests.pipeline.jobs.load.transformations import doubled, tripled
from tests.pipeline.spark.source.filling import fill

pytestmark = pytest.mark.clients
TRANSFORMATIONS = doubled.__module__


@pytest.fixture
def loading(cluster: Cluster, tmp_path: Path) -> Callable[[str], Loading]:
    return lambda topics: Loading(cluster, tmp_path / "table", topics)


# -- what gets in


def test_committed_records_once_run_after_run(cluster: Cluster, loading: Callable[[str], Loading]) -> None:
    fill(cluster, "filled")
    load = loading("filled")
    assert load.once() == len(log_rows(cluster, "filled")) > 200
    assert rows_of(load.path) == duckdb_rows(load.path) == log_rows(cluster, "filled")
    assert load.once() == 0
    assert load.table().version == 1
    produce(cluster, TopicPartition("filled", 1), [b"new", None, b""])
    assert load.once(max_records_per_task=2) == 3
    assert rows_of(load.path) == log_rows(cluster, "filled")
    read = load.table().delta.to_pyarrow_table()
    assert read.schema.names[-1] == "date" and set(read["topic"].to_pylist()) == {"filled"}
    assert set(read["timestamp_type"].to_pylist()) == {0}
    assert any(headers for headers in read["headers"].to_pylist())
    assert all(row["timestamp"].date() == row["date"] for row in read.select(["timestamp", "date"]).to_pylist())


def test_a_file_for_each_topic_partition(cluster: Cluster, loading: Callable[[str], Loading]) -> None:
    for name in ("wide.a", "wide.b"):
        new_topic(cluster, name, 3)
        for partition in range(3):
            produce(cluster, TopicPartition(name, partition), [b"v"])
    load = loading("wide.a,wide.b")
    assert load.once() == 6
    files = [(file.topic, file.partition) for file in load.table().files()]
    assert sorted(files) == [(name, partition) for name in ("wide.a", "wide.b") for partition in range(3)]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (Bound("--from", everywhere=EARLIEST), 10),
        (Bound("--from", everywhere=LATEST), 0),
        (Bound("--from", timestamp=START_MS + 4), 6),
        (Bound("--from", timestamp=START_MS + 100), 0),
        (Bound("--from", offsets={TopicPartition("started", 0): 7}), 3),
    ],
)
def test_where_a_new_partition_begins(
    cluster: Cluster, loading: Callable[[str], Loading], start: Bound, expected: int
) -> None:
    partition = TopicPartition("started", 0)
    if "started" not in cluster.topics():
        new_topic(cluster, "started")
        produce(cluster, partition, [b"v"] * 10)
    load = loading("started")
    assert load.once(start=start) == expected
    assert load.table().next_offsets == {partition: 10}
    assert load.once(start=start) == 0


def test_commits_of_a_bounded_size(cluster: Cluster, loading: Callable[[str], Loading]) -> None:
    partition = new_topic(cluster, "bounded")
    produce(cluster, partition, [b"v"] * 10)
    load = loading("bounded")
    with load.loader(max_records_per_commit=4) as loader:
        assert loader.available_now() == 10
    assert [len(rows_of(load.path, version)) for version in range(4)] == [0, 4, 8, 10]


def test_every_few_seconds_until_stopped(cluster: Cluster, loading: Callable[[str], Loading]) -> None:
    partition = new_topic(cluster, "repeated")
    load = loading("repeated")

    class Stop(threading.Event):
        waits = 0

        def wait(self, timeout: float | None = None) -> bool:
            self.waits += 1
            produce(cluster, partition, [b"v"])
            if self.waits == 3:
                self.set()
            return self.is_set()

    with load.loader() as loader:
        assert loader.every(1, Stop()) == 2
    assert len(rows_of(load.path)) == 2


# -- values


def test_json_values_become_a_struct(cluster: Cluster, loading: Callable[[str], Loading], tmp_path: Path) -> None:
    partition = new_topic(cluster, "json")
    produce(cluster, partition, [b'{"a":1}', None, b'{"a":2,"b":3}'])
    load = loading("json")
    rows = Rows(key=parse_format("key", "string"), value=json_rows(tmp_path).value, headers=False)
    assert load.once(rows=rows) == 3
    assert rows_of(load.path) == [(0, 0, "k0", {"a": 1}), (0, 1, "k1", None), (0, 2, "k2", {"a": 2})]
    assert "headers" not in load.table().schema.names


def test_a_record_that_does_not_parse_stops_the_load(
    cluster: Cluster, loading: Callable[[str], Loading], tmp_path: Path
) -> None:
    partition = new_topic(cluster, "bad")
    produce(cluster, partition, [b'{"a":1}', b'{"a":"x"}', b"{"])
    load = loading("bad")
    with pytest.raises(BadRecord) as caught:
        load.once(rows=json_rows(tmp_path))
    assert one_line(caught).startswith("bad-0 offset 1 does not parse: value: Column(/a) changed from number to string")
    assert load.table().next_offsets == {} and rows_of(load.path) == []


def test_records_that_do_not_parse_become_dead_letters(
    cluster: Cluster, loading: Callable[[str], Loading], tmp_path: Path
) -> None:
    partition = new_topic(cluster, "mixed", message_timestamp_after_max_ms=str(2**62))
    new_topic(cluster, "mixed.dead", message_timestamp_after_max_ms=str(2**62))
    produce(cluster, partition, [b'{"a":1}', b"{", b"", b'{"a":2}'])
    produce(cluster, partition, [b'{"a":3}'], at_ms=300_000_000_000_000)
    load = loading("mixed")
    assert load.once(rows=json_rows(tmp_path), dead_letters="mixed.dead") == 2
    assert [row[1] for row in rows_of(load.path)] == [0, 3]
    assert load.table().next_offsets == {partition: 5}
    facts = next(load.table().commits()).facts
    assert facts["dead_letters"] == {"mixed": {"0": [[1, 3], [4, 5]]}} and facts["records"] == 2
    wanted = OffsetRange("mixed.dead", 0, 0, 3)
    headers = [
        item
        for batch in record_batches(fetch_columns(cluster, wanted), "mixed.dead", 0, headers=True)
        for item in batch["headers"].to_pylist()
    ]
    reasons = [Reason.of([(item["key"], item["value"]) for item in found]) for found in headers]
    assert [(item.topic, item.partition, item.offset, item.job) for item in reasons] == [
        ("mixed", 0, offset, "load") for offset in (1, 2, 4)
    ]
    assert reasons[2].message == "timestamp: 300000000000000 ms is not within the years 1 to 9999"


def test_letters_of_a_run_that_was_not_committed_are_there_twice(
    cluster: Cluster, loading: Callable[[str], Loading], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is exact all the same; topic, partition and offset tell the doubles."""
    partition = new_topic(cluster, "torn")
    dead = new_topic(cluster, "torn.dead")
    produce(cluster, partition, [b"{", b'{"a":1}'])
    load = loading("torn")
    commit = Table.commit

    def lost(table: Table, change: Change) -> int:
        monkeypatch.setattr(Table, "commit", commit)
        raise PipelineError("no power")

    monkeypatch.setattr(Table, "commit", lost)
    with pytest.raises(PipelineError, match="no power"):
        load.once(rows=json_rows(tmp_path), dead_letters=dead.topic)
    assert load.once(rows=json_rows(tmp_path), dead_letters=dead.topic) == 1
    assert [row[1] for row in rows_of(load.path)] == [1]
    letters = list(
        record_batches(fetch_columns(cluster, OffsetRange("torn.dead", 0, 0, 2)), "torn.dead", 0, headers=True)
    )
    headers = [found for batch in letters for found in batch["headers"].to_pylist()]
    reasons = [Reason.of([(item["key"], item["value"]) for item in found]) for found in headers]
    assert [(item.topic, item.partition, item.offset) for item in reasons] == [("torn", 0, 0)] * 2


def test_wrong_dead_letter_topics(cluster: Cluster, loading: Callable[[str], Loading]) -> None:
    new_topic(cluster, "own")
    with pytest.raises(UnknownTopic, match=r"topic none\.dead does not exist"):
        loading("own").once(dead_letters="none.dead")
    with pytest.raises(BadOption, match="--dlq own: this topic is itself loaded"):
        loading("own").once(dead_letters="own")


# -- transformations and schemas


def sizes(load: Loading, version: int | None = None) -> list[tuple[int, int]]:
    read = load.table(version).delta.to_pyarrow_table(columns=["offset", "size"])
    return sorted(zip(read["offset"].to_pylist(), read["size"].to_pylist(), strict=True))


def transform(function: Any) -> Rows:
    return Rows(transform=f"{function.__module__}:{function.__name__}")


def test_what_was_loaded_since_a_moment_is_replaced_in_one_commit(
    cluster: Cluster, loading: Callable[[str], Loading]
) -> None:
    partition = new_topic(cluster, "again")
    load = loading("again")
    moments = []
    for _ in range(3):
        produce(cluster, partition, [b"12345"] * 4)
        load.once(rows=transform(doubled))
        moments.append(next(load.table().commits()).timestamp_ms)
        time.sleep(0.002)
    assert load.table().version == 3
    produce(cluster, partition, [b"123456"])
    assert load.once(moments[0], rows=transform(tripled)) == 9
    assert load.table().version == 4
    assert sizes(load) == [(at, 5) for at in range(4)] + [(at, 15) for at in range(4, 12)] + [(12, 18)]
    assert sizes(load, 3) == [(at, 5) for at in range(12)]
    facts = next(load.table().commits()).facts
    assert facts["ranges"] == {"again": {"0": [4, 13]}} and facts["rerun_from"].endswith("Z")
    # A later moment, with files that were replaced since: their replacements are replaced as a whole.
    assert load.once(moments[1], rows=transform(doubled)) == 9
    assert sizes(load) == [(at, 5) for at in range(12)] + [(12, 6)]
    assert load.once(0, rows=transform(tripled)) == 13
    assert load.once(rows=transform(tripled)) == 0
    with pytest.raises(PipelineError, match="no table"):
        Loading(cluster, load.path.with_name("none"), "again").once(0)


def test_a_changed_schema_is_an_error_and_nothing_is_written(
    cluster: Cluster, loading: Callable[[str], Loading]
) -> None:
    partition = new_topic(cluster, "changed")
    produce(cluster, partition, [b"v"])
    load = loading("changed")
    load.once()
    produce(cluster, partition, [b"w"])
    with pytest.raises(SchemaChanged, match="column value is binary there, and string in this load"):
        load.once(rows=Rows(value=parse_format("value", "string")))
    with pytest.raises(SchemaChanged, match="has a column headers, which this load would not write"):
        load.once(rows=Rows(headers=False))
    with pytest.raises(SchemaChanged, match="has no column size, which this load would write; --add-columns"):
        load.once(rows=transform(doubled))
    assert load.table().version == 1
    assert load.once(rows=transform(doubled), add_columns=True) == 1
    assert sizes(load) == [(0, None), (1, 1)]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nonsense", "it has the form module:function"),
        ("klamm.none:x", "No module named"),
        ("json:nothing", "has no attribute 'nothing'"),
        ("json:__name__", "__name__ is not a function"),
        (f"{TRANSFORMATIONS}:failing", "ValueError: no"),
        (f"{TRANSFORMATIONS}:shifted", "must not change the column offset"),
        (f"{TRANSFORMATIONS}:halved", "as many rows as it got"),
    ],
)
def test_wrong_transformations(cluster: Cluster, loading: Callable[[str], Loading], name: str, reason: str) -> None:
    if "transformed" not in cluster.topics():
        produce(cluster, new_topic(cluster, "transformed"), [b"v"])
    with pytest.raises(PipelineError) as caught:
        loading("transformed").once(rows=Rows(transform=name))
    assert reason in one_line(caught)


# -- losses and rivals


def test_lost_offsets_stop_the_load_or_are_a_gap(cluster: Cluster, loading: Callable[[str], Loading]) -> None:
    partition = new_topic(cluster, "lossy")
    produce(cluster, partition, [b"v"] * 5)
    load = loading("lossy")
    load.once()
    produce(cluster, partition, [b"v"] * 5)
    delete_before(cluster, partition, 8)
    with pytest.raises(DataLoss) as caught:
        load.once()
    assert one_line(caught).startswith("lossy-0: offsets 5 to 8 are no longer in the log; nothing was written")
    assert load.table().version == 1
    assert load.once(gaps_allowed=True) == 2
    assert [row[1] for row in rows_of(load.path)] == [0, 1, 2, 3, 4, 8, 9]
    assert next(load.table().commits()).facts["gaps"] == {"lossy": {"0": [[5, 8]]}}
    assert load.once() == 0


def test_a_recreated_topic(cluster: Cluster, loading: Callable[[str], Loading]) -> None:
    partition = new_topic(cluster, "recreated")
    produce(cluster, partition, [b"old"] * 3)
    load = loading("recreated")
    load.once()
    delete_topic(cluster, "recreated")
    with pytest.raises(UnknownTopic):
        load.once()
    new_topic(cluster, "recreated")
    produce(cluster, partition, [b"new"] * 5)
    with pytest.raises(DataLoss, match="topic recreated was deleted and created again"):
        load.once()
    with pytest.raises(DataLoss, match="its old records are gone"):
        load.once(0)
    assert load.once(gaps_allowed=True) == 5
    assert load.once() == 0
    assert len(rows_of(load.path)) == 8
    assert next(load.table().commits()).facts["recreated"] == ["recreated"]


def test_the_later_of_two_loaders_gets_an_error(cluster: Cluster, loading: Callable[[str], Loading]) -> None:
    partition = new_topic(cluster, "rivals")
    produce(cluster, partition, [b"v"])
    load = loading("rivals")
    load.once()
    produce(cluster, partition, [b"v"])

    class Slow:
        parallelism = 1

        def run(self, work: Any, items: Any, progress: Any) -> Any:
            results = [work(item) for item in items]
            assert load.once() == 1
            return results

    with (
        Report(),
        load.loader(Slow()) as loader,
        pytest.raises(ConcurrentCommit, match="another job has loaded rivals-0"),
    ):
        loader.once()
    assert [row[1] for row in rows_of(load.path)] == [0, 1]
