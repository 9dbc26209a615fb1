"""Everything that renames, replaces or removes the files of partitions, at the same time, against a model of the logs.

Three topics of one partition each, compacted or not, in two log directories on the memory filesystem. The broker's own
partition manager, compaction (two worker threads), moves, retention and flusher work on them; threads and workers take
a step when the seed says so. Meanwhile topics are deleted and made again, moved, compacted, cut by retention and
DeleteRecords, appended to (plainly, by an idempotent producer, in transactions that commit and abort), and the broker
is stopped, killed, or loses its power. After each start, and at the end, all that a consumer can read is what the model
says: records and offsets, those of read_committed, the aborted transactions, the log start.

Every second run is a narrower one: one topic is made again and again, and filled as it was before, while slow workers
compact it.

What it finds, tried by taking the mending out again (numbers are those of the runs in `make test`):
- transaction indexes that are written though they were not read: `TransactionIndex.is_in_use` without `_is_known`, no
  `_compare_with_batches` in `storage.replay`, a copy of the active segment's index in place of the list in
  `FutureLog.open`. Run 6 sees records of an aborted transaction.
- a stale worker in the directory of a topic that was made again: no `end_file_work` in the partition manager and in
  `LogDirMover.alter`, `.cleaned` files without `exclusive`, not checked by `Cleaner` and `Replacement`, discarded for
  whatever log is there and not at the beginning of a job. Runs 5 and 15 find a zero-headed segment in the place of
  acknowledged records. With any of these left in there is no loss: each stands for itself.
- compaction by a marker that a power cut takes back (`_make_durable` flushes up to the first uncleanable offset only),
  and a high watermark that is believed after the second of two crashes, the first a power cut (`LogDir.load_logs` does
  not write the checkpoints): among the first 60 runs of other seeds.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.background import log_dir_mover as log_dir_mover_module
from klamm.broker.background.compaction import Compaction, Damaged, Failed, Swap
from klamm.broker.background.flusher import Flusher
from klamm.broker.background.log_dir_mover import LogDirMover
from klamm.broker.background.retention import Retention
from klamm.broker.metadata.image import MetadataImage, PartitionImage, TopicImage
from klamm.broker.metrics import Metrics
from klamm.broker.partitions.directory_assignments import DirectoryAssignments
from klamm.broker.partitions.partition import Partition
from klamm.broker.partitions.partition_manager import PartitionManager
from klamm.config.broker_config import BrokerConfig
from klamm.protocol.errors import KafkaError
from klamm.protocol.records.batch import Record, batches, encode_batch, records
from klamm.storage.compaction import cleaner as cleaner_module
from klamm.storage.compaction.cleaner import Job, Result
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log_dir import LogDir
from klamm.storage.log_manager import LogManager
from tests.faults.campaign import scaled, seeded
from tests.storage.batches import end_transaction, read_bytes, valid
from tests.storage.read_committed import read_committed
from tests.support.manual_clock import ManualClock
from tests.support.memory_filesystem import MemoryFilesystem
from tests.support.stepping import StepExecutor, SteppedWorker

RUNS = scaled(16, 400)
OPERATIONS = 250
CONTENTIONS = 8
PLACES = (Path("/a"), Path("/b"))
NAMES = ("compacted", "kept", "both")
KEYS = 5
PLAIN, IDEMPOTENT = -1, 9
TRANSACTIONAL = (1, 2, 3)
RETENTION_BYTES = 2500
OPEN, COMMITTED, ABORTED = range(3)


# -- what has to be there


@dataclass(eq=False)
class Transaction:
    producer_id: int
    offsets: list[int] = field(default_factory=list)
    marker: int = -1
    outcome: int = OPEN


class Model:
    """What one topic holds, from the moment when it was made."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_compacted = name != "kept"
        self.is_deleted_from = name != "compacted"
        self.records: dict[int, tuple[bytes, bytes]] = {}
        self.transactions: list[Transaction] = []
        self.end = 0
        self.durable = 0
        self.start = self.start_attempted = 0

    def open_of(self, producer_id: int) -> Transaction | None:
        return next((t for t in self.transactions if t.producer_id == producer_id and t.outcome == OPEN), None)

    def offsets_of(self, *outcomes: int) -> set[int]:
        return {offset for t in self.transactions if t.outcome in outcomes for offset in t.offsets}

    def cut(self, end: int) -> None:
        """The power went."""
        self.end = end
        self.records = {offset: pair for offset, pair in self.records.items() if offset < end}
        for transaction in self.transactions:
            transaction.offsets = [offset for offset in transaction.offsets if offset < end]
            if transaction.marker >= end:
                transaction.marker, transaction.outcome = -1, OPEN
        self.transactions = [transaction for transaction in self.transactions if transaction.offsets]

    def forget_deleted(self, log: Log) -> None:
        """Forget first records that were deleted: a transaction may be known by the first record that remains."""
        for transaction in [each for each in self.transactions if each.outcome == OPEN]:
            producer = log.producers.get(transaction.producer_id)
            first = producer.first_transaction_offset if producer is not None else -1
            if first != transaction.offsets[0]:
                base_offset = log.local.segments.all[0].base_offset
                assert transaction.offsets[0] < base_offset
                transaction.offsets = [offset for offset in transaction.offsets if offset >= base_offset]
                assert first == (transaction.offsets[0] if transaction.offsets else -1)
        self.transactions = [transaction for transaction in self.transactions if transaction.offsets]

    def check(self, log: Log) -> None:
        assert log.local.offline_reason is None
        assert log.log_end_offset == self.end
        start = log.log_start_offset
        assert self.start <= start <= self.start_attempted, (self.start, start, self.start_attempted)
        expected = {offset: pair for offset, pair in self.records.items() if offset >= start}
        aborted, is_open = self.offsets_of(ABORTED), self.offsets_of(OPEN)
        committed = {offset: pair for offset, pair in expected.items() if offset not in aborted | is_open}
        newest = {pair[0]: offset for offset, pair in committed.items()}
        needed = set(newest.values()) if self.is_compacted else set(expected)
        self._compare(_all(log), expected, needed | (is_open & expected.keys()))
        stable = log.last_stable_offset
        assert stable == min([self.end, *(max(t.offsets[0], start) for t in self.transactions if t.outcome == OPEN)])
        committed = {offset: pair for offset, pair in committed.items() if offset < stable}
        found = {record.offset: (record.key or b"", record.value or b"") for record in read_committed(log)}
        self._compare(found, committed, committed.keys() & needed)
        if not self.is_compacted:
            known = {(t.producer_id, t.offsets[0], t.marker) for t in self.transactions if t.outcome == ABORTED}
            listed = log.local.segments.aborted(start, self.end)
            assert {t[:3] for t in listed} == {each for each in known if each[2] >= start}
            assert len(listed) == len({t[:3] for t in listed})

    def _compare(self, found: Mapping[int, Any], allowed: Mapping[int, Any], needed: set[int]) -> None:
        wrong = {offset: pair for offset, pair in found.items() if allowed.get(offset) != pair}
        assert not wrong, f"{self.name}: not as written, or not to be seen: {wrong}"
        assert needed <= found.keys(), f"{self.name}: lost: {sorted(needed - found.keys())} of [0, {self.end})"


