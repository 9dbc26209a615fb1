"""The text of a scrape, in slices: thousands of series are written without holding up requests.

`render` is an async generator of encoded pieces; between two pieces the event loop has run once. A slice is
`SLICE_SERIES` lines, about 0.1 ms. prometheus-client, which contributes the process metrics, costs 50 ms and 7 MB to
import: that happens in a thread at the first scrape, never at start.

`KlammCollector` gives the same numbers to a registry of prometheus-client, for those who embed a node.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from klamm.broker.metrics.recording import Family, Metrics, PartitionRow, PartitionSource, Sample, escape

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SLICE_SERIES = 200
RESTARTS = 3  # of a partition source that changes under the iteration

PARTITION_FAMILIES = (
    (2, "klamm_log_size_bytes", "Bytes of the partition's segments."),
    (3, "klamm_log_start_offset", "First offset of the partition."),
    (4, "klamm_log_end_offset", "Offset of the next record."),
)


class Exposition:
    """Writes the text of one `Metrics`; keeps the labels of partitions between scrapes."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._labels: dict[tuple[str, int], str] = {}
        self._registry: CollectorRegistry | None = None

    async def render(self) -> AsyncIterator[bytes]:
        for family in self._metrics.families():
            async for piece in _write(family):
                yield piece
        rows = await _rows(self._metrics.partition_source)
        count = Family("klamm_partitions", "gauge", "Partitions on this node.", ())
        yield (_head(count) + f"klamm_partitions {len(rows)}\n").encode()
        labels = self._labels_of(rows)
        for column, name, help_text in PARTITION_FAMILIES:
            yield f"# HELP {name} {help_text}\n# TYPE {name} gauge\n".encode()
            for first in range(0, len(rows), SLICE_SERIES):
                part = rows[first : first + SLICE_SERIES]
                yield "".join([f"{name}{labels(row)} {row[column]}\n" for row in part]).encode()
                await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        yield await loop.run_in_executor(None, self._process_text)

    def _labels_of(self, rows: list[PartitionRow]) -> Labels:
        if len(self._labels) > 2 * len(rows) + SLICE_SERIES:
            self._labels.clear()  # mostly deleted topics
        return Labels(self._labels)

    def _process_text(self) -> bytes:
        """Runs in a thread: listing /proc/self/fd takes its time."""
        from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

        if self._registry is None:
            self._registry = CollectorRegistry()
            ProcessCollector(registry=self._registry)
        return generate_latest(self._registry)


class Labels:
    """The label text of a row's partition, remembered."""

    __slots__ = ("_known",)

    def __init__(self, known: dict[tuple[str, int], str]) -> None:
        self._known = known

    def __call__(self, row: PartitionRow) -> str:
        key = row[:2]
        text = self._known.get(key)
        if text is None:
            text = self._known[key] = f'{{topic="{escape(key[0])}",partition="{key[1]}"}}'
        return text


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
        labels = Labels({})
        for column, name, help_text in PARTITION_FAMILIES:
            samples: list[Sample] = [(labels(row), int(row[column])) for row in rows]
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


async def _rows(source: PartitionSource | None) -> list[PartitionRow]:
    if source is None:
        return []
    for _ in range(RESTARTS):
        rows: list[PartitionRow] = []
        iterator = iter(source())
        try:
            while part := list(islice(iterator, SLICE_SERIES)):
                rows += part
                await asyncio.sleep(0)
        except RuntimeError:  # the collection changed under the iterator
            continue
        return rows
    return list(source())
