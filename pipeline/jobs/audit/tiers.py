"""The counts of each tier: audit messages of producers, the logs of a cluster, the rows of a table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klamm.pipeline.errors import BadOption, PipelineError
from klamm.pipeline.jobs.audit.comparison import Counts, coarser
from klamm.pipeline.jobs.audit.counter import TIER
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.kafka.topics import topic_configs
from klamm.pipeline.ranges import OffsetRange

if TYPE_CHECKING:
    from klamm.pipeline.table import Table

COMPACT: Final = "compact"


@dataclass(frozen=True, slots=True)
class CountJob:
    """One partition of a cluster to count in a task. `name` is the name of the topic in the audit."""

    servers: str
    wanted: OffsetRange
    name: str
    window_ms: int


@dataclass(frozen=True, slots=True)
class Counted:
    """The counts of a task; `first_ms` is the time of the first record, None without any."""

    name: str
    windows: dict[int, int]
    records: int
    size_bytes: int
    first_ms: int | None


def count_range(job: CountJob) -> Counted:
    """Count the committed records of a range by window. Those without a timestamp are left out."""
    import numpy as np

    from klamm.pipeline.kafka.fetcher import fetch_columns

    windows: Counter[int] = Counter()
    records = size_bytes = 0
    first_ms: int | None = None
    with Cluster(job.servers) as cluster:
        for part in fetch_columns(cluster, job.wanted):
            times = part.timestamps[part.timestamps >= 0]
            records += len(part)
            size_bytes += int(part.tails.ends[-1] - part.keys.starts[0])
            if len(times):
                first_ms = int(times[0]) if first_ms is None else first_ms
                starts, counts = np.unique(times // job.window_ms * job.window_ms, return_counts=True)
                windows.update(dict(zip(starts.tolist(), counts.tolist(), strict=True)))
    return Counted(job.name, dict(windows), records, size_bytes, first_ms)


def count_jobs(cluster: Cluster, names: Mapping[str, str], window_ms: int, from_ms: int) -> list[CountJob]:
    """Return the jobs for all partitions of topics (name there -> name in the audit), from a time on.

    Raises UnknownTopic, and PipelineError for a compacted topic, which has lost records on purpose.
    """
    topics = cluster.topics(names)
    for name, configs in topic_configs(cluster, names).items():
        if COMPACT in configs.get("cleanup.policy", ""):
            raise PipelineError(f"topic {name} is compacted: records removed on purpose and missing ones look the same")
    partitions = [one for topic in topics.values() for one in topic.topic_partitions]
    ends = cluster.latest(partitions)
    starts = cluster.offsets_for_times(dict.fromkeys(partitions, from_ms))
    return [
        CountJob(
            cluster.bootstrap_servers,
            OffsetRange(one.topic, one.partition, start, ends[one], topics[one.topic].topic_id),
            names[one.topic],
            window_ms,
        )
        for one in partitions
        if (start := starts[one]) is not None and start < ends[one]
    ]


def summed(counted: Iterable[Counted]) -> Counts:
    found: Counts = Counter()
    for one in counted:
        for start, count in one.windows.items():
            found[one.name, start] += count
    return found


def first_whole_windows(cluster: Cluster, names: Sequence[str], window_ms: int) -> dict[str, int]:
    """Return for each topic the first window from which no record can have been deleted at the start of a log."""
    from klamm.pipeline.kafka.fetcher import fetch_columns

    found = dict.fromkeys(names, 0)
    topics = cluster.topics(names)
    partitions = [one for topic in topics.values() for one in topic.topic_partitions]
    ends = cluster.latest(partitions)
    for one, start in cluster.earliest(partitions).items():
        if start == 0 or start >= ends[one]:
            continue
        wanted = OffsetRange(*one, start, min(start + 1, ends[one]), topics[one.topic].topic_id)
        for part in fetch_columns(cluster, wanted):
            first_ms = int(part.timestamps[0])
            found[one.topic] = max(found[one.topic], (first_ms // window_ms + 1) * window_ms)
    return found


def producer_counts_of_topic(cluster: Cluster, topic: str) -> Iterator[bytes]:
    """Yield all audit messages of a topic."""
    from klamm.pipeline.arrow import record_batch
    from klamm.pipeline.kafka.fetcher import fetch_columns

    partitions = cluster.topics([topic])[topic].topic_partitions
    starts, ends = cluster.earliest(partitions), cluster.latest(partitions)
    for one in partitions:
        for part in fetch_columns(cluster, OffsetRange(*one, starts[one], ends[one])):
            yield from (value for value in record_batch(part, *one)["value"].to_pylist() if value is not None)


def producer_counts_of_file(path: str) -> Iterator[bytes]:
    """Yield all audit messages of a file, a line each. Raises BadOption."""
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise BadOption(f"--producers-file {path}: {error.strerror}") from None
    yield from (line for line in lines if line.strip())


def producers(messages: Iterable[bytes], window_ms: int, where: str) -> Counts:
    """Sum the counts of the producers, each message once. Raises PipelineError for anything that is no message."""
    seen: set[tuple[str, int]] = set()
    rows: list[tuple[str, int, int]] = []
    for message in messages:
        parsed = _message(message, where)
        if parsed["tier"] != TIER:
            continue
        if window_ms % parsed["window_ms"]:
            raise BadOption(
                f"--window {window_ms // 1000}: producers have counted windows of {parsed['window_ms'] // 1000} s"
            )
        identity = parsed["counter"], parsed["sequence"]
        if identity not in seen:
            seen.add(identity)
            rows.append((parsed["topic"], parsed["window_start_ms"], parsed["count"]))
    return coarser(rows, window_ms)


def warehouse(table: Table, names: Sequence[str], window_ms: int) -> Counts:
    """Count the rows of a table that `load` has filled, by its columns topic and timestamp."""
    import pyarrow as pa
    from deltalake import QueryBuilder

    from klamm.pipeline.table.table import first_line

    start = f"(arrow_cast(timestamp, 'Int64') / 1000 / {window_ms}) * {window_ms}"
    sql = (
        f"select topic, {start} as start, count(*) as n from t where arrow_cast(timestamp, 'Int64') >= 0 group by 1, 2"
    )
    try:
        rows = pa.table(QueryBuilder().register("t", table.delta).execute(sql).read_all()).to_pylist()
    except Exception as error:
        raise PipelineError(f"{table.location}: {first_line(error)}") from None
    return Counter({(row["topic"], row["start"]): row["n"] for row in rows if row["topic"] in names})


def put_aside(cluster: Cluster, dead_letter_topic: str, names: Sequence[str], window_ms: int) -> Counts:
    """Count the records that `load` sent to the dead letter topic, once each. Raises UnknownTopic."""
    from klamm.pipeline.jobs.replaying import letters

    parsed = (
        (topic, letter.timestamp_ms, 1)
        for letter in letters(cluster, dead_letter_topic)
        if (topic := letter.reason.topic) is not None
        and topic in names
        and letter.reason.job == "load"
        and not letter.is_double
    )
    return coarser(parsed, window_ms)


def _message(message: bytes, where: str) -> dict[str, Any]:
    kinds = {
        "tier": str,
        "counter": str,
        "sequence": int,
        "topic": str,
        "window_start_ms": int,
        "window_ms": int,
        "count": int,
    }
    try:
        parsed = json.loads(message)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict) or not all(type(parsed.get(name)) is kind for name, kind in kinds.items()):
        raise PipelineError(f"{where}: {message[:80]!r} is no audit message")
    if parsed["window_ms"] < 1:
        raise PipelineError(f"{where}: a window of {parsed['window_ms']} ms")
    return parsed
