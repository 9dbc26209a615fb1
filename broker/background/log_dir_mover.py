"""Moves partitions between the log directories of this broker while they are served (KIP-113).

One partition moves at a time; the others wait in the order of their requests. `storage.copies.future_log` describes the
steps of a move and the state after a crash. Here is where they run. A thread of its own copies in chunks, at most
``replica.alter.log.dirs.io.max.bytes.per.second``. The disk thread opens and deletes. The exchange is one step on the
loop, without an await, so that no request sees half of it. A moving partition is not compacted; a deleted one ends its
move first.

Until the exchange every acknowledgement rests on the source, which is complete and stays. After it, on the copy: its
first flush makes all of it durable, and only then is the source deleted.

A move that fails is given up, with an ERROR in the log: the copy is removed, the partition stays where it is. A move
interrupted by the end of the process continues at the next start (`resume`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from klamm.broker.partitions.partition import end_file_work
from klamm.config.known import MOVE_RATE
from klamm.protocol.errors import (
    InvalidTopicException,
    KafkaError,
    KafkaStorageError,
    LogDirNotFound,
    UnknownTopicOrPartition,
)
from klamm.storage.copies import future_log
from klamm.storage.filesystem import describe
from klamm.storage.paths import TopicPartition

if TYPE_CHECKING:
    from klamm.broker.background.flusher import Flusher
    from klamm.broker.partitions.partition import Partition
    from klamm.broker.partitions.partition_manager import PartitionManager
    from klamm.config.broker_config import BrokerConfig
    from klamm.storage.clock import Clock
    from klamm.storage.copies.future_log import FutureLog
    from klamm.storage.log_dir import LogDir

log = logging.getLogger(__name__)

T = TypeVar("T")

THROTTLE = MOVE_RATE
CHUNK_BYTES = 4 << 20
"""Copied at a time."""
TAIL_BYTES = 4 << 20
"""A larger active segment is rolled, so that it can be copied as a closed one."""
MOST_ROLLS = 8
MOST_TRIES = 5
LAST_BYTES = 256 << 10
"""The most that may be left for the loop to copy, at the exchange."""
MOST_ROUNDS = 1000
PAUSE_S = 1.0
"""The pause of a move at a rate of zero."""


class FutureReplica(NamedTuple):
    """A copy in progress, for DescribeLogDirs."""

    partition: Partition
    log_dir: LogDir
    size_bytes: int
    offset_lag: int


class _Stopped(Exception):
    """The broker is stopping; the next start continues the move."""


class _Cancelled(Exception):
    """The partition has another target, stays, or was deleted."""


class _Move:
    __slots__ = ("_cancel", "copy", "done", "is_cancelled", "is_exchanged", "partition", "source_dir", "target")

    def __init__(
        self,
        partition: Partition,
        source_dir: LogDir,
        target: LogDir,
        copy: FutureLog,
        cancel: Callable[[_Move], Awaitable[None]],
    ) -> None:
        self._cancel = cancel
        self.partition = partition
        self.source_dir = source_dir
        self.target = target
        self.copy = copy
        self.is_cancelled = False
        self.is_exchanged = False
        self.done = asyncio.Event()

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.partition.topic, self.partition.index)

    async def end(self) -> None:
        await self._cancel(self)


class LogDirMover:
    """Verbs: `check_move` and `move_partition`, `resume` at startup, `stop` at shutdown; `future_replicas` are in
    progress.
    """

    def __init__(
        self,
        partitions: PartitionManager,
        flusher: Flusher,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        disk: Executor | None,
    ) -> None:
        self._partitions = partitions
        self._flusher = flusher
        self._config = config
        self._clock = clock
        self._disk = disk
        self._copier: ThreadPoolExecutor | None = None
        self._moves: dict[Partition, _Move] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._copied_until = 0.0

    # -- requests

    def check_move(self, path: str, topic: str, index: int) -> tuple[Partition, LogDir]:
        """Return the named partition and log directory. Raises the errors of AlterReplicaLogDirs."""
        target = next((each for each in self._partitions.logs.log_dirs if str(each.path) == path), None)
        if target is None:
            raise LogDirNotFound(f"log dir {path!r} is not found in the config")
        if target.offline_reason is not None:
            raise KafkaStorageError(f"log dir {path} is offline: {target.offline_reason}")
        partition = self._partitions.get_partition(topic, index)
        if partition is None:
            raise UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
        partition.online_log()
        return partition, target

    async def move_partition(self, partition: Partition, target: LogDir) -> None:
        """Start to move the partition to `target`. Raises a KafkaError."""
        move = self._moves.get(partition)
        if move is not None:
            if move.target is target and not move.is_cancelled:
                return
            await self._cancel(move)
        source = partition.online_log()
        source_dir = self._partitions.logs.directory_of(partition.key)
        if source_dir is target:
            return
        if (left := self._partitions.logs.state(partition.key).previous_directory) is not None:
            raise KafkaStorageError(f"{partition.name}: its remains in {left.path} are not deleted yet")
        partition.is_moving = True  # no compaction begins from now on, and a running one ends
        try:
            await end_file_work(partition.file_work)
            copy = await self._in_disk_thread(future_log.begin, source, partition.key, target)
        except ValueError as error:
            raise InvalidTopicException(str(error)) from None
        finally:
            partition.is_moving = partition in self._moves
        move = _Move(partition, source_dir, target, copy, self._cancel)
        if self._is_stopping or partition in self._moves or partition.log is not source:
            await self._drop(move)
            raise KafkaStorageError(f"{partition.name} has changed meanwhile")
        self._moves[partition] = move
        partition.is_moving = True
        partition.file_work.add(move)
        log.info("%s: moves from %s to %s", partition.name, source_dir.path, target.path)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def future_replicas(self) -> Iterator[FutureReplica]:
        for move in self._moves.values():
            if not move.is_exchanged:
                yield FutureReplica(move.partition, move.target, move.copy.copied_bytes, move.copy.lag)

    async def resume(self) -> None:
        """Start interrupted moves again, with new copies: the old ones are not trusted."""
        for target in self._partitions.logs.log_dirs:
            futures, target.futures = target.futures, []
            for key, directory in futures:
                partition = self._partitions.get_partition(key.topic, key.partition)
                if partition is None or partition.is_offline:
                    log.warning("%s: kept, as %s is not served", directory, key)
                    continue
                try:
                    await self._in_disk_thread(future_log.drop_directory, directory, target)
                    await self.move_partition(partition, target)
                except KafkaError as error:
                    log.error("%s: does not move to %s: %s", key, target.path, error.message)

    async def stop(self) -> None:
        """Stop all moves, so that the next start continues them."""
        self._is_stopping = True
        if self._task is not None:
            await self._task
        for move in list(self._moves.values()):  # those that have not begun
            self._ended(move)
        if self._copier is not None:
            self._copier.shutdown()

    # -- one move after the other

    async def _run(self) -> None:
        try:
            while self._moves and not self._is_stopping:
                await self._attempt(next(iter(self._moves.values())))
        finally:
            self._task = None

    async def _attempt(self, move: _Move) -> None:
        partition = move.partition
        try:
            await self._carry_out(move)
            log.info("%s: is in %s now", partition.name, move.target.path)
        except _Stopped:
            with suppress(KafkaError):  # the next start then finds two, and decides which stays
                await self._in_disk_thread(future_log.set_aside, move.copy, move.target)
        except _Cancelled:
            log.info("%s: the move to %s was cancelled", partition.name, move.target.path)
            await self._drop(move)
        except Exception as error:
            reason = describe(error) if isinstance(error, OSError) else str(error)
            if not isinstance(error, OSError | KafkaError):
                log.exception("%s: the move failed", partition.name)
            log.error("%s: does not move to %s: %s", partition.name, move.target.path, reason)
            await self._drop(move)
        finally:
            self._ended(move)

    def _ended(self, move: _Move) -> None:
        partition = move.partition
        if self._moves.get(partition) is move:
            del self._moves[partition]
        partition.is_moving = partition in self._moves
        partition.file_work.discard(move)
        move.done.set()

    async def _cancel(self, move: _Move) -> None:
        has_begun = next(iter(self._moves.values()), None) is move
        if move.is_cancelled or has_begun or move.done.is_set():
            move.is_cancelled = True
            await move.done.wait()
            return
        move.is_cancelled = True
        del self._moves[move.partition]
        await self._drop(move)
        self._ended(move)

    async def _drop(self, move: _Move) -> None:
        if move.is_exchanged:  # the source is then the one to delete: the next start does so
            return
        try:
            await self._in_disk_thread(future_log.drop, move.copy, move.target)
        except KafkaError as error:
            log.error("%s: its partial copy stays in %s: %s", move.partition.name, move.target.path, error.message)

    def _check(self, move: _Move) -> None:
        """Raise an exception if the move must not go on; called between any two steps."""
        if self._is_stopping:
            raise _Stopped
        if move.is_cancelled or move.partition.log is not move.copy.source:
            raise _Cancelled
        if move.target.offline_reason is not None:
            raise KafkaStorageError(f"{move.target.path} is offline: {move.target.offline_reason}")

    # -- one move

    async def _carry_out(self, move: _Move) -> None:
        for _ in range(MOST_TRIES):
            if await self._copy(move):
                break
            log.info("%s: its segments were replaced while it was copied, starting again", move.partition.name)
            source = move.copy.source
            await self._drop(move)
            self._check(move)
            move.copy = await self._in_disk_thread(future_log.begin, source, move.key, move.target)
        else:
            raise KafkaStorageError(f"its segments were replaced while it was copied, {MOST_TRIES} times")
        self._exchange(move)
        is_deleted = False
        try:
            await self._flusher.flush(move.partition)
            await self._in_disk_thread(future_log.finish, move.copy, move.key, move.source_dir, move.target)
            is_deleted = True
        finally:
            await self._partitions.on_move_ended(move.partition, is_deleted=is_deleted)

    async def _copy(self, move: _Move) -> bool:
        """Bring the copy up to the source. Return whether the source is still the log that was copied. The exchange
        must follow without an await.
        """
        copy, source = move.copy, move.copy.source
        for _ in range(MOST_ROLLS):
            self._check(move)
            if source.local.segments.all[-1].size_bytes > TAIL_BYTES:
                source.roll()
            while copied := await self._in_copier(copy.copy_some, CHUNK_BYTES):
                await self._throttle(copied, move)
            if source.local.segments.all[-1].size_bytes <= TAIL_BYTES:
                break
        self._check(move)
        epochs = source.leader_epochs.content()
        await self._in_disk_thread(copy.open, epochs, move.source_dir, move.target)
        assert copy.log is not None
        for _ in range(MOST_ROUNDS):
            while copied := await self._in_copier(copy.catch_up, CHUNK_BYTES):
                await self._throttle(copied, move)
            await self._in_copier(copy.log.local.flush)
            self._check(move)
            if copy.is_stale:
                return False
            if copy.behind_bytes <= LAST_BYTES:
                while copy.catch_up(LAST_BYTES):
                    pass
                return True
        raise KafkaStorageError(f"appends are faster than the copy: bytes_left={copy.behind_bytes}")

    def _exchange(self, move: _Move) -> None:
        taken = move.copy.replace_current_log()
        move.source_dir.hand_over(move.key)
        move.target.take_in(move.key, taken)
        self._partitions.on_log_moved(move.partition, taken, move.source_dir, move.target)
        move.is_exchanged = True

    async def _throttle(self, copied: int, move: _Move) -> None:
        """Wait until more may be copied."""
        self._check(move)
        while (rate := self._bytes_per_second()) == 0:
            await asyncio.sleep(PAUSE_S)
            self._check(move)
        if rate is None:
            return
        now = self._clock.monotonic()
        self._copied_until = max(self._copied_until, now) + copied / rate
        while (left := self._copied_until - self._clock.monotonic()) > 0:
            await asyncio.sleep(min(left, PAUSE_S))
            self._check(move)

    def _bytes_per_second(self) -> int | None:
        config = self._config()
        return config.integer(THROTTLE) if THROTTLE in config else None

    async def _in_copier(self, work: Callable[..., T], *arguments: object) -> T:
        if self._copier is None:
            self._copier = ThreadPoolExecutor(1, thread_name_prefix="klamm-move")
        return await asyncio.get_running_loop().run_in_executor(self._copier, work, *arguments)

    async def _in_disk_thread(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work, *arguments)
