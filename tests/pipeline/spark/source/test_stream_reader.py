"""What a stream plans: starts, limits, ends, and what it says when offsets are lost. Without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from klamm.pipeline.errors import DataLoss
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.kafka.producer import Producer
from klamm.pipeline.kafka.topics import add_partitions, create_topic
from klamm.pipeline.ranges import TopicPartition
from klamm.pipeline.spark.source.options import STREAM, parse
from klamm.pipeline.spark.source.stream import StreamReader, limited_ends
from klamm.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from klamm.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from klamm.protocol.records.batch import Record, encode_batch
from tests.pipeline.spark.source.filling import KEPT, START_MS
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.clients
ALL = ReadAllAvailable()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with BrokerProcess(tmp_path_factory.mktemp("klamm") / "data") as broker, Cluster(broker.address) as cluster:
        yield cluster


class Stream:
    """A reader of one topic, and the clock it looks at."""

    def __init__(self, cluster: Cluster, topic: str, **more: str) -> None:
        self.now_s = 0.0
        given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, **more}
        self.reader = StreamReader(parse(given, STREAM), monotonic=lambda: self.now_s)

    def __enter__(self) -> StreamReader:
        return self.reader

    def __exit__(self, *_: object) -> None:
        self.reader.stop()


def append(cluster: Cluster, topic: str, *counts: int) -> None:
    """Append so many more records to each partition."""
    with Producer(cluster) as producer:
        for partition, count in enumerate(counts):
            if count:
                records = [Record(index, START_MS + index, None, b"%d" % index, ()) for index in range(count)]
                producer.send(TopicPartition(topic, partition), encode_batch(records))


def made(cluster: Cluster, topic: str, *counts: int) -> None:
    create_topic(cluster, topic, partitions=len(counts), configs=KEPT)
    append(cluster, topic, *counts)


def rows(reader: StreamReader, start: Any, end: Any) -> list[tuple[int, int]]:
    tasks = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    task_reader = pickle.loads(pickle.dumps(reader))
    return [
        (row["partition"], row["offset"])
        for task in tasks
        for batch in task_reader.read(task)
        for row in batch.to_pylist()
    ]


def test_a_batch_is_what_came_since_the_last(cluster: Cluster) -> None:
    made(cluster, "grows", 3, 0)
    with Stream(cluster, "grows") as reader:
        start = reader.initialOffset()
        assert start == {"grows": {"0": 3, "1": 0}}
        assert reader.latestOffset(start, ALL) == start
        append(cluster, "grows", 1, 2)
        end = reader.latestOffset(start, ALL)
        assert end == reader.reportLatestOffset() == {"grows": {"0": 4, "1": 2}}
        assert rows(reader, start, end) == [(0, 3), (1, 0), (1, 1)]
        reader.commit(end)
        assert reader.partitions(end, end) == []


def test_a_stream_may_start_at_offsets_and_times(cluster: Cluster) -> None:
    made(cluster, "starts", 10, 10)
    earliest = {"starts": {"0": 0, "1": 0}}
    for more, expected in (
        ({"startingOffsets": "earliest"}, earliest),
        ({"startingOffsets": '{"starts": {"0": 4, "1": -1}}'}, {"starts": {"0": 4, "1": 10}}),
        ({"startingTimestamp": str(START_MS + 6)}, {"starts": {"0": 6, "1": 6}}),
    ):
        with Stream(cluster, "starts", **more) as reader:
            assert reader.initialOffset() == expected


def test_a_batch_has_at_most_so_many_offsets(cluster: Cluster) -> None:
    made(cluster, "limited", 100, 20)
    with Stream(cluster, "limited", startingOffsets="earliest", maxOffsetsPerTrigger="30") as reader:
        limit = reader.getDefaultReadLimit()
        assert limit == ReadMaxRows(30)
        start, seen = reader.initialOffset(), []
        while (end := reader.latestOffset(start, limit)) != start:
            found = rows(reader, start, end)
            assert len(found) <= 30
            seen += found
            start = end
        assert sorted(seen) == [(0, offset) for offset in range(100)] + [(1, offset) for offset in range(20)]
        assert reader.latestOffset(reader.initialOffset(), ALL) == {"limited": {"0": 100, "1": 20}}


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 1000)), min_size=1, max_size=8), st.integers(1, 500))
def test_limits_are_shared_out_and_all_is_read_at_last(sizes: list[tuple[int, int]], limit: int) -> None:
    starts = {TopicPartition("t", index): start for index, (start, _) in enumerate(sizes)}
    ends = {TopicPartition("t", index): start + count for index, (start, count) in enumerate(sizes)}
    rounds = 0
    while starts != ends:
        found = limited_ends(starts, ends, limit)
        total = sum(found[one] - starts[one] for one in starts)
        assert all(starts[one] <= found[one] <= ends[one] for one in starts)
        assert total == min(limit, sum(ends[one] - starts[one] for one in starts))
        starts, rounds = found, rounds + 1
    assert rounds <= sum(count for _, count in sizes) // limit + 1


def test_a_batch_waits_for_enough_or_for_long_enough(cluster: Cluster) -> None:
    made(cluster, "waits", 0)
    stream = Stream(cluster, "waits", minOffsetsPerTrigger="10", maxTriggerDelay="60s")
    with stream as reader:
        limit, start = reader.getDefaultReadLimit(), reader.initialOffset()
        assert limit == ReadMinRows(10)
        append(cluster, "waits", 4)
        assert reader.latestOffset(start, limit) == start
        assert reader.latestOffset(start, ALL) == {"waits": {"0": 4}}
        stream.now_s = 59.0
        assert reader.latestOffset(start, limit) == start
        stream.now_s = 60.0
        assert (start := reader.latestOffset(start, limit)) == {"waits": {"0": 4}}
        append(cluster, "waits", 10)
        assert reader.latestOffset(start, limit) == {"waits": {"0": 14}}


def test_what_arrives_later_is_not_of_a_run_of_what_is_available(cluster: Cluster) -> None:
    made(cluster, "now", 20)
    with Stream(
        cluster, "now", startingOffsets="earliest", minOffsetsPerTrigger="15", maxOffsetsPerTrigger="15"
    ) as reader:
        reader.prepareForTriggerAvailableNow()
        append(cluster, "now", 5)
        limit, start = reader.getDefaultReadLimit(), reader.initialOffset()
        first = reader.latestOffset(start, limit)
        assert first == {"now": {"0": 15}}
        second = reader.latestOffset(first, limit)
        assert second == {"now": {"0": 20}}  # fewer than minOffsetsPerTrigger, and the last
        assert reader.latestOffset(second, limit) == second


def test_new_partitions_begin_at_their_first_record(cluster: Cluster) -> None:
    made(cluster, "wider", 1)
    with Stream(cluster, "wider") as reader:
        start = reader.initialOffset()
        add_partitions(cluster, "wider", 2)
        cluster.forget_leaders()
        append(cluster, "wider", 0, 3)
        end = reader.latestOffset(start, ALL)
        assert end == {"wider": {"0": 1, "1": 3}}
        assert rows(reader, start, end) == [(1, 0), (1, 1), (1, 2)]


def test_offsets_that_were_deleted_are_data_loss_or_passed_over(cluster: Cluster) -> None:
    made(cluster, "cut", 10)
    start, end = {"cut": {"0": 2}}, {"cut": {"0": 8}}
    cluster.ask(
        DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="cut", partitions=[DeleteRecordsPartition(partition_index=0, offset=5)])],
            timeout_ms=5000,
        )
    )
    with Stream(cluster, "cut") as reader, pytest.raises(DataLoss, match=r"^cut-0: offsets 2 to 5 are gone, and were"):
        reader.partitions(start, end)
    with Stream(cluster, "cut", failOnDataLoss="false") as reader:
        assert rows(reader, start, end) == [(0, 5), (0, 6), (0, 7)]


def test_a_topic_that_was_deleted_is_data_loss_or_passed_over(cluster: Cluster) -> None:
    made(cluster, "gone", 5)
    start = {"gone": {"0": 2}}
    with Stream(cluster, "gone") as strict, Stream(cluster, "gone", failOnDataLoss="false") as loose:
        end = strict.latestOffset(start, ALL)
        delete(cluster, "gone")
        with pytest.raises(DataLoss, match=r"^gone-0 is gone, it was read up to offset 2"):
            strict.latestOffset(start, ALL)
        with pytest.raises(DataLoss, match=r"^gone-0 is gone, and its offsets 2 to 5 were not read"):
            strict.partitions(start, end)
        assert loose.partitions(start, end) == []
        assert loose.latestOffset(start, ALL) == {}
        made(cluster, "gone", 1)
        with pytest.raises(DataLoss, match=r"^gone-0 ends at 1, though it was read up to offset 2"):
            strict.latestOffset(start, ALL)


def delete(cluster: Cluster, topic: str) -> None:
    response = cluster.ask(
        DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], topic_names=[topic], timeout_ms=5000)
    )
    assert response.responses[0].error_code == 0
    cluster.forget_leaders()
