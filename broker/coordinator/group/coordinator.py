"""The group coordinator of a broker: the shell around the state machines of all group protocols.

It makes and wires its parts: the runtime over ``__consumer_offsets``, the `Groups` of each protocol, the offsets with
their `Commits`, `Removals` and `Expiry`. A group is served when its partition is led here and has been loaded; before,
requests get NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS.

After a crash all state comes from the log: an acknowledged offset is in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from klamm.broker.controller.features import GROUP_VERSION
from klamm.broker.coordinator.group.classic import rebalances
from klamm.broker.coordinator.group.classic.classic import ClassicGroups
from klamm.broker.coordinator.group.classic.classic_records import from_record
from klamm.broker.coordinator.group.classic.limits import GroupLimits
from klamm.broker.coordinator.group.commits import Commits
from klamm.broker.coordinator.group.consumer import sessions
from klamm.broker.coordinator.group.consumer.classic_members import ClassicMembers
from klamm.broker.coordinator.group.consumer.consumer import ConsumerGroups
from klamm.broker.coordinator.group.consumer.consumer_records import from_records
from klamm.broker.coordinator.group.consumer.limits import GroupSettings
from klamm.broker.coordinator.group.expiry import Expiry
from klamm.broker.coordinator.group.groups import Groups
from klamm.broker.coordinator.group.loader import Replay
from klamm.broker.coordinator.group.offsets import Offset, OffsetTable
from klamm.broker.coordinator.group.pending_transactional_offsets import PendingTransactionalOffsets
from klamm.broker.coordinator.group.removals import PIECE, Removals
from klamm.broker.coordinator.group.settings import consumer_limits, group_settings
from klamm.broker.coordinator.group.subscription import CONSUMER
from klamm.broker.coordinator.runtime.executor import CoordinatorExecutor
from klamm.broker.coordinator.runtime.runtime import CoordinatorRuntime
from klamm.broker.coordinator.runtime.types import Now
from klamm.broker.coordinator.runtime.write_timeouts import WriteTimeouts
from klamm.broker.metadata.image import OFFSETS_TOPIC
from klamm.broker.turns import in_turns
from klamm.protocol.errors import ErrorCode, InvalidGroupId
from klamm.protocol.records.compression import Codec
from klamm.protocol.wire import MAX_STRING_BYTES, fits_string

if TYPE_CHECKING:
    from klamm.broker.background.flusher import Flusher
    from klamm.broker.controller.controller import Controller
    from klamm.broker.metadata.image import MetadataImage, TopicImage
    from klamm.broker.partitions.partition import Partition
    from klamm.broker.partitions.partition_manager import PartitionManager
    from klamm.config.broker_config import BrokerConfig
    from klamm.storage.clock import Clock

log = logging.getLogger(__name__)


class GroupCoordinator:
    """See the module's head. All methods run on the loop."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        controller: Controller,
        partitions: PartitionManager,
        flusher: Flusher,
        executor: Executor,
        new_id: Callable[[], str],
    ) -> None:
        self._controller = controller
        self.runtime = CoordinatorRuntime(
            OFFSETS_TOPIC,
            self,
            config,
            buffer_key="offsets.load.buffer.size",
            expiry_key="offsets.retention.check.interval.ms",
            codec=Codec(config.integer("offsets.topic.compression.codec")),
            clock=clock,
            controller=controller,
            partitions=partitions,
            flusher=flusher,
            executor=executor,
        )
        self._executor = CoordinatorExecutor(self.runtime, "klamm-assign")
        self.groups = self._make_groups(new_id)
        self._make_offsets(clock)
        # Attributes that every request needs, without a call in between.
        self.topic, self.now, self.arm = self.runtime.topic, self.runtime.now, self.runtime.arm
        self.classic, self.consumers = self.groups.classic, self.groups.consumers
        self.configure(config)

    def _make_groups(self, new_id: Callable[[], str]) -> Groups:
        runtime = self.runtime
        classics = ClassicGroups(GroupLimits(), store=runtime.append, new_id=new_id, timers=runtime.timers)
        consumers = ConsumerGroups(
            classics,
            store=runtime.append,
            new_id=new_id,
            timers=runtime.timers,
            topics=lambda: self._controller.image.topics,
            topics_by_id=self._topics_by_id,
            settings=self._settings,
            failed=runtime.read_again,
            elsewhere=self._executor.run,
        )
        members = ClassicMembers(consumers, classics, new_id=new_id, topics_by_id=self._topics_by_id)
        runtime.when(rebalances.KINDS, classics.due)
        runtime.when(sessions.KINDS, consumers.due)
        return Groups(classics, consumers, members, runtime.append)

    def _make_offsets(self, clock: Clock) -> None:
        runtime = self.runtime
        timeouts = WriteTimeouts(runtime, lambda: runtime.config.integer("offsets.commit.timeout.ms"))
        self.offsets = OffsetTable()
        self.pending = PendingTransactionalOffsets()
        of_groups = (self.offsets, self.pending, self.groups)
        self.removals = Removals(*of_groups, runtime=runtime, timeouts=timeouts)
        self.commits = Commits(
            *of_groups,
            self.removals,
            runtime=runtime,
            timeouts=timeouts,
            topics=lambda: self._controller.image.topics,
        )
        self.expiry = Expiry(*of_groups, self.removals, runtime=runtime, clock=clock)

    def configure(self, config: BrokerConfig) -> None:
        """Apply a new config."""
        self.runtime.config = config
        self.metadata_max_bytes = config.integer("offset.metadata.max.bytes")
        self.classic.limits = GroupLimits(
            min_session_timeout_ms=config.integer("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.integer("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=config.integer("group.initial.rebalance.delay.ms"),
            max_size=config.integer("group.max.size"),
        )
        self.consumers.limits = consumer_limits(config)
        protocols = config["group.coordinator.rebalance.protocols"]
        self._consumer_protocol = isinstance(protocols, list) and CONSUMER in protocols
        self._default_settings = group_settings(config, {})

    def _topics_by_id(self) -> Mapping[bytes, TopicImage]:
        return self._controller.image.topics_by_id

    def _settings(self, group_id: str) -> GroupSettings:
        overrides = self._controller.image.group_configs.get(group_id)
        return group_settings(self.runtime.config, overrides) if overrides else self._default_settings

    # -- which groups are served here ---------------------------------------------------------------------------

    def check(self, group_id: str) -> None:
        """Raise what `InternalTopic.check` does unless the group is served here; InvalidGroupId for an id that cannot
        be stored.
        """
        if not fits_string(group_id):
            raise InvalidGroupId(f"the group id has more than {MAX_STRING_BYTES} bytes of UTF-8")
        self.topic.check(group_id)

    @property
    def consumer_protocol(self) -> bool:
        """Whether ConsumerGroupHeartbeat is served."""
        return self._consumer_protocol and self._controller.image.features.finalized.get(GROUP_VERSION, 0) >= 1

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to load the log, and set the first expiry. On the loop."""
        self.runtime.start()

    def close(self) -> None:
        """Stop: no more ticks; waiting requests get NotCoordinator."""
        self.runtime.close()
        self._executor.close()

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Apply changes of topics: of the internal topic, and of topics that groups use."""
        if new.topics is old.topics:
            return
        self.runtime.on_image(old, new)
        self.removals.on_image(old, new)
        self.consumers.topics_changed(*_changed_topics(old, new))

    async def settle(self) -> None:
        """Complete a metadata change: remove the offsets of deleted topics."""
        await self.removals.settle()

    def expire(self, now: Now) -> None:
        self.expiry.begin(now)

    # -- loading ------------------------------------------------------------------------------------------------

    def make_replay(self, partition: Partition) -> Replay:
        return Replay(partition.name, partition.index, partition.rules.max_decompressed_bytes)

    async def take(self, index: int, replay: Replay) -> None:
        """Take over the loaded groups and offsets, in turns. No group is served before all of the partition is here."""
        self.pending.forget(index)  # left over from a failed try
        await self._take_groups(replay)
        await self._take_offsets(replay)
        self.pending.merge(replay.pending)
        self.commits.loaded(index)
        if replay.record_count:
            log.info(
                "%s-%d: loaded, groups=%d offsets=%d records=%d skipped=%d",
                OFFSETS_TOPIC,
                index,
                len(replay.groups) + len(replay.consumers),
                len(replay.offsets),
                replay.record_count,
                replay.skipped,
            )

    async def _take_groups(self, replay: Replay) -> None:
        now = self.now()
        async for group_id, value in in_turns(replay.groups.items()):
            self.classic.take(from_record(group_id, value), now)
        async for group_id, parts in in_turns(replay.consumers.items()):
            group = from_records(group_id, parts, self.consumers.limits.assignors[0])
            if group is not None:
                self.classic.forget(group_id, int(ErrorCode.NOT_COORDINATOR), now.wall_ms)
                self.consumers.take(group, now)

    async def _take_offsets(self, replay: Replay) -> None:
        stale: dict[str, list[Offset]] = {}
        async for (group_id, name, partition), committed in in_turns(replay.offsets.items(), PIECE):
            if committed.is_stale(self._controller.image.topics.get(name)):
                stale.setdefault(group_id, []).append((name, partition))  # deleted while this broker was down
            self.offsets.put(group_id, name, partition, committed)
            self.groups.simple(group_id, committed.commit_timestamp_ms)
        async for group_id, gone in in_turns(stale.items(), 1):
            self.removals.remove(group_id, gone)

    def unload(self, index: int | None) -> None:
        """Forget the groups and offsets of a partition; None: of all."""
        wall_ms = self.now().wall_ms
        for group_id in dict.fromkeys([*self.classic.groups, *self.consumers.groups, *self.offsets.groups()]):
            if index is None or self.topic.index_of(group_id) == index:
                self.groups.forget(group_id, wall_ms)
                self.offsets.forget(group_id)
        if index is None:
            self.pending.clear()
            self.commits.forget_markers()
        else:
            self.pending.forget(index)


def _changed_topics(old: MetadataImage, new: MetadataImage) -> tuple[frozenset[str], frozenset[str]]:
    """Return topics that were created, deleted or got more partitions; and those that were created or deleted."""
    differ = {
        name
        for name in old.topics.keys() | new.topics.keys()
        if (was := old.topics.get(name)) is not (now := new.topics.get(name))
        and (was is None or now is None or was.topic_id != now.topic_id or len(was.partitions) != len(now.partitions))
    }
    return frozenset(differ), frozenset(name for name in differ if name not in old.topics or name not in new.topics)