def _all(log: Log) -> dict[int, tuple[bytes, bytes]]:
    found: dict[int, tuple[bytes, bytes]] = {}
    offset = log.log_start_offset
    while data := read_bytes(log, offset):
        for position, head in batches(data):
            assert head.last_offset >= offset, "offsets ascend"
            for record in () if head.is_control else records(data, head, 1 << 20, position):
                if record.offset >= log.log_start_offset:
                    found[record.offset] = (record.key or b"", record.value or b"")
            offset = head.next_offset
    assert list(found) == sorted(found)
    return found


# -- one life of the broker


class Manager(PartitionManager):
    """A partition manager with small segments."""

    def _log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        return _small(super()._log_config(overrides))

    async def _configure(self, name: str) -> None:
        await super()._configure(name)
        for partition in self.topics[name].partitions if name in self.topics else ():
            assert partition.log is not None
            partition.log.local.configure(_small(partition.log.local.config))


class NoRecord(DirectoryAssignments):
    """Remembers nothing."""

    def __init__(self, logs: LogManager) -> None:
        super().__init__(None, logs)  # type: ignore[arg-type]

    def load(self) -> None:
        pass

    def save_now(self, topics: Collection[TopicImage]) -> None:
        pass

    async def save(self, topics: Collection[TopicImage]) -> None:
        pass


