"""What runs a coordinator: time, the topic that holds its state, and the writes into it.

A coordinator is a shell around state machines. Events come in: a request, a deadline, a partition that was read back, a
change of the metadata. Records and answers go out. The runtime brings the events and takes the records; what they mean
is for the coordinator to say, which is a `Coordinator` here.

    start           reads the partitions of the topic back (`InternalTopic`), and begins to look at the clock
    append          stores the records of one key (`CoordinatorWriter`); `done` comes when they are durable or have
                    failed
    when            says who is called when a deadline of a kind in `timers` has come; `arm` after one may have been set
    read_again      memory may be ahead of the log: the partition of a key is unloaded, and read again
    close           no more deadlines; who asks from then on is sent elsewhere

All methods run on the loop. After a crash everything comes from the log.
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
    """What the runtime asks of a coordinator."""

    def make_replay(self, partition: Partition) -> R:
        """Begin to read a partition of the topic."""
        ...

    async def take(self, index: int, replay: R) -> None:
        """Look after what was read. May take several turns of the loop."""
        ...

    def unload(self, index: int | None) -> None:
        """Look no longer after what a partition holds; None: after nothing at all."""
        ...

    def expire(self, now: Now) -> None:
        """Forget what nobody uses. Sees to it that the next look comes (`CoordinatorRuntime.set_expiry`)."""
        ...


class CoordinatorRuntime(Generic[R]):
    """See the module's head. `topic` holds the state; `expiry_key` is the config of the time between two expiries."""

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
        """Begin to read the log back, and to look at the clock."""
        if (EXPIRY,) not in self.timers:
            self.set_expiry(self.now())
        self.topic.start()

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """The topic may have come or gone."""
        if new.topics is not old.topics:
            self.topic.on_image(new)

    def close(self) -> None:
        """No more deadlines; who waits, and who asks from now on, is sent elsewhere."""
        self.timer.close()
        self.tasks.cancel()
        self.topic.close()

    async def _take(self, index: int, replay: R) -> None:
        await self._coordinator.take(index, replay)
        self.arm(self.now())

    def read_again(self, key: str) -> None:
        """A record of this key was appended and is not durable: memory may be ahead of the log, believe the log."""
        index = self.topic.index_of(key)
        if self.topic.unload(index):
            log.warning("%s-%d: what it holds is read again", self.topic.name, index)
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
        """Call `due` when the deadline of a key comes that begins with one of the `kinds`."""
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
