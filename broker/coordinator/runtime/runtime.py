"""The runtime of a coordinator: time, the topic that holds its state, and the writes to it.

A coordinator is a shell around state machines. Events come in: a request, a deadline, a loaded partition, a metadata
change. Records and responses go out. The runtime delivers the events and stores the records; the `Coordinator` gives
them their meaning.

    start           loads the partitions of the topic (`InternalTopic`), and starts the timer
    append          stores the records of one key (`CoordinatorWriter`); `done` is called when they are durable or have
                    failed
    when            registers the callback for deadlines of some kinds in `timers`; call `arm` after setting a deadline
    read_again      unloads and reloads the partition of a key, because memory may be ahead of the log
    close           ends all deadlines; later requests get NotCoordinator

All methods run on the loop. After a crash all state comes from the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from klamm.broker.coordinator.runtime import internal_topic
from klamm.broker.coordinator.runtime.coordinator_writer import CoordinatorWriter, TransactionalProducer, nothing
from klamm.broker.coordinator.runtime.internal_topic import InternalTopic
from klamm.broker.coordinator.runtime.timer import CoordinatorTimer
from klamm.broker.coordinator.runtime.timer_queue import TimerQueue
from klamm.broker.coordinator.runtime.types import Done, Now, Records, TimerKey
from klamm.broker.turns import Tasks
from klamm.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from klamm.broker.background.flusher import Flusher
    from klamm.broker.controller.controller import Controller
    from klamm.broker.metadata.image import MetadataImage
    from klamm.broker.partitions.partition import Partition
    from klamm.broker.partitions.partition_manager import PartitionManager
    from klamm.config.broker_config import BrokerConfig
    from klamm.protocol.records.compression import Codec
    from klamm.storage.clock import Clock

log = logging.getLogger(__name__)

EXPIRY = "expiry"

R = TypeVar("R", bound=internal_topic.Replay)


class Coordinator(Protocol[R]):
    """The calls that the runtime makes to a coordinator."""

    def make_replay(self, partition: Partition) -> R:
        """Start the read of a partition of the topic."""
        ...

    async def take(self, index: int, replay: R) -> None:
        """Take over the state that was read. May take several loop iterations."""
        ...

    def unload(self, index: int | None) -> None:
        """Drop the state of a partition; None: of all partitions."""
        ...

    def expire(self, now: Now) -> None:
        """Remove unused state, and set the next expiry (`CoordinatorRuntime.set_expiry`)."""
        ...


class CoordinatorRuntime(Generic[R]):
    """See the module's head. `topic` holds the state; `expiry_key` is the config key of the expiry interval."""

    def __init__(
        self,
        topic: str,
        coordinator: Coordinator[R],
        config: BrokerConfig,
        *,
        buffer_key: str,
        expiry_key: str,
        codec: Codec,
        clock: Clock,
        controller: Controller,
        partitions: PartitionManager,
        flusher: Flusher,
        executor: Executor,
    ) -> None:
        self.config = config
        self.timers: TimerQueue[TimerKey] = TimerQueue()
        self.timer = CoordinatorTimer(self.timers, self.now, self._due)
        self.arm = self.timer.arm
        self.tasks = Tasks()
        self.topic: InternalTopic[R] = InternalTopic(
            topic,
            buffer_key,
            config,
            controller=controller,
            partitions=partitions,
            executor=executor,
            make_replay=coordinator.make_replay,
            take=self._take,
            forget=lambda: coordinator.unload(None),
        )
        self._coordinator = coordinator
        self._clock = clock
        self._expiry_key = expiry_key
        self._writer = CoordinatorWriter(flusher, self.now, codec)
        self._whom: dict[str, Callable[[TimerKey, Now], None]] = {EXPIRY: lambda _, now: coordinator.expire(now)}

    def now(self) -> Now:
        return Now(int(self._clock.monotonic() * 1000), self._clock.wall_ms())

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to load the log, and set the first expiry."""
        if (EXPIRY,) not in self.timers:
            self.set_expiry(self.now())
        self.topic.start()

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Pass metadata changes on to the topic."""
        if new.topics is not old.topics:
            self.topic.on_image(new)

    def close(self) -> None:
        """Cancel deadlines and tasks, and drop all state; later requests get NotCoordinator."""
        self.timer.close()
        self.tasks.cancel()
        self.topic.close()

    async def _take(self, index: int, replay: R) -> None:
        await self._coordinator.take(index, replay)
        self.arm(self.now())

    def read_again(self, key: str) -> None:
        """Reload a key's partition: a record was appended but is not durable, so memory may be ahead of the log."""
        index = self.topic.index_of(key)
        if self.topic.unload(index):
            log.warning("%s-%d: its state is loaded again", self.topic.name, index)
            self._coordinator.unload(index)

    # -- storing ------------------------------------------------------------------------------------------------

    def append(
        self,
        key: str,
        records: Records,
        done: Done,
        now: Now,
        *,
        appended: Callable[[], None] = nothing,
        producer: TransactionalProducer | None = None,
    ) -> None:
        """Store records in the partition of a key: see `CoordinatorWriter.append`."""
        partition = self.topic.partition_for(key)
        if partition is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER, now)
            return

        def stored(code: ErrorCode, now: Now) -> None:
            done(code, now)
            self.arm(now)

        self._writer.append(partition, records, stored, now, appended=appended, producer=producer)

    # -- time ---------------------------------------------------------------------------------------------------

    def when(self, kinds: Iterable[str], due: Callable[[TimerKey, Now], None]) -> None:
        """Call `due` at each deadline with a key that begins with one of the `kinds`."""
        for kind in kinds:
            assert kind not in self._whom, kind
            self._whom[kind] = due

    def _due(self, key: TimerKey, now: Now) -> None:
        self._whom[key[0]](key, now)

    def set_expiry(self, now: Now, pause_ms: int | None = None) -> None:
        """Have the coordinator look for what has expired after the time that the config says, or `pause_ms`."""
        if pause_ms is None:
            pause_ms = self.config.integer(self._expiry_key)
        self.timers.set((EXPIRY,), now.ms + pause_ms)
        self.arm(now)