def _small(config: LogConfig) -> LogConfig:
    return replace(config, segment_bytes=600, index_interval_bytes=100, retention_bytes=RETENTION_BYTES)


class Life:
    """What a process holds. Its threads are stepped, its worker processes, too."""

    def __init__(self, filesystem: MemoryFilesystem, clock: ManualClock, image: MetadataImage) -> None:
        originals = {"log.dirs": ",".join(map(str, PLACES)), "node.id": "1", "log.cleaner.threads": "2"}
        config = BrokerConfig({**originals, "log.cleaner.backoff.ms": "0"})
        self.filesystem = filesystem
        self.clock = clock
        self.disk, self.copier, self.flushes = StepExecutor(), StepExecutor(), StepExecutor()
        self.workers: list[SteppedWorker] = []
        self.log_dirs = [
            LogDir.open(path, node_id=1, cluster_id="c", clock=clock, filesystem=filesystem) for path in PLACES
        ]
        self.image = image
        logs = LogManager(self.log_dirs)
        self.manager = Manager(logs, config, Metrics(), self.disk, NoRecord(logs))
        self.manager.load_logs(image)
        self.flusher = Flusher(self.flushes)
        self.retention = Retention(self.manager, clock, self.disk)
        self.compaction = Compaction(self.manager, self.retention, lambda: config, self.disk, self._work)
        self.log_dir_mover = LogDirMover(self.manager, self.flusher, lambda: config, clock, self.disk)
        self.log_dir_mover._copier = self.copier  # type: ignore[assignment]
        self.metadata = asyncio.Lock()

    async def _work(self, job: Job, swap: Swap) -> Result:
        """What `run_worker` does."""
        worker = SteppedWorker(job, self.filesystem)
        self.workers.append(worker)
        try:
            while not worker.is_over or worker.groups:
                await worker.news.wait()
                worker.news.clear()
                while worker.groups:
                    await swap(worker.groups.popleft())
        finally:
            worker.kill()
            self.workers.remove(worker)
        if worker.error is not None:
            raise (Failed if isinstance(worker.error, OSError) else Damaged)(str(worker.error))
        assert worker.result is not None
        return worker.result

    def busy(self, *, with_workers: bool = True) -> list[Callable[[], None]]:
        """Those that can take a step."""
        executors = [each.step for each in (self.disk, self.copier, self.flushes) if not each.is_idle]
        workers = [worker.step for worker in self.workers if with_workers and not worker.is_over]
        return [*executors, *workers]

    async def publish(self, image: MetadataImage) -> None:
        """Publish as the controller does."""
        old = self.image
        await self.manager.prepare(old, image)
        self.image = image
        self.manager.on_image(old, image)
        await self.manager.settle()


# -- what happens


