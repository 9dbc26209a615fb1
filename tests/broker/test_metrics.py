"""Metrics come out as valid text, without holding up the loop and without unbounded series."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import uvloop
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from klamm.broker.metrics import Metrics
from klamm.broker.metrics.exposition import SLICE_SERIES, Exposition, KlammCollector
from klamm.broker.metrics.recording import MAX_VERSIONS, PartitionRow
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode


def scrape(metrics: Metrics) -> dict[str, Metric]:
    async def render() -> bytes:
        return b"".join([piece async for piece in Exposition(metrics).render()])

    text = uvloop.run(render()).decode()
    assert text.endswith("\n")
    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(names) == len(set(names)), "a family must come in one piece"
    return {family.name: family for family in families}


def values(family: Metric) -> dict[tuple[str, ...], float]:
    return {(sample.name, *sample.labels.values()): sample.value for sample in family.samples}


def test_requests_are_counted_by_api_version_and_error() -> None:
    metrics = Metrics()
    for _ in range(3):
        metrics.api(ApiKey.PRODUCE).answered(9, 0.0004, 0, 100, 50)
    metrics.api(ApiKey.PRODUCE).answered(12, 20.0, 0, 1, 2)
    metrics.api(ApiKey.METADATA).answered(1, 0.01, ErrorCode.UNKNOWN_SERVER_ERROR, 1, 2)
    found = scrape(metrics)
    assert values(found["klamm_requests"]) == {
        ("klamm_requests_total", "Produce", "9"): 3,
        ("klamm_requests_total", "Produce", "12"): 1,
        ("klamm_requests_total", "Metadata", "1"): 1,
    }
    assert values(found["klamm_request_errors"]) == {
        ("klamm_request_errors_total", "Metadata", "UNKNOWN_SERVER_ERROR"): 1
    }
    times = values(found["klamm_request_duration_seconds"])
    name = "klamm_request_duration_seconds"
    assert times[f"{name}_bucket", "Produce", "0.00025"] == 0
    assert times[f"{name}_bucket", "Produce", "0.0005"] == 3
    assert times[f"{name}_bucket", "Produce", "10.0"] == 3
    assert times[f"{name}_bucket", "Produce", "+Inf"] == 4
    assert times[f"{name}_count", "Produce"] == 4
    assert times[f"{name}_bucket", "Metadata", "0.01"] == 1  # bounds are inclusive
    assert round(times[f"{name}_sum", "Produce"], 4) == 20.0012
    assert values(found["klamm_request_bytes"])["klamm_request_bytes_total", "Produce"] == 301
    assert values(found["klamm_response_bytes"])["klamm_response_bytes_total", "Produce"] == 152


def test_a_peer_cannot_make_series_without_end() -> None:
    metrics = Metrics()
    for version in range(1000):
        metrics.api(ApiKey.FETCH).answered(version, 0.1, 0, 1, 1)
    assert len(scrape(metrics)["klamm_requests"].samples) == MAX_VERSIONS


def test_topics_are_counted_until_they_are_forgotten() -> None:
    metrics = Metrics()
    topic = metrics.topic("flights")
    assert metrics.topic("flights") is topic
    topic.bytes_in += 10
    topic.messages_in += 2
    topic.failed_fetch += 1
    found = scrape(metrics)
    assert values(found["klamm_topic_bytes_in"]) == {("klamm_topic_bytes_in_total", "flights"): 10}
    assert values(found["klamm_topic_messages_in"]) == {("klamm_topic_messages_in_total", "flights"): 2}
    assert values(found["klamm_topic_failed_fetch_requests"]) == {
        ("klamm_topic_failed_fetch_requests_total", "flights"): 1
    }
    assert values(found["klamm_topic_messages_out"]) == {("klamm_topic_messages_out_total", "flights"): 0}
    topic.messages_out += 5
    assert values(scrape(metrics)["klamm_topic_messages_out"]) == {("klamm_topic_messages_out_total", "flights"): 5}
    metrics.forget_topic("flights")
    assert not scrape(metrics)["klamm_topic_bytes_in"].samples


def test_partitions_come_with_size_and_offsets() -> None:
    metrics = Metrics()
    rows = [(f"t{number // 10}", number % 10, number * 100, number, number * 7) for number in range(3 * SLICE_SERIES)]
    metrics.set_partition_source(lambda: iter(rows))
    found = scrape(metrics)
    assert values(found["klamm_partitions"]) == {("klamm_partitions",): len(rows)}
    for column, name in ((2, "klamm_log_size_bytes"), (3, "klamm_log_start_offset"), (4, "klamm_log_end_offset")):
        assert values(found[name]) == {(name, row[0], str(row[1])): row[column] for row in rows}


def test_a_collection_that_changes_while_it_is_read_is_read_again() -> None:
    metrics = Metrics()
    partitions = {(f"t{number}", 0): number for number in range(1000)}

    def source() -> Iterator[PartitionRow]:
        for (topic, partition), size in partitions.items():
            yield topic, partition, size, 0, 0

    async def main() -> bytes:
        changes = 0
        metrics.set_partition_source(source)
        pieces = []

        async def change() -> None:
            nonlocal changes
            while changes < 10:
                partitions["new", changes] = 1
                changes += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(change())
        async for piece in Exposition(metrics).render():
            pieces.append(piece)  # noqa: PERF401
        await task
        return b"".join(pieces)

    text = uvloop.run(main()).decode()
    assert text.count("klamm_log_size_bytes{") >= 1000
    assert text.count("klamm_log_size_bytes{") == text.count("klamm_log_end_offset{")


def test_a_scrape_leaves_the_loop_to_others_between_slices() -> None:
    metrics = Metrics()
    metrics.set_partition_source(lambda: [("t", number, 0, 0, 0) for number in range(20 * SLICE_SERIES)])

    async def main() -> int:
        turns = 0
        done = asyncio.Event()

        async def others() -> None:
            nonlocal turns
            while not done.is_set():
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(others())
        largest = 0
        async for piece in Exposition(metrics).render():
            largest = max(largest, piece.count(b"\n"))
        done.set()
        await task
        assert largest <= SLICE_SERIES
        return turns

    assert uvloop.run(main()) >= 4 * 20


def test_labels_are_escaped() -> None:
    metrics = Metrics()
    metrics.topic('a"b\\c\nd').bytes_in += 1
    assert scrape(metrics)["klamm_topic_bytes_in"].samples[0].labels == {"topic": 'a"b\\c\nd'}


def test_gauges_of_others_are_asked_at_scrape_time() -> None:
    metrics = Metrics()
    sessions = [1, 2, 3]
    metrics.gauge("klamm_fetch_sessions", "Fetch sessions.", lambda: len(sessions))
    metrics.counter("klamm_evictions_total", "Evictions.", lambda: 7)
    sessions.pop()
    found = scrape(metrics)
    assert values(found["klamm_fetch_sessions"]) == {("klamm_fetch_sessions",): 2}
    assert values(found["klamm_evictions"]) == {("klamm_evictions_total",): 7}


def test_process_and_build_are_described() -> None:
    found = scrape(Metrics())
    assert {"process_cpu_seconds", "process_resident_memory_bytes", "process_open_fds"} <= found.keys()
    assert {"process_start_time_seconds", "klamm_build_info"} <= found.keys()
    assert found["klamm_build_info"].samples[0].labels["record_check"] == "compiled"


def test_loop_lag_is_sampled_until_stopped() -> None:
    async def main(metrics: Metrics) -> None:
        loop = asyncio.get_running_loop()
        metrics.start_lag_sampling(loop)
        await asyncio.sleep(0.3)
        metrics.stop_lag_sampling()

    metrics = Metrics()
    uvloop.run(main(metrics))
    assert values(scrape(metrics)["klamm_loop_lag_seconds"])[("klamm_loop_lag_seconds_count",)] >= 1


def test_the_collector_gives_the_same_to_a_registry() -> None:
    metrics = Metrics()
    metrics.api(ApiKey.PRODUCE).answered(9, 0.0004, 0, 100, 50)
    metrics.set_partition_source(lambda: [("t", 0, 1, 2, 3)])
    registry = CollectorRegistry()
    registry.register(KlammCollector(metrics))
    assert registry.get_sample_value("klamm_requests_total", {"api": "Produce", "version": "9"}) == 1
    assert registry.get_sample_value("klamm_log_end_offset", {"topic": "t", "partition": "0"}) == 3
