"""The options of the data source: names and meaning as in Spark's Kafka connector, and a few of our own.

Topics, exactly one of:

- `subscribe`: topics, comma separated; `subscribePattern`: a regular expression for whole names; `assign`:
  `{"topic": [0, 1]}`.

Source: `kafka.bootstrap.servers`, or `logDirs` (log directories, comma separated, read as files), or both: then records
come from the files, and the end offsets from the broker.

Range (offsets as `{"topic": {"0": 23}}`, -2 earliest, -1 latest; times in ms since 1970):

- `startingOffsets`: earliest (default of a batch), latest (default of a stream; not for batches) or offsets
- `startingTimestamp`: one time for all; `startingOffsetsByTimestamp`: `{"topic": {"0": 1700000000000}}`. A partition
  without a record at or after it is an error, or with `startingOffsetsByTimestampStrategy` = latest begins at the end
- `endingOffsets`: latest (default) or offsets; `endingTimestamp`, `endingOffsetsByTimestamp`; batches only
- a timestamp for all takes precedence over timestamps by partition, and these over offsets

Other options: `includeHeaders`, `failOnDataLoss` (default true), `minPartitions`, `maxRecordsPerPartition`; for batches
`pushFilters` (default false, see `filters` before you set it); for streams `maxOffsetsPerTrigger`,
`minOffsetsPerTrigger` with `maxTriggerDelay` (default 15m).

The known options `kafka.*` are `bootstrap.servers`, `client.id`, `isolation.level` (default read_committed),
`max.partition.fetch.bytes` (default 8 MB), `request.timeout.ms` and `security.protocol`, which must be PLAINTEXT. Every
other option is refused: none is ignored. There are no consumer groups, so `kafka.group.id` and `groupIdPrefix` are
refused too; the progress of a stream is in its checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from klamm.pipeline.errors import BadOption
from klamm.pipeline.kafka.cluster import READ_COMMITTED, READ_UNCOMMITTED, TIMEOUT_S, Cluster, parse_servers
from klamm.pipeline.kafka.fetcher import FETCH_BYTES
from klamm.pipeline.kafka.topics import compiled
from klamm.pipeline.ranges import EARLIEST, LATEST, TopicPartition, parse_assignment, parse_offsets
from klamm.pipeline.spark.source.parsing import Options, boolean, duration_s, named_list, not_negative, one_of, positive

BATCH: Final = "batch"
STREAM: Final = "stream"
Kind = Literal["batch", "stream"]

MAX_TRIGGER_DELAY_S: Final = 15 * 60.0
DEFAULT_CLIENT_ID: Final = "klamm-pipeline"
WORDS: Final = {EARLIEST: "earliest (-2)", LATEST: "latest (-1)"}
SUBSCRIPTIONS: Final = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True)
class Connection:
    """The connection settings of a cluster. Hashable, and cheap to send to tasks."""

    servers: str
    client_id: str = DEFAULT_CLIENT_ID
    timeout_s: float = TIMEOUT_S

    def cluster(self) -> Cluster:
        return Cluster(self.servers, client_id=self.client_id, timeout_s=self.timeout_s)


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of the range: a time for all, times by partition, or offsets by partition; else the first or last offset.

    Offsets may be EARLIEST and LATEST. `option` is the name for messages.
    """

    option: str
    timestamp: int | None = None
    timestamps: Mapping[TopicPartition, int] | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    everywhere: int = LATEST


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All options, checked as far as possible without the cluster."""

    connection: Connection | None
    log_dirs: tuple[str, ...]
    topics: tuple[str, ...] | None
    pattern: str | None
    assigned: tuple[TopicPartition, ...] | None
    starting: Bound
    ending: Bound
    latest_without_match: bool
    fail_on_data_loss: bool
    include_headers: bool
    isolation: int
    fetch_bytes: int
    push_filters: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_s: float


def parse(given: Mapping[str, str], kind: Kind) -> SourceOptions:
    """Parse the options that Spark passes. Raises BadOption."""
    options = Options(given)
    topics, pattern, assigned = _subscription(options)
    log_dirs = options.take("logDirs", named_list)
    connection = connection_of(options, required=not log_dirs)
    starting = _bound(options, "starting", kind)
    ending = _bound(options, "ending", kind)
    strategy = options.take("startingOffsetsByTimestampStrategy", one_of("error", "latest"))
    min_offsets = options.take("minOffsetsPerTrigger", positive)
    max_offsets = options.take("maxOffsetsPerTrigger", positive)
    if min_offsets is not None and max_offsets is not None and min_offsets > max_offsets:
        raise BadOption(f"minOffsetsPerTrigger {min_offsets} is above maxOffsetsPerTrigger {max_offsets}")
    parsed = SourceOptions(
        connection=connection,
        log_dirs=log_dirs or (),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=starting,
        ending=ending,
        latest_without_match=strategy == "latest",
        fail_on_data_loss=options.take("failOnDataLoss", boolean) is not False,
        include_headers=options.take("includeHeaders", boolean) is True,
        isolation=_isolation(options),
        fetch_bytes=options.take("kafka.max.partition.fetch.bytes", positive) or FETCH_BYTES,
        push_filters=options.take("pushFilters", boolean) is True,
        min_partitions=options.take("minPartitions", positive),
        max_records_per_partition=options.take("maxRecordsPerPartition", positive),
        max_offsets_per_trigger=max_offsets,
        min_offsets_per_trigger=min_offsets,
        max_trigger_delay_s=options.take("maxTriggerDelay", duration_s) or MAX_TRIGGER_DELAY_S,
    )
    options.refuse_rest()
    _check_kind(parsed, kind, delay_given=options.was_given("maxTriggerDelay"))
    return parsed


def _check_kind(parsed: SourceOptions, kind: Kind, *, delay_given: bool) -> None:
    if kind == STREAM and parsed.push_filters:
        raise BadOption("pushFilters is for batches: Spark pushes no filters into a stream")
    if delay_given and parsed.min_offsets_per_trigger is None:
        raise BadOption("maxTriggerDelay belongs to minOffsetsPerTrigger, which is not given")
    for name, value in (
        ("minOffsetsPerTrigger", parsed.min_offsets_per_trigger),
        ("maxOffsetsPerTrigger", parsed.max_offsets_per_trigger),
    ):
        if kind == BATCH and value is not None:
            raise BadOption(f"{name} is for streams: a batch reads everything at once")


def connection_of(options: Options, *, required: bool) -> Connection | None:
    """Return the connection, from `kafka.bootstrap.servers` and related options."""
    servers = options.take("kafka.bootstrap.servers")
    client_id = options.take("kafka.client.id")
    timeout_ms = options.take("kafka.request.timeout.ms", positive)
    security = options.take("kafka.security.protocol")
    if security is not None and security.upper() != "PLAINTEXT":
        raise BadOption(f"kafka.security.protocol is {security}: only PLAINTEXT is supported")
    if servers is None:
        if required:
            raise BadOption("kafka.bootstrap.servers is missing: it names brokers as host:port,host:port")
        return None
    parse_servers(servers)
    timeout_s = TIMEOUT_S if timeout_ms is None else timeout_ms / 1000
    return Connection(servers, client_id or DEFAULT_CLIENT_ID, timeout_s)


def _subscription(
    options: Options,
) -> tuple[tuple[str, ...] | None, str | None, tuple[TopicPartition, ...] | None]:
    topics = options.take("subscribe", named_list)
    pattern = options.take("subscribePattern")
    assigned = options.take("assign", lambda name, text: tuple(parse_assignment(name, text)))
    given = [name for name, value in zip(SUBSCRIPTIONS, (topics, pattern, assigned), strict=True) if value is not None]
    if len(given) != 1:
        raise BadOption(
            f"exactly one of {', '.join(SUBSCRIPTIONS)} says what to read, not {' and '.join(given) or 'none'}"
        )
    if pattern is not None:
        compiled(pattern)
    return topics, pattern, assigned


def _bound(options: Options, end: Literal["starting", "ending"], kind: Kind) -> Bound:
    """Return one end of the range. A stream has no end; a batch neither starts at the end nor ends at the start."""
    text = options.take(f"{end}Offsets")
    timestamp = options.take(f"{end}Timestamp", not_negative)
    by_partition = options.take(
        f"{end}OffsetsByTimestamp", lambda name, value: parse_offsets(name, value, what="milliseconds")
    )
    if kind == STREAM and end == "ending":
        for name, given in (("Offsets", text), ("Timestamp", timestamp), ("OffsetsByTimestamp", by_partition)):
            if given is not None:
                raise BadOption(f"ending{name} is for batches: a stream has no end")
    if timestamp is not None:
        return Bound(f"{end}Timestamp", timestamp=timestamp)
    if by_partition is not None:
        return Bound(f"{end}OffsetsByTimestamp", timestamps=by_partition)
    return _offsets_bound(f"{end}Offsets", text, kind)


def _offsets_bound(option: str, text: str | None, kind: Kind) -> Bound:
    is_start = option.startswith("starting")
    if text is None:
        return Bound(option, everywhere=EARLIEST if is_start and kind == BATCH else LATEST)
    refused = {BATCH: LATEST if is_start else EARLIEST}.get(kind)
    everywhere = {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())
    offsets = None if everywhere is not None else parse_offsets(option, text)
    if refused is not None and refused in (everywhere, *(offsets or {}).values()):
        raise BadOption(f"{option} of a batch cannot be {WORDS[refused]}, which is always empty")
    if offsets is None:
        assert everywhere is not None
        return Bound(option, everywhere=everywhere)
    if low := next((offset for offset in offsets.values() if offset < EARLIEST), None):
        raise BadOption(f"{option} has offset {low}: the lowest are -2 for earliest and -1 for latest")
    return Bound(option, offsets=offsets)


def _isolation(options: Options) -> int:
    level = options.take("kafka.isolation.level", one_of("read_committed", "read_uncommitted"))
    return READ_UNCOMMITTED if level == "read_uncommitted" else READ_COMMITTED