class World:
    """One seed."""

    def __init__(self, rng: random.Random, loop: asyncio.AbstractEventLoop, *, is_contended: bool) -> None:
        self.rng = rng
        self.clock = ManualClock()
        loop.time = self.clock.monotonic  # type: ignore[method-assign]
        self.loop = loop
        self.filesystem = MemoryFilesystem(self.clock.wall_ms)
        self.models: dict[str, Model] = {}
        self.stored = MetadataImage()  # what the metadata store has
        self.deleting: set[str] = set()
        self.tasks: list[asyncio.Task[None]] = []
        self.numbers = itertools.count()
        self.topic_ids = itertools.count(1)
        self.epoch = 0
        self.done: list[str] = []
        self.is_contended = is_contended
        self.names = ("compacted",) if self.is_contended else NAMES
        self.producer_ids = (PLAIN,) if self.is_contended else (PLAIN, IDEMPOTENT, *TRANSACTIONAL)
        self.life = Life(self.filesystem, self.clock, self.stored)

    async def run(self) -> None:
        for name in NAMES:
            await self.settle(self.create(name))
        await (self.contend() if self.is_contended else self.mix())
        await self.rest()
        self.check()
        await self.stop()

    async def mix(self) -> None:
        """Everything, by its share."""
        weights = {
            self.append: 60, self.end_transaction: 12, self.compact: 12, self.move: 5, self.delete: 4, self.retain: 3,
            self.delete_records: 3, self.flush: 5, self.checkpoint: 3, self.roll: 3, self.sweep: 3,
            self.stop: 1, self.kill: 1, self.cut_power: 1,
        }  # fmt: skip
        operations, shares = list(weights), list(weights.values())
        for _ in range(OPERATIONS):
            (operation,) = self.rng.choices(operations, shares)
            self.done.append(operation.__name__)
            await operation()
            await self.steps(self.rng.randrange(8))

    async def contend(self) -> None:
        """One topic is made again, and filled as it was, while slow workers compact it."""
        batches_each = self.rng.randrange(14, 30)
        for _ in range(CONTENTIONS):
            for _ in range(batches_each):
                await self.append()
                await self.steps(self.rng.randrange(3))
            await self.compact()
            await self.steps(self.rng.randrange(250))
            self.check()
            if self.rng.random() < 0.8:
                await self.delete()
                while "compacted" not in self.models or self.life.manager.get_partition("compacted", 0) is None:
                    await self.steps(1)

    # Scheduling

    async def steps(self, count: int) -> None:
        for _ in range(count):
            self.clock.advance(self.rng.randrange(60))
            slow = self.is_contended and self.rng.random() < 0.5
            busy = self.life.busy(with_workers=not slow)
            if busy:
                self.rng.choice(busy)()
            for _ in range(self.rng.randrange(1, 6)):
                await asyncio.sleep(0)
        for task in [task for task in self.tasks if task.done()]:
            self.tasks.remove(task)
            task.result()

    def start(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self.tasks.append(task)
        return task

    async def settle(self, work: Awaitable[None]) -> None:
        task = self.start(work)
        while not task.done():
            await self.steps(1)
        await self.steps(1)

    async def rest(self) -> None:
        """Wait until nothing is under way."""
        while self.tasks or self.life.busy() or self.life.log_dir_mover._task is not None:
            await self.steps(1)

    # The broker and its end

    async def stop(self) -> None:
        """A clean stop, while all that takes long is still under way."""
        self._end_rounds()
        await self.settle(self._drain())
        await self.rest()
        for log_dir in self.life.log_dirs:
            assert log_dir.close()
        self.filesystem.kill()
        await self._next_life()
        self.check()

    def _end_rounds(self) -> None:
        for task in self.tasks:
            if task.get_name() == "round":
                task.cancel()
                self.tasks.remove(task)
                self.tasks.append(self.loop.create_task(_ended(task)))
                break

    async def _drain(self) -> None:
        async with self.life.metadata:
            await self.life.log_dir_mover.stop()
        await self.life.flusher.drain()
        await self.life.manager.removed()

    async def kill(self) -> None:
        self.filesystem.kill()
        await self._die()
        for name, model in self.models.items():
            model.forget_deleted(self.log_of(name))
        self.check()

    async def cut_power(self) -> None:
        self.filesystem.crash(self.rng if self.rng.random() < 0.7 else None)
        await self._die()
        for name, model in self.models.items():
            end = self.log_of(name).log_end_offset
            assert model.durable <= end <= model.end, (name, model.durable, end, model.end)
            model.cut(end)
            model.forget_deleted(self.log_of(name))
            self.log_of(name).local.flush()
        self.check()

    async def _die(self) -> None:
        """What the dead go on with changes nothing; then the next life begins."""

        def refuse() -> None:
            raise OSError(errno.EBADF, "the process has ended")

        self.filesystem.before_change = refuse
        self.life.log_dir_mover._is_stopping = True
        everything = asyncio.all_tasks() - {asyncio.current_task()}
        for task in everything:
            task.cancel()
        while not all(task.done() for task in everything):
            for step in self.life.busy():
                step()
            await asyncio.sleep(0)
        await asyncio.gather(*everything, return_exceptions=True)
        for worker in list(self.life.workers):
            worker.kill()
        self.tasks.clear()
        self.filesystem.before_change = None
        await self._next_life()

    async def _next_life(self) -> None:
        self.epoch += 1
        for log_dir in self.life.log_dirs:
            log_dir._lock.release()
        self.life = Life(self.filesystem, self.clock, self.stored)
        for name in sorted(self.deleting):
            await self.settle(self._remove(name))
        await self.settle(self.life.log_dir_mover.resume())
        for name in NAMES:
            if name not in self.stored.topics:
                await self.settle(self.create(name))

    def check(self) -> None:
        for name, model in self.models.items():
            model.check(self.log_of(name))

    # Topics

    async def create(self, name: str) -> None:
        policy = {"compacted": "compact", "kept": "delete", "both": "compact,delete"}[name]
        config = {"cleanup.policy": policy, "min.cleanable.dirty.ratio": "0.01"}
        partition = PartitionImage(0, 1, 0, (1,), (1,))
        topic = TopicImage(name, next(self.topic_ids).to_bytes(16, "big"), (partition,))
        async with self.life.metadata:
            self.stored = self.stored.with_topics([topic], {name: config})
            self.models[name] = Model(name)
            await self.life.publish(self.stored)

    async def delete(self) -> None:
        name = self.rng.choice(self.names)
        if name in self.models:
            self.models.pop(name)
            self.deleting.add(name)
            self.start(self._delete_and_create(name))

    async def _delete_and_create(self, name: str) -> None:
        await self._remove(name)
        await self.create(name)

    async def _remove(self, name: str) -> None:
        async with self.life.metadata:
            await self.life.publish(self.life.image.without_topics([name]))
            self.stored = self.stored.without_topics([name])
            self.deleting.discard(name)

    def partition_of(self, name: str) -> Partition:
        partition = self.life.manager.get_partition(name, 0)
        assert partition is not None
        return partition

    def log_of(self, name: str) -> Log:
        partition = self.partition_of(name)
        assert partition.log is not None, partition.offline_reason
        return partition.log

    def some(self, *names: str) -> Iterator[tuple[Model, Partition, Log]]:
        """One of these topics, if it is there just now."""
        name = self.rng.choice(names or self.names)
        partition = self.life.manager.get_partition(name, 0)
        if name in self.models and partition is not None:
            assert partition.log is not None, partition.offline_reason
            yield self.models[name], partition, partition.log

    # Writing

    async def append(self) -> None:
        for model, _, log in self.some():
            producer_id = self.rng.choice(self.producer_ids)
            is_transactional = producer_id in TRANSACTIONAL
            known = log.producers.get(producer_id)
            epoch, sequence = (known.epoch, known.last_sequence + 1) if known is not None else (0, 0)
            if producer_id == PLAIN:
                epoch = sequence = -1
            now_ms = self.clock.wall_ms()
            pairs = [(b"k%d" % self.rng.randrange(KEYS), b"%08d" % next(self.numbers)) for _ in range(2)]
            data = encode_batch(
                [Record(index, now_ms, *pair) for index, pair in enumerate(pairs)],
                producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=is_transactional,
            )  # fmt: skip
            guard = None
            if is_transactional:
                guard = log.verifications.begin(producer_id, epoch, sequence, begins_at_zero=False, now_ms=now_ms)
            again = bytearray(data)
            result = log.append_as_leader(valid(data), leader_epoch=self.epoch, now_ms=now_ms, guard=guard)
            assert (result.base_offset, result.duplicate) == (model.end, False)
            if producer_id != PLAIN and self.rng.random() < 0.2:
                result = log.append_as_leader(valid(again), leader_epoch=self.epoch, now_ms=now_ms, guard=guard)
                assert (result.base_offset, result.duplicate) == (model.end, True)
            offsets = range(model.end, model.end + len(pairs))
            model.records |= zip(offsets, pairs, strict=True)
            if is_transactional:
                if (transaction := model.open_of(producer_id)) is None:
                    transaction = Transaction(producer_id)
                    model.transactions.append(transaction)
                transaction.offsets += offsets
            model.end += len(pairs)
            log.set_high_watermark(log.log_end_offset)

    async def end_transaction(self) -> None:
        for model, _, log in self.some():
            transactions = [each for each in model.transactions if each.outcome == OPEN]
            if transactions:
                transaction = self.rng.choice(transactions)
                is_commit = self.rng.random() < 0.5
                producer = log.producers.get(transaction.producer_id)
                assert producer is not None and producer.first_transaction_offset == transaction.offsets[0]
                end_transaction(log, transaction.producer_id, producer.epoch, is_commit=is_commit)
                transaction.marker, transaction.outcome = model.end, COMMITTED if is_commit else ABORTED
                model.end += 1
                log.set_high_watermark(log.log_end_offset)

    async def roll(self) -> None:
        for _, _, log in self.some():
            log.roll()

    async def flush(self) -> None:
        for model, partition, log in self.some():
            self.start(self._flush(model, partition, log.log_end_offset))

    async def _flush(self, model: Model, partition: Partition, end: int) -> None:
        try:
            await self.life.flusher.flush(partition)
        except KafkaError:
            assert self.models.get(model.name) is not model
        else:
            model.durable = max(model.durable, end)

    # Files that change

    async def compact(self) -> None:
        if not any(task.get_name() == "round" for task in self.tasks):
            self.start(self.life.compaction.round()).set_name("round")

    async def move(self) -> None:
        for _, partition, _ in self.some():
            self.start(self._move(partition, self.rng.choice(self.life.log_dirs)))

    async def _move(self, partition: Partition, target: LogDir) -> None:
        try:
            await self.life.log_dir_mover.move_partition(partition, target)
        except KafkaError as error:
            is_there = self.life.manager.get_partition(partition.topic, 0) is partition
            assert not is_there or "has changed meanwhile" in str(error), error

    async def retain(self) -> None:
        for model in self.models.values():
            if model.is_deleted_from:
                model.start_attempted = model.end  # how far it goes is a matter of sizes
        self.start(self.life.retention.delete_old_segments())

    async def delete_records(self) -> None:
        for model, partition, log in self.some("kept", "both"):
            offset = self.rng.randrange(log.log_start_offset, log.log_end_offset + 1)
            model.start_attempted = max(model.start_attempted, offset)
            self.start(self._drop(model, partition, offset))

    async def _drop(self, model: Model, partition: Partition, offset: int) -> None:
        await self.life.retention.drop({partition: offset})
        if partition.log is not None:
            model.start = max(model.start, offset)

    async def sweep(self) -> None:
        self.clock.advance(self.rng.randrange(90_000))
        self.start(self.life.retention.delete_due_files())

    async def checkpoint(self) -> None:
        self.start(self._checkpoint())

    async def _checkpoint(self) -> None:
        await self.loop.run_in_executor(self.life.disk, self.life.manager.logs.checkpoint)


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cleaner_module, "WRITE_BYTES", 150)
    monkeypatch.setattr(log_dir_mover_module, "CHUNK_BYTES", 300)
    monkeypatch.setattr(log_dir_mover_module, "TAIL_BYTES", 400)
    monkeypatch.setattr(log_dir_mover_module, "LAST_BYTES", 200)
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


def run(seed: str, *, is_contended: bool) -> None:
    loop = asyncio.new_event_loop()
    try:

        async def live() -> None:
            world = World(random.Random(seed), loop, is_contended=is_contended)
            try:
                await world.run()
            except BaseException as error:
                error.add_note(f"seed={seed!r} after {len(world.done)} operations, the last: {world.done[-8:]}")
                raise

        loop.run_until_complete(live())
    finally:
        loop.close()


@pytest.mark.parametrize("number", range(RUNS))
def test_files_and_model_agree(number: int) -> None:
    rng = seeded(f"file operations {number}")
    run(f"{rng.getrandbits(32)}", is_contended=number % 2 == 1)
