"""The copy of one source partition: the work of a Spark task.

The order makes it exactly-once. The producer's start ends the open transaction of a predecessor and fences it. Then
the committed offset is read. Then records, offset syncs and the next offset go into one transaction after another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from klamm.pipeline.errors import DataLoss, PoisonedBatch
from klamm.pipeline.jobs.mirror.batches import Outgoing, outgoing
from klamm.pipeline.jobs.mirror.progress import Flow, position
from klamm.pipeline.jobs.mirror.syncs import NOWHERE, Run, sync_key, sync_value, syncs_topic
from klamm.pipeline.kafka.cluster import READ_UNCOMMITTED, Cluster
from klamm.pipeline.kafka.fetcher import fetches
from klamm.pipeline.kafka.producer import TRANSACTION_TIMEOUT_S, Producer
from klamm.pipeline.ranges import TopicPartition
from klamm.protocol.records.batch import Record, encode_batch
from klamm.protocol.records.columnar import DamagedBatch

COMMIT_BYTES: Final = 64 << 20
COMMIT_S: Final = TRANSACTION_TIMEOUT_S / 4
SYNC_LAG: Final = 100
"""Offsets between two syncs of a transaction, except before the last one; more in a long transaction."""
MAX_SYNCS: Final = 1000
"""The most syncs of a transaction."""
MAX_RUNS: Final = 1000
"""The most runs that a task returns to the driver."""


@dataclass(frozen=True, slots=True)
class Mirroring:
    """The settings that all copies of one source share."""

    alias: str
    source_servers: str
    target_servers: str
    group: str
    fail_on_data_loss: bool = True
    commit_bytes: int = COMMIT_BYTES
    timeout_s: float = 30.0

    def transactional_id(self, target_topic: str, source_partition: int) -> str:
        """Return the id for the copy of a partition: a newer task fences an older one."""
        return f"{self.group}.{target_topic}.{source_partition}"


@dataclass(slots=True)
class Copied:
    """The result of a flow. `runs` are for the translation of offsets."""

    source: TopicPartition
    start: int
    end: int
    records: int = 0
    size_bytes: int = 0
    untouched_batches: int = 0
    new_batches: int = 0
    transactions: int = 0
    lost: int = 0
    runs: list[Run] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Chunk:
    """The work of a task."""

    job: Mirroring
    flows: tuple[Flow, ...]


@dataclass(frozen=True, slots=True)
class ChunkCopied:
    """The result of a task."""

    alias: str
    copied: tuple[Copied, ...]

    @property
    def records(self) -> int:
        return sum(one.records for one in self.copied)

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.copied)


def copy_chunk(chunk: Chunk) -> ChunkCopied:
    """Copy one flow after another, over the same connections."""
    job = chunk.job
    with (
        Cluster(job.source_servers, timeout_s=job.timeout_s) as source,
        Cluster(job.target_servers, timeout_s=job.timeout_s) as target,
    ):
        return ChunkCopied(job.alias, tuple(copy(flow, job, source, target) for flow in chunk.flows))


def copy(flow: Flow, job: Mirroring, source: Cluster, target: Cluster) -> Copied:
    """Copy from the group's committed offset up to `flow.wanted.end`.

    Raises ProducerFenced when another task has taken over, DataLoss, PoisonedBatch, ClusterError.
    """
    name = job.transactional_id(flow.target_topic, flow.wanted.partition)
    with Producer(target, transactional_id=name) as producer:
        found = position(target, flow, job.group, fail_on_data_loss=job.fail_on_data_loss)
        copying = _Copy(flow, job, source, target, producer)
        return copying.run(flow.begin if found is None else found, pin=found is None and flow.pin)


class _Copy:
    def __init__(self, flow: Flow, job: Mirroring, source: Cluster, target: Cluster, producer: Producer) -> None:
        self._flow = flow
        self._job = job
        self._source = source
        self._target = target
        self._producer = producer
        self._runs: list[Run] = []
        self._is_open = False
        self._open_bytes = 0
        self._open_s = 0.0

    def run(self, start: int, *, pin: bool, monotonic: Callable[[], float] = time.monotonic) -> Copied:
        flow, job = self._flow, self._job
        start = self._checked(start)
        done = Copied(flow.source, start, start)
        wanted = replace(flow.wanted, start=start)
        for fetched in fetches(self._source, wanted, fail_on_data_loss=job.fail_on_data_loss):
            if not self._is_open:
                self._begin(monotonic())
            done.lost += max(fetched.offset - done.end, 0)
            try:
                for batch in outgoing(fetched, flow.way, wanted.end):
                    self._send(batch, done)
            except DamagedBatch as error:
                at = f"{flow.source} offset {error.base_offset} from {self._source.bootstrap_servers}"
                raise PoisonedBatch(f"{at}: {error.reason}") from None
            done.end = min(int(fetched.batch_headers.last_offsets[-1]) + 1, wanted.end)
            if self._open_bytes >= job.commit_bytes or monotonic() - self._open_s >= COMMIT_S:
                self._commit(done)
        if done.end < wanted.end:  # the records at the end of the range are lost
            done.lost += wanted.end - done.end
            done.end, pin = wanted.end, True
        if pin and not self._is_open:
            self._begin(monotonic())
        if self._is_open:
            self._commit(done)
        return done

    def _begin(self, now_s: float) -> None:
        self._producer.begin()
        self._is_open, self._open_bytes, self._open_s = True, 0, now_s

    def _checked(self, start: int) -> int:
        """Return the offset to start from, also if the log is shorter than the mirrored part of it."""
        end = self._flow.wanted.end
        if start <= end or start <= self._source.latest([self._flow.source])[self._flow.source]:
            return start
        if self._job.fail_on_data_loss:
            raise DataLoss(f"{self._flow.source}: the log ends at {end}, and {start} is the next offset to mirror")
        return self._source.earliest([self._flow.source])[self._flow.source]

    def _send(self, batch: Outgoing, done: Copied) -> None:
        def appended(base_offset: int) -> None:
            if base_offset >= 0:
                self._runs += [Run(run.upstream, base_offset + run.downstream, run.count) for run in batch.runs]

        partition = TopicPartition(self._flow.target_topic, batch.partition)
        self._producer.send(partition, batch.data, appended if batch.runs else None)
        self._open_bytes += len(batch.data)
        done.size_bytes += len(batch.data)
        done.records += batch.count
        done.untouched_batches += batch.untouched
        done.new_batches += not batch.untouched

    def _commit(self, done: Copied) -> None:
        flow, producer = self._flow, self._producer
        producer.flush()
        runs = _joined(self._runs)
        last = Run(done.end, self._next_downstream(runs))
        self._send_syncs([*_spaced(runs), last])
        producer.send_offsets(flow.group(self._job.group), {flow.place: done.end}, flow.metadata)
        producer.commit()
        done.transactions += 1
        done.runs = [*done.runs, *runs, last][-MAX_RUNS:]
        self._runs.clear()
        self._is_open = False

    def _next_downstream(self, runs: list[Run]) -> int:
        """Return the offset at which a consumer continues that has read all of this."""
        if not self._flow.way.keep:
            return NOWHERE
        if runs:
            return runs[-1].downstream + runs[-1].count
        partition = TopicPartition(self._flow.target_topic, self._flow.way.partition)
        return self._target.latest([partition], READ_UNCOMMITTED)[partition] - 1  # no record of this copy is after it

    def _send_syncs(self, runs: list[Run]) -> None:
        now_ms = int(time.time() * 1000)
        key = sync_key(self._flow.source)
        rows = [Record(at, now_ms, key, sync_value(run.upstream, run.downstream)) for at, run in enumerate(runs)]
        self._producer.send(TopicPartition(syncs_topic(self._job.alias), 0), encode_batch(rows))


def _joined(runs: list[Run]) -> list[Run]:
    """Merge runs that continue each other."""
    found: list[Run] = []
    for run in runs:
        last = found[-1] if found else None
        if (
            last is not None
            and run.upstream == last.upstream + last.count
            and run.downstream == last.downstream + last.count
        ):
            found[-1] = Run(last.upstream, last.downstream, last.count + run.count)
        else:
            found.append(run)
    return found


def _spaced(runs: list[Run]) -> Iterator[Run]:
    """Yield the runs worth a record, with points within long ones."""
    if not runs:
        return
    lag = max(SYNC_LAG, (runs[-1].upstream + runs[-1].count - runs[0].upstream) // MAX_SYNCS)
    due = runs[0].upstream
    for run in runs:
        for ahead in range(max(due - run.upstream, 0), run.count, lag):
            yield Run(run.upstream + ahead, run.downstream + ahead)
            due = run.upstream + ahead + lag
