"""Counters, as cheap as possible: plain numbers in slots, used by the event loop only, so without locks.

Names and labels are assembled at scrape time: `Metrics.families` returns `Family` rows, lazily, so that `exposition`
can write the text in slices. Request handlers keep a reference to their `TopicMetrics` instead of looking it up by name
each time.
"""

from __future__ import annotations

import asyncio
import platform
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import klamm
from klamm.protocol.apis import API
from klamm.protocol.errors import ErrorCode
from klamm.protocol.records import check

if TYPE_CHECKING:
    from klamm.broker.network.network import Network

Number: TypeAlias = "int | float"
Sample: TypeAlias = (
    "tuple[str, Number]"  # the text after the family's name, labels included: `{topic="t"}`, and the value
)
PartitionRow: TypeAlias = "tuple[str, int, int, int, int]"  # topic, partition, size in bytes, start and end offset
PartitionSource: TypeAlias = "Callable[[], Iterable[PartitionRow]]"

REQUEST_BOUNDS = (
    *(0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)  # seconds, inclusive upper bounds
LAG_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
LAG_SAMPLE_S = 0.25
MAX_VERSIONS = 64  # counted per API; peers choose the number

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with all its series. `samples` may be consumed once."""

    name: str
    kind: Kind
    help: str
    samples: Iterable[Sample]


class Histogram:
    """Counts per bucket, the last one for values above the bounds, and the sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def samples(self, labels: str) -> Iterator[Sample]:
        """Return the series. `labels` is the inside of the braces, or empty."""
        comma = "," if labels else ""
        total = 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            total += count
            yield f'_bucket{{{labels}{comma}le="{bound}"}}', total
        total += self.counts[-1]
        yield f'_bucket{{{labels}{comma}le="+Inf"}}', total
        braces = f"{{{labels}}}" if labels else ""
        yield f"_sum{braces}", self.sum
        yield f"_count{braces}", total


class ApiMetrics:
    """Counters of one API's requests. Code that answers many of them may keep a reference."""

    __slots__ = ("bytes_in", "bytes_out", "errors", "name", "seconds", "versions")

    def __init__(self, api_key: int) -> None:
        self.name = API[api_key].name if api_key in API else str(api_key)
        self.seconds = Histogram(REQUEST_BOUNDS)
        self.versions: dict[int, int] = {}
        self.errors: dict[int, int] = {}
        self.bytes_in = 0
        self.bytes_out = 0

    def answered(self, version: int, seconds: float, error_code: int, bytes_in: int, bytes_out: int) -> None:
        """Count one request: `seconds` from the whole frame to the response, `error_code` is its top-level error."""
        histogram = self.seconds
        histogram.counts[bisect_left(REQUEST_BOUNDS, seconds)] += 1
        histogram.sum += seconds
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out
        versions = self.versions
        if version in versions:
            versions[version] += 1
        elif len(versions) < MAX_VERSIONS:
            versions[version] = 1
        if error_code:
            self.errors[error_code] = self.errors.get(error_code, 0) + 1


class TopicMetrics:
    """Traffic of one topic; the request handlers add to these numbers directly."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetch",
        "failed_produce",
        "fetch_requests",
        "messages_in",
        "messages_out",
        "produce_requests",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_in = 0
        self.messages_out = 0
        self.produce_requests = 0
        self.fetch_requests = 0
        self.failed_produce = 0
        self.failed_fetch = 0


TOPIC_FAMILIES = (
    ("bytes_in", "klamm_topic_bytes_in_total", "Bytes of record batches appended."),
    ("bytes_out", "klamm_topic_bytes_out_total", "Bytes of record batches sent to consumers."),
    ("messages_in", "klamm_topic_messages_in_total", "Records appended."),
    ("messages_out", "klamm_topic_messages_out_total", "Records sent to consumers."),
    ("produce_requests", "klamm_topic_produce_requests_total", "Produce requests that named the topic."),
    ("fetch_requests", "klamm_topic_fetch_requests_total", "Fetch requests that named the topic."),
    ("failed_produce", "klamm_topic_failed_produce_requests_total", "Partitions in Produce that got an error."),
    ("failed_fetch", "klamm_topic_failed_fetch_requests_total", "Partitions in Fetch that got an error."),
)


class Metrics:
    """All metrics of a node."""

    def __init__(self) -> None:
        self._apis: dict[int, ApiMetrics] = {}
        self._topics: dict[str, TopicMetrics] = {}
        self._gauges: list[tuple[str, Literal["counter", "gauge"], str, Callable[[], Number]]] = []
        self._labelled: list[tuple[str, Kind, str, Callable[[], Iterable[Sample]]]] = []
        self._network: Network | None = None
        self._lag = Histogram(LAG_BOUNDS)
        self._lag_timer: asyncio.TimerHandle | None = None
        self.partition_source: PartitionSource | None = None

    # -- recording

    def api(self, api_key: int) -> ApiMetrics:
        """Return the counters of an API, created on first use."""
        api = self._apis.get(api_key)
        if api is None:
            api = self._apis[api_key] = ApiMetrics(api_key)
        return api

    def topic(self, name: str) -> TopicMetrics:
        """Return the counters of a topic, created on first use. Only for topics that exist: peers choose names."""
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = TopicMetrics()
        return topic

    def forget_topic(self, name: str) -> None:
        """Remove the counters of a deleted topic."""
        self._topics.pop(name, None)

    # -- other sources

    def set_partition_source(self, source: PartitionSource) -> None:
        """Set the source of a row per partition. Its iterable is consumed in slices, with other work in between. It
        must iterate over a copy, or raise RuntimeError when its collection has changed; then the iteration starts over.
        """
        self.partition_source = source

    def set_network(self, network: Network) -> None:
        self._network = network

    def gauge(self, name: str, help_text: str, value: Callable[[], Number]) -> None:
        """Register a number read at scrape time; `name` has its unit, `klamm_...`."""
        self._gauges.append((name, "gauge", help_text, value))

    def gauges(self, name: str, help_text: str, samples: Callable[[], Iterable[Sample]]) -> None:
        """Register a gauge with labels: one sample per series."""
        self._labelled.append((name, "gauge", help_text, samples))

    def counter(self, name: str, help_text: str, value: Callable[[], Number]) -> None:
        """Register a number that only grows; `name` ends in `_total`."""
        assert name.endswith("_total")
        self._gauges.append((name, "counter", help_text, value))

    def counters(self, name: str, help_text: str, samples: Callable[[], Iterable[Sample]]) -> None:
        """Register a counter with labels: one sample per series; `name` ends in `_total`."""
        assert name.endswith("_total")
        self._labelled.append((name, "counter", help_text, samples))

    # -- loop lag

    def start_lag_sampling(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measure from time to time how late the loop runs a scheduled callback."""
        due = loop.time() + LAG_SAMPLE_S

        def sample() -> None:
            self._lag.observe(max(0.0, loop.time() - due))
            self.start_lag_sampling(loop)

        self._lag_timer = loop.call_at(due, sample)

    def stop_lag_sampling(self) -> None:
        if self._lag_timer is not None:
            self._lag_timer.cancel()
            self._lag_timer = None

    # -- scrape

    def families(self) -> Iterator[Family]:
        """Return all families but the series per partition, see `exposition`."""
        version, python = klamm.__version__, platform.python_version()
        record_check = "compiled" if check.IS_COMPILED else "python"
        labels = f'{{version="{version}",python="{python}",record_check="{record_check}"}}'
        help_text = "Version of Klamm and of Python, and what checks the records of produced batches."
        yield Family("klamm_build_info", "gauge", help_text, [(labels, 1)])
        yield from self._api_families()
        yield from self._topic_families()
        if self._network is not None:
            yield from _network_families(self._network)
        yield Family(
            "klamm_loop_lag_seconds",
            "histogram",
            "Sampled delay of the event loop; timers of the loop have a resolution of 1 ms.",
            self._lag.samples(""),
        )
        for name, kind, help_text, value in self._gauges:
            yield Family(name, kind, help_text, [("", value())])
        for name, series_kind, help_text, samples in self._labelled:
            yield Family(name, series_kind, help_text, samples())

    def _api_families(self) -> Iterator[Family]:
        apis = sorted(self._apis.values(), key=lambda api: api.name)
        yield Family(
            "klamm_requests_total",
            "counter",
            "Requests answered.",
            [
                (f'{{api="{api.name}",version="{version}"}}', count)
                for api in apis
                for version, count in sorted(api.versions.items())
            ],
        )
        yield Family(
            "klamm_request_errors_total",
            "counter",
            "Requests answered with a top-level error.",
            [
                (f'{{api="{api.name}",error="{_error_name(code)}"}}', count)
                for api in apis
                for code, count in sorted(api.errors.items())
            ],
        )
        yield Family(
            "klamm_request_duration_seconds",
            "histogram",
            "Time from the whole request to its response.",
            (sample for api in apis for sample in api.seconds.samples(f'api="{api.name}"')),
        )
        for name, help_text, attribute in (
            ("klamm_request_bytes_total", "Bytes of requests.", "bytes_in"),
            ("klamm_response_bytes_total", "Bytes of responses.", "bytes_out"),
        ):
            samples = [(f'{{api="{api.name}"}}', getattr(api, attribute)) for api in apis]
            yield Family(name, "counter", help_text, samples)

    def _topic_families(self) -> Iterator[Family]:
        topics = list(self._topics.items())
        labels = {name: f'{{topic="{escape(name)}"}}' for name, _ in topics}
        for attribute, name, help_text in TOPIC_FAMILIES:
            yield Family(
                name,
                "counter",
                help_text,
                ((labels[topic_name], getattr(topic, attribute)) for topic_name, topic in topics),
            )


def _network_families(network: Network) -> Iterator[Family]:
    counters = network.counters
    current = [(f'{{listener="{escape(each.name)}"}}', each.connection_count) for each in network.listeners]
    closed = [(f'{{reason="{escape(kind)}"}}', count) for kind, count in sorted(counters.closed.items())]
    yield Family("klamm_connections", "gauge", "Open client connections.", current)
    yield Family("klamm_connections_accepted_total", "counter", "Connections accepted.", [("", counters.accepted)])
    yield Family("klamm_connections_closed_total", "counter", "Connections closed, by reason.", closed)
    logins = [(f'{{mechanism="{escape(name)}"}}', count) for name, count in sorted(counters.logins.items())]
    yield Family("klamm_logins_total", "counter", "Logins with SASL, re-authentications included.", logins)
    handshakes = [
        (f'{{protocol="{protocol}",cipher="{suite}"}}', count)
        for (protocol, suite), count in sorted(counters.handshakes.items())
    ]
    yield Family("klamm_tls_handshakes_total", "counter", "TLS handshakes that were completed.", handshakes)
    unauthenticated = [("", len(network.unauthenticated))]
    yield Family("klamm_unauthenticated_connections", "gauge", "Connections that have not logged in.", unauthenticated)
    yield Family(
        "klamm_connections_refused_total",
        "counter",
        "Closed at once, over a limit per address.",
        [("", counters.refused)],
    )
    yield Family(
        "klamm_accept_errors_total",
        "counter",
        "Accepts that failed for lack of descriptors.",
        [("", counters.accept_errors)],
    )
    yield Family(
        "klamm_page_cache_misses_total",
        "counter",
        "Reads for consumers that had to wait for the disk.",
        [("", network.page_cache_misses)],
    )
    if network.budget is not None:
        held = network.budget.held_bytes
        yield Family("klamm_queued_request_bytes", "gauge", "Requests being received or answered.", [("", held)])


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def escape(value: str) -> str:
    """Escape a label value for the text format."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
