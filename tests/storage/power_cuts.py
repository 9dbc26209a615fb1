"""Lives of a log directory, and the records that must survive when the power goes at any moment.

A `World` does what its seed says: topics are made and deleted, batches appended, segments rolled, flushed, retired,
compacted, truncated, epochs begun, checkpoints written, the directory closed and opened again. It appends through
`Partition` and flushes as the flusher and the scheduler do, so records count as acknowledged exactly when a client
gets its response.

`expectations` says at any moment what a power cut may take:
- `default`: records that were never flushed; the remaining records are a prefix of those written;
- `messages` (flush.messages=10): the same, 10 acknowledged records at most;
- `ms` (flush.ms=100): the same, nothing that was acknowledged longer ago;
- `fsync` (klamm.acks.fsync): nothing that was acknowledged.
Records that were truncated, deleted or below the log start must not come back once the call that removed them has
returned.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from klamm.broker.metrics import TopicMetrics
from klamm.broker.partitions.partition import Partition
from klamm.config.broker_config import BrokerConfig, topic_values
from klamm.protocol.records.batch import Record, batches, encode_batch, records
from klamm.storage.compaction.cleanable import cleanable, make_job
from klamm.storage.compaction.cleaner import Cleaner
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log_deletion import delete_log
from klamm.storage.log_dir import LogDir
from klamm.storage.log_loading import load_logs
from klamm.storage.paths import TopicPartition
from tests.storage.batches import batch, delete_unreachable, read_bytes
from tests.support.log_dirs import create_log
from tests.support.manual_clock import ManualClock
from tests.support.memory_filesystem import MemoryFilesystem

MODES: dict[str, dict[str, str]] = {
    "default": {},
    "messages": {"flush.messages": "10"},
    "ms": {"flush.ms": "100"},
    "fsync": {"klamm.acks.fsync": "true"},
}
STEPS = 60
TICK_MS = 25
"""How often the scheduler looks for logs to flush when flush.ms is 100."""
PRODUCER_ID = 5
KEYS = 6
CLOCK_START_MS = 1_700_000_000_000
SMALL = {"internal.segment.bytes": "700", "index.interval.bytes": "150"}
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}


@dataclass(frozen=True)
class Expectation:
    """The required state of a partition: `least` and `most` bound its log end, `values` are those at each offset."""

    must_exist: bool
    may_exist: bool
    topic_ids: frozenset[bytes | None]
    least: int
    most: int
    log_starts: tuple[int, int]
    values: dict[int, frozenset[bytes]]
    compacted: bool


@dataclass
class Topic:
    """One topic of one partition as its clients know it."""

    name: str
    topic_id: bytes
    values: dict[str, str]
    partition: Partition | None = None
    state: str = "creating"
    epoch: int = 0
    written: dict[int, frozenset[bytes]] = field(default_factory=dict)
    acked_ms: dict[int, int] = field(default_factory=dict)  # when the batch that ends there was acknowledged
    attempted: int = 0
    durable: int = 0
    log_start: int = 0
    log_start_attempted: int = 0
    cleaned: int = 0

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.name, 0)

    @property
    def log(self) -> Log:
        assert self.partition is not None and self.partition.log is not None
        return self.partition.log

    @property
    def acked(self) -> int:
        return max(self.acked_ms, default=0)


class World:
    """A life: `live` takes all steps that the seed describes, `expectations` may be called at any moment of it."""

    def __init__(self, filesystem: MemoryFilesystem, mode: str, seed: int) -> None:
        self.filesystem = filesystem
        self.mode = mode
        self.rng = random.Random(f"{mode} {seed}")
        self.clock = ManualClock()
        self.topics: dict[str, Topic] = {}
        self.log_dir: LogDir
        self._made = 0

    # -- guarantees to a client

    def expectations(self) -> dict[TopicPartition, Expectation]:
        return {topic.key: self._expectation(topic) for topic in self.topics.values()}

    def _expectation(self, topic: Topic) -> Expectation:
        return Expectation(
            must_exist=topic.state == "served",
            may_exist=topic.state != "deleted",
            topic_ids=frozenset({topic.topic_id} if topic.state == "served" else {topic.topic_id, None}),
            least=max(topic.durable, self._promised(topic)),
            most=topic.attempted,
            log_starts=(topic.log_start, topic.log_start_attempted),
            values=dict(topic.written),
            compacted="cleanup.policy" in topic.values,
        )

    def _promised(self, topic: Topic) -> int:
        """The offset below which a power cut takes nothing, if the mode keeps its promise."""
        if self.mode == "fsync":
            return topic.acked
        if self.mode == "messages":
            return topic.acked - 10
        if self.mode == "ms":
            limit_ms = self.clock.wall_ms() - 100
            return max((end for end, at_ms in topic.acked_ms.items() if at_ms < limit_ms), default=0)
        return 0

    # -- the life

    def live(self) -> None:
        self.open()
        self.create(compacted=False)
        self.create(compacted=True)
        steps = {
            self.append: 24,
            self.flush: 3,
            self.checkpoint: 4,
            self.pass_time: 5,
            self.retire: 3,
            self.truncate: 2,
            self.begin_epoch: 2,
            self.compact: 3,
            self.replace_topic: 1,
            self.reopen: 1,
        }
        for step in self.rng.choices(list(steps), list(steps.values()), k=STEPS):
            step()
            self.tick()

    def open(self) -> None:
        self.log_dir = open_directory(self.filesystem, self.clock, self.log_config)
        for topic in self.topics.values():
            if topic.state == "served":
                self.serve(topic, self.log_dir.logs[topic.key])

    def log_config(self, name: str) -> LogConfig:
        return config_of(self.topics[name].values if name in self.topics else {})

    def create(self, *, compacted: bool, name: str | None = None) -> None:
        self._made += 1
        topic = Topic(
            name or f"t{self._made}",
            b"%016d" % self._made,
            {**SMALL, **MODES[self.mode], **(COMPACT if compacted else {})},
        )
        self.topics[topic.name] = topic
        log = create_log(self.log_dir, topic.name, 0, topic.topic_id, config_of(topic.values))
        topic.state = "served"
        self.serve(topic, log)

    def serve(self, topic: Topic, log: Log) -> None:
        values = topic_values(BrokerConfig({}), topic.values)
        topic.partition = Partition(
            topic.name, topic.topic_id, 0, log, leader_epoch=topic.epoch, values=values, metrics=TopicMetrics()
        )

    def pick(self) -> Topic:
        return self.rng.choice([topic for topic in self.topics.values() if topic.state == "served"])

    def append(self) -> None:
        topic = self.pick()
        partition = topic.partition
        assert partition is not None
        for _ in range(self.rng.randint(1, 3)):
            base_offset, count = topic.log.log_end_offset, self.rng.randint(1, 2)
            entries = [entry(offset, self.rng.randbytes(self.rng.randint(1, 60))) for offset in range(count)]
            for index, record in enumerate(entries):
                known = topic.written.get(base_offset + index, frozenset())
                assert record.value is not None
                topic.written[base_offset + index] = known | {record.value}
                entries[index] = replace_key(record, base_offset + index)
            topic.attempted = max(topic.attempted, base_offset + count)
            data = encode_batch(entries, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=base_offset)
            result = partition.append_records(memoryview(data), produce_version=9, now_ms=self.clock.wall_ms())
            assert (result.base_offset, result.duplicate) == (base_offset, False)
            if partition.flush_pending:
                self.flush_one(topic)
            topic.acked_ms[base_offset + count] = self.clock.wall_ms()

    def flush_one(self, topic: Topic) -> None:
        """Flush as the flusher does."""
        target = topic.log.log_end_offset
        topic.log.local.flush(target)
        assert topic.partition is not None
        topic.partition.flushed(target)
        topic.durable = max(topic.durable, target)

    def flush(self) -> None:
        self.flush_one(self.pick())

    def tick(self) -> None:
        """Do the scheduler's jobs."""
        for topic in self.topics.values():
            if topic.state == "served" and topic.log.local.flush_due(self.clock.wall_ms() + TICK_MS):
                self.flush_one(topic)

    def pass_time(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            self.clock.advance(TICK_MS)
            self.tick()

    def checkpoint(self) -> None:
        self.log_dir.checkpoint()
        for topic in self.topics.values():
            topic.log_start = max(topic.log_start, topic.log.log_start_offset if topic.state == "served" else 0)

    def retire(self) -> None:
        topic = self.pick()
        if "cleanup.policy" in topic.values:
            return
        partition = topic.partition
        assert partition is not None
        offset = self.rng.randint(topic.log.log_start_offset, partition.high_watermark)
        topic.log_start_attempted = max(topic.log_start_attempted, offset)
        topic.log.advance_log_start(offset)
        self.checkpoint()
        delete_unreachable(topic.log)

    def truncate(self) -> None:
        topic = self.pick()
        end = topic.log.log_end_offset
        offset = self.rng.randint(max(topic.log.log_start_offset, topic.cleaned, end - 8), end)
        topic.acked_ms = {acked: at_ms for acked, at_ms in topic.acked_ms.items() if acked <= offset}
        topic.durable = min(topic.durable, topic.acked)  # a batch goes as a whole, and the log start with it
        topic.log_start = min(topic.log_start, topic.acked)
        topic.log.truncate_to(offset)
        assert topic.partition is not None
        end = topic.log.log_end_offset
        assert end in (offset, topic.acked)
        topic.log_start_attempted = topic.log.log_start_offset
        topic.written = {known: values for known, values in topic.written.items() if known < end}
        topic.attempted = end

    def begin_epoch(self) -> None:
        topic = self.pick()
        topic.epoch += 1
        assert topic.partition is not None
        topic.partition.leader_epoch = topic.epoch

    def compact(self) -> None:
        """Compact as `broker.compaction` does, here and now."""
        for topic in self.topics.values():
            if topic.state != "served" or "cleanup.policy" not in topic.values:
                continue
            log = topic.log
            found = cleanable(log, self.log_dir.cleaner_offset(topic.key), self.clock.wall_ms())
            if found is None:
                continue
            log.local.flush(found.first_uncleanable)
            self.log_dir.checkpoint()
            job = make_job(
                log, found, self.clock.wall_ms(), map_bytes=1 << 20, map_load_factor=0.9, bytes_per_second=1e12
            )
            result = Cleaner(job, self.filesystem).run()
            for group in result.groups:
                assert log.local.begin_swap(group)
                files = log.local.swap_files(group)
                log.local.finish_swap()
                log.local.unlink_files(files)
            self.log_dir.note_cleaned(topic.key, log, result.end_offset)
            topic.cleaned = max(topic.cleaned, result.end_offset)

    def replace_topic(self) -> None:
        """Delete a topic and make another of its name."""
        topic = self.pick()
        topic.state = "deleting"
        delete_log(self.log_dir, TopicPartition(topic.name, 0))
        topic.state = "deleted"
        self.create(compacted="cleanup.policy" in topic.values, name=topic.name)

    def reopen(self) -> None:
        assert self.log_dir.close()
        for topic in self.topics.values():
            topic.durable = max(topic.durable, topic.acked)
        self.open()


def config_of(values: dict[str, str]) -> LogConfig:
    return LogConfig.from_values(topic_values(BrokerConfig({}), values))


def entry(offset_delta: int, value: bytes) -> Record:
    return Record(offset_delta, CLOCK_START_MS, b"", value)


def replace_key(record: Record, offset: int) -> Record:
    return Record(record.offset, record.timestamp, b"k%d" % (offset % KEYS), record.value)


def open_directory(filesystem: MemoryFilesystem, clock: ManualClock, config_for: object) -> LogDir:
    log_dir = LogDir.open(
        Path("/data"), node_id=1, cluster_id="c", clock=clock, filesystem=filesystem, quarantine=Path("/cut")
    )
    load_logs(log_dir, config_for)  # type: ignore[arg-type]
    return log_dir


# -- after the cut


def check(filesystem: MemoryFilesystem, world: World, expected: dict[TopicPartition, Expectation]) -> None:
    """Start, and check the required state; then go on: write, close, start again."""
    log_dir = open_directory(filesystem, world.clock, world.log_config)
    assert log_dir.offline == {}
    ends = {}
    for key, expectation in expected.items():
        log = log_dir.logs.get(key)
        if log is None:
            assert not expectation.must_exist, f"{key} is gone"
            continue
        assert expectation.may_exist, f"{key} is back"
        check_log(log, expectation)
        ends[key] = go_on(log)
    assert log_dir.close()
    again = open_directory(filesystem, world.clock, world.log_config)
    assert {key: log.log_end_offset for key, log in again.logs.items() if key in ends} == ends


def check_log(log: Log, expected: Expectation) -> None:
    assert log.topic_id in expected.topic_ids
    end = log.log_end_offset
    assert expected.least <= end <= expected.most, f"{log.name} ends at {end}"
    low, high = expected.log_starts
    assert low <= log.log_start_offset <= high, f"{log.name} begins at {log.log_start_offset}"
    found = contents(log)
    for offset, value in found.items():
        assert value in expected.values[offset], f"{log.name}: another record at offset {offset}"
    offsets = list(found)
    if expected.compacted:
        assert offsets == sorted(offsets)
        newest = range(max(log.log_start_offset, end - KEYS), end)
        assert set(newest) <= found.keys(), f"{log.name}: the last record of a key is missing"
    else:
        assert offsets == list(range(log.log_start_offset, end)), f"{log.name}: not a clean prefix"


def contents(log: Log) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    while data := read_bytes(log, offset):
        for position, head in batches(data):
            for record in records(data, head, 1 << 20, position):
                if record.offset >= log.log_start_offset:
                    assert record.value is not None
                    found[record.offset] = record.value
            offset = head.last_offset + 1
    return found


def go_on(log: Log) -> int:
    """Check that the next sequence is accepted; return the log end then."""
    end = log.log_end_offset
    added = log.append_as_leader(batch(producer_id=PRODUCER_ID, epoch=0, sequence=end), leader_epoch=1 << 20)
    assert (added.base_offset, added.duplicate) == (end, False)
    return log.log_end_offset
