"""An internal topic that holds a coordinator's state. It is created on first use and loaded at startup.

Keys (group ids, transactional ids) are spread over the partitions by their hash. A key can be served when its partition
is led here and has been loaded; before, requests get NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS. A partition that
cannot be read to its end has no coordinator (COORDINATOR_NOT_AVAILABLE): half of the log would undo acknowledged
changes. Loading it is retried after a growing pause; other partitions do not wait for it. All methods run on the loop;
a thread reads and decodes the bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from klamm.broker.controller.configs import automatic_topic
from klamm.protocol.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    CorruptMessage,
    KafkaError,
    NotCoordinator,
)
from klamm.protocol.records.batch import batches
from klamm.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from klamm.broker.controller.controller import Controller
    from klamm.broker.metadata.image import MetadataImage
    from klamm.broker.partitions.partition import Partition
    from klamm.broker.partitions.partition_manager import PartitionManager
    from klamm.config.broker_config import BrokerConfig
    from klamm.protocol.regions import FileRegion

log = logging.getLogger(__name__)

READ_AGAIN_S = 1.0  # the pause before a partition that could not be read is tried again; it doubles with each failure,
READ_AGAIN_MAX_S = 60.0  # up to this


class Replay(Protocol):
    """A decoder that reads the log of a partition piece by piece, in any thread."""

    def read(self, data: bytes, offset: int) -> int:
        """Decode the whole batches in `data`, starting with the record at `offset`. Return the next offset to read."""
        ...


R = TypeVar("R", bound=Replay)


class InternalTopic(Generic[R]):
    """One internal topic. `make_replay(partition)` starts the read of a partition. `take(index, replay)` receives the
    result and may spread its work over several loop iterations. `forget` is called when the topic is deleted.
    """

    def __init__(
        self,
        name: str,
        buffer_key: str,
        config: BrokerConfig,
        *,
        controller: Controller,
        partitions: PartitionManager,
        executor: Executor,
        make_replay: Callable[[Partition], R],
        take: Callable[[int, R], Awaitable[None]],
        forget: Callable[[], None],
    ) -> None:
        self.name = name
        self.config = config
        self.partition_count = 0
        self._buffer_key = buffer_key
        self._controller = controller
        self._partitions = partitions
        self._executor = executor
        self._make_replay = make_replay
        self._take = take
        self._forget = forget
        self._topic_id = ZERO_UUID
        self._loaded: set[int] = set()
        # partitions that could not be read, with the timer of the next try
        self._pauses: dict[int, asyncio.TimerHandle] = {}
        self._failures: Counter[int] = Counter()
        self._load_task: asyncio.Task[None] | None = None
        self._creation: asyncio.Task[KafkaError | None] | None = None
        self._said = ""
        self._take_topic()

    # -- which keys are served here -----------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """Whether the topic exists, so that every key has a coordinator."""
        return self.partition_count > 0

    @property
    def loading(self) -> bool:
        """Whether some readable partitions are still to be loaded."""
        if len(self._loaded) == self.partition_count:
            return False
        return any(index not in self._loaded and self._is_readable(index) for index in range(self.partition_count))

    def index_of(self, key: str) -> int:
        """Return the index of the partition that holds a key; -1 while the topic does not exist."""
        return partition_of(key, self.partition_count) if self.partition_count else -1

    def partition_for(self, key: str) -> Partition | None:
        return self._partitions.get_partition(self.name, self.index_of(key))

    def check(self, key: str) -> None:
        """Raise NotCoordinator, CoordinatorNotAvailable or CoordinatorLoadInProgress if the key cannot be
        served here.
        """
        if not self.partition_count:
            raise NotCoordinator(f"there is no {self.name} yet")
        index = self.index_of(key)
        if index not in self._loaded:
            self.start()
            if index in self._pauses:
                raise CoordinatorNotAvailable(f"{self.name}-{index} could not be read")
            if not self._is_readable(index):
                raise NotCoordinator(f"{self.name}-{index} is offline")
            if index not in self._loaded:
                raise CoordinatorLoadInProgress(f"{self.name}-{index} is being loaded")

    def is_loaded(self, index: int) -> bool:
        """Return whether a partition has been loaded."""
        return index in self._loaded

    def unload(self, index: int) -> bool:
        """Mark a partition to be loaded again. Return whether it was loaded; the caller then drops its state."""
        if index not in self._loaded:
            return False
        self._loaded.discard(index)
        asyncio.get_running_loop().call_soon(self.start)
        return True

    def _is_readable(self, index: int) -> bool:
        partition = self._partitions.get_partition(self.name, index)
        return partition is not None and partition.log is not None and index not in self._pauses

    # -- creation -----------------------------------------------------------------------------------------------

    async def find(self) -> None:
        """Create the topic if it does not exist. Raises CoordinatorNotAvailable."""
        if self.partition_count:
            return
        if self._creation is None:
            self._creation = asyncio.get_running_loop().create_task(self._create())
        error = await asyncio.shield(self._creation)
        if error is not None:
            if error.message != self._said:
                self._said = error.message
                log.error("%s cannot be created: %s", self.name, error.message)
            raise CoordinatorNotAvailable(f"{self.name} cannot be created: {error.message}")

    async def _create(self) -> KafkaError | None:
        try:
            new = automatic_topic(self.name, self.config)
            result = (await self._controller.create_topics([new]))[0]
        except KafkaError as error:
            return error
        finally:
            self._creation = None
        return None if self.name in self._controller.image.topics else result.error

    def on_image(self, new: MetadataImage) -> None:
        """Notice that the topic was created or deleted."""
        ours = new.topics.get(self.name)
        if ours is None or ours.topic_id != self._topic_id:
            if self.partition_count:
                log.warning("%s was deleted, with all its state", self.name)
                self._forget()
            self._take_topic()
            if self.partition_count:
                self.start()

    def _take_topic(self) -> None:
        """Read the topic's id and partition count from the image. Kafka also reads the count only once: partitions
        added later move no key.
        """
        topic = self._controller.image.topics.get(self.name)
        self.partition_count = len(topic.partitions) if topic is not None else 0
        self._topic_id = topic.topic_id if topic is not None else ZERO_UUID
        self._loaded.clear()
        self._end_pauses()

    # -- loading ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to load partitions that are not loaded yet. May be called again."""
        if self._load_task is None and self.loading:
            self._load_what_is_empty()
            if self.loading:
                self._load_task = asyncio.get_running_loop().create_task(self._load())

    async def loaded(self) -> None:
        """Wait until every partition is loaded."""
        self.start()
        if self._load_task is not None:
            await self._load_task

    def close(self) -> None:
        """Stop loading and drop all state; from now on every key gets NotCoordinator."""
        if self._load_task is not None:
            self._load_task.cancel()
        self._end_pauses()
        self._forget()
        self.partition_count = 0

    def _load_what_is_empty(self) -> None:
        for index in range(self.partition_count):
            partition = self._partitions.get_partition(self.name, index)
            if partition is not None and partition.log is not None and not _has_data(partition):
                self._loaded.add(index)

    async def _load(self) -> None:
        try:
            while self.loading:  # meanwhile a pause may end, or the topic be replaced
                await self._load_each(self._topic_id)
        finally:
            self._load_task = None

    async def _load_each(self, topic_id: bytes) -> None:
        for index in range(self.partition_count):
            partition = self._partitions.get_partition(self.name, index)
            if index in self._loaded or partition is None or not self._is_readable(index):
                continue
            try:
                replay = await self._read(partition)
                if self._topic_id != topic_id:
                    return
                await self._take(index, replay)
                if self._topic_id != topic_id:
                    self._forget()
                    return
                self._loaded.add(index)
                del self._failures[index]
            except Exception as error:  # any error is about this partition only
                if self._topic_id != topic_id:
                    self._forget()
                    return
                self._pause(partition, index, error)

    def _pause(self, partition: Partition, index: int, error: Exception) -> None:
        """Schedule the next try for a partition that could not be read."""
        pause_s = min(READ_AGAIN_S * 2 ** self._failures[index], READ_AGAIN_MAX_S)
        self._failures[index] += 1
        self._loaded.discard(index)
        self._pauses[index] = asyncio.get_running_loop().call_later(pause_s, self._try_again, index)
        log.error(
            "%s: cannot be loaded, the next try is in %.0f s: %s",
            partition.name,
            pause_s,
            error.message if isinstance(error, KafkaError) else repr(error),
            exc_info=None if isinstance(error, KafkaError | OSError | EOFError) else error,
        )

    def _try_again(self, index: int) -> None:
        del self._pauses[index]
        self.start()

    def _end_pauses(self) -> None:
        for handle in self._pauses.values():
            handle.cancel()
        self._pauses.clear()
        self._failures.clear()

    async def _read(self, partition: Partition) -> R:
        """Replay a partition from log start to log end. The loop finds the regions; the thread reads and decodes them.
        Raises any error that a damaged log causes.
        """
        loop = asyncio.get_running_loop()
        replay = self._make_replay(partition)
        size = self.config.integer(self._buffer_key)
        storage_log = partition.online_log()
        offset, end = storage_log.log_start_offset, storage_log.log_end_offset
        cut = False  # the last piece ended within a batch
        while offset < end:
            region = storage_log.read_records(offset, max_bytes=size, max_offset=end).region
            if region is None and not cut:
                break  # compaction has removed the rest
            following = offset
            if region is not None:
                following, cut = await loop.run_in_executor(self._executor, _absorb, replay, region, offset)
            if following <= offset:
                raise CorruptMessage(f"there is no whole batch at offset {offset}, but the log goes on to {end}")
            offset = following
        return replay


def partition_of(key: str, partition_count: int) -> int:
    """Return the partition index of a key: Java's hash of its UTF-16 units, modulo the partition count."""
    units = key.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    if value & 0x80000000:
        value = 0x100000000 - value
        if value == 0x80000000:
            value = 0  # Java cannot negate its smallest int; Kafka uses 0 for it
    return value % partition_count


def _has_data(partition: Partition) -> bool:
    return partition.log_end_offset > partition.log_start_offset


def _absorb(replay: Replay, region: FileRegion, offset: int) -> tuple[int, bool]:
    """Read and decode a region, in the thread. Return the next offset, and whether the region ends within a batch."""
    data = region.read()
    following = replay.read(data, offset)
    return following, sum(header.size_bytes for _, header in batches(data)) < len(data)
