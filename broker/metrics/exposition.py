"""The text of a scrape, in slices: thousands of series are written without delaying requests.

`render` is an async generator of encoded pieces; between two pieces the event loop runs once. A slice is `SLICE_SERIES`
lines, about 0.1 ms. prometheus-client, which provides the process metrics, costs 50 ms and 7 MB to import: a thread
imports it at the first scrape, never at startup.

`KlammCollector` provides the same numbers to a registry of prometheus-client, for programs that embed a node.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from klamm.broker.metrics.recording import Family, Metrics, PartitionRow, Sample, escape

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SLICE_SERIES = 200
SLICE_ROWS = SLICE_SERIES // 3  # a row gives three series
RESTARTS = 3  # for a partition source that changes during the iteration

PARTITION_FAMILIES = (
    (2, "klamm_log_size_bytes", "Bytes of the partition's segments."),
    (3, "klamm_log_start_offset", "First offset of the partition."),
    (4, "klamm_log_end_offset", "Offset of the next record."),
)


class Exposition:
    """The text of one `Metrics`; caches the labels of partitions between scrapes."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._labels: dict[str, dict[int, str]] = {}  # by topic and partition
        self._registry: CollectorRegistry | None = None

    async def render(self) -> AsyncIterator[bytes]:
        for family in self._metrics.families():
            async for piece in _write(family):
                yield piece
        count, texts = await self._partition_texts()
        yield (
            _head(Family("klamm_partitions", "gauge", "Partitions on this node.", ())) + f"klamm_partitions {count}\n"
        ).encode()
        for (_, name, help_text), pieces in zip(PARTITION_FAMILIES, texts, strict=True):
            yield _head(Family(name, "gauge", help_text, ())).encode()
            for piece in pieces:
                yield piece
                await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        yield await loop.run_in_executor(None, self._process_text)

    async def _partition_texts(self) -> tuple[int, tuple[list[bytes], ...]]:
        """The number of partitions, and the lines of each of `PARTITION_FAMILIES`.

        Rows become text slice by slice. Kept rows would be tens of thousands of young tuples and trigger full garbage
        collections, each of which stops the loop for longer than the whole scrape takes.
        """
        source = self._metrics.partition_source
        restarts = 0
        while source is not None:
            count = 0
            texts: tuple[list[bytes], ...] = tuple([] for _ in PARTITION_FAMILIES)
            rows = iter(source() if restarts < RESTARTS else list(source()))
            try:
                while part := list(islice(rows, SLICE_ROWS)):
                    count += len(part)
                    self._write_rows(part, texts)
                    await asyncio.sleep(0)
            except RuntimeError:  # the collection changed during the iteration
                restarts += 1
                continue
            if sum(map(len, self._labels.values())) > 2 * count + SLICE_SERIES:
                self._labels.clear()  # mostly of deleted topics
            return count, texts
        return 0, tuple([] for _ in PARTITION_FAMILIES)

    def _write_rows(self, rows: list[PartitionRow], texts: tuple[list[bytes], ...]) -> None:
        labels = [self._label(row[0], row[1]) for row in rows]
        for (column, name, _), pieces in zip(PARTITION_FAMILIES, texts, strict=True):
            lines = [f"{name}{label} {row[column]}\n" for label, row in zip(labels, rows, strict=True)]
            pieces.append("".join(lines).encode())

    def _label(self, topic: str, partition: int) -> str:
        known = self._labels.get(topic)
        if known is None:
            known = self._labels[topic] = {}
        text = known.get(partition)
        if text is None:
            text = known[partition] = partition_labels(topic, partition)
        return text

    def _process_text(self) -> bytes:
        """Return the process metrics. Runs in a thread: listing /proc/self/fd takes its time."""
        from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

        if self._registry is None:
            self._registry = CollectorRegistry()
            ProcessCollector(registry=self._registry)
        return generate_latest(self._registry)


class KlammCollector:
    """A collector for a prometheus-client registry: `registry.register(KlammCollector(metrics))`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.parser import text_string_to_metric_families

        for family in self._metrics.families():
            yield from text_string_to_metric_families(_head(family) + _lines(family.name, list(family.samples)))
        source = self._metrics.partition_source
        rows = [] if source is None else list(source())
        for column, name, help_text in PARTITION_FAMILIES:
            samples: list[Sample] = [(partition_labels(row[0], row[1]), int(row[column])) for row in rows]
            yield from text_string_to_metric_families(
                _head(Family(name, "gauge", help_text, ())) + _lines(name, samples)
            )


async def _write(family: Family) -> AsyncIterator[bytes]:
    yield _head(family).encode()
    samples = iter(family.samples)
    while part := list(islice(samples, SLICE_SERIES)):
        yield _lines(family.name, part).encode()
        await asyncio.sleep(0)


def _head(family: Family) -> str:
    return f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n"


def _lines(name: str, samples: list[Sample]) -> str:
    return "".join([f"{name}{labels} {value}\n" for labels, value in samples])


def partition_labels(topic: str, partition: int) -> str:
    return f'{{topic="{escape(topic)}",partition="{partition}"}}'
