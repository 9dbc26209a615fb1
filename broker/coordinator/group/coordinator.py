"""The group coordinator of a broker: the shell around the state machines.

It knows which partition of ``__consumer_offsets`` a group belongs to, makes that topic when the first client looks for
a coordinator, reads the partitions back at the start, appends what the machines want stored, keeps one timer of the
loop for all their deadlines, and expires offsets. A group is answered for when its partition is led here and has been
read: NOT_COORDINATOR and COORDINATOR_LOAD_IN_PROGRESS before.

After a crash everything comes from the log: an offset that was acknowledged is in it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from klamm.broker.controller.features import GROUP_VERSION
from klamm.broker.coordinator.group.classic import classic
from klamm.broker.coordinator.group.classic.classic import ClassicGroups, GroupLimits, TimerKey
from klamm.broker.coordinator.group.classic.classic_group import ClassicGroup
from klamm.broker.coordinator.group.classic.states import State
from klamm.broker.coordinator.group.consumer import consumer
from klamm.broker.coordinator.group.consumer.classic_members import ClassicMembers
from klamm.broker.coordinator.group.consumer.consumer import ConsumerGroups
from klamm.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from klamm.broker.coordinator.group.consumer.consumer_records import from_records
from klamm.broker.coordinator.group.consumer.consumer_states import GroupState
from klamm.broker.coordinator.group.consumer.target import Computed
from klamm.broker.coordinator.group.expiry import Offset, expired_offsets
from klamm.broker.coordinator.group.loader import Replay
from klamm.broker.coordinator.group.offsets import CommittedOffset, OffsetTable
from klamm.broker.coordinator.group.pending import Key, OffsetsOfTransaction, PendingOffsets
from klamm.broker.coordinator.group.records import batches, group_key, offset_key, offset_record
from klamm.broker.coordinator.group.settings import consumer_limits, group_settings
from klamm.broker.coordinator.group.subscription import CONSUMER
from klamm.broker.coordinator.runtime.alarm import Alarm
from klamm.broker.coordinator.runtime.answer import Answer
from klamm.broker.coordinator.runtime.internal_topic import InternalTopic
from klamm.broker.coordinator.runtime.journal import Journal, TransactionalProducer
from klamm.broker.coordinator.runtime.machine import Done, KeyValue, Now, Records, told
from klamm.broker.coordinator.runtime.timers import Timers
from klamm.broker.metadata.image import OFFSETS_TOPIC
from klamm.broker.turns import Tasks, in_turns
from klamm.protocol.errors import ErrorCode, InvalidGroupId
from klamm.protocol.records.compression import Codec
from klamm.protocol.wire import MAX_STRING_BYTES, ZERO_UUID, fits_string
from klamm.storage.log.retention import TrustedTime

if TYPE_CHECKING:
    from klamm.broker.background.flusher import Flusher
    from klamm.broker.controller.controller import Controller
    from klamm.broker.metadata.image import MetadataImage
    from klamm.broker.partitions.partition_manager import PartitionManager
    from klamm.config.broker_config import BrokerConfig
    from klamm.storage.clock import Clock

log = logging.getLogger(__name__)

COMMIT, EXPIRY = "commit", "expiry"
MINUTE_MS = 60_000
PIECE = 500
"""Offsets that are looked at, or removed, in one turn."""

Commit = tuple[str, int, CommittedOffset]
Group = ClassicGroup | ConsumerGroup
Outcome = ErrorCode | asyncio.Future[ErrorCode]


class GroupCoordinator:
    """See the module's head. All methods run on the loop; those that return an error code or a future of one answer
    at once unless the log has to be flushed first."""

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
        self.offsets = OffsetTable()
        self.pending = PendingOffsets()
        self._timers: Timers[TimerKey] = Timers()
        self.classic = ClassicGroups(GroupLimits(), store=self._store, new_id=new_id, timers=self._timers)
        self.consumers = ConsumerGroups(
            self.classic,
            store=self._store,
            new_id=new_id,
            timers=self._timers,
            topics=lambda: controller.image.topics,
            topics_by_id=lambda: controller.image.topics_by_id,
            settings=self._settings,
            failed=self._read_again,
            elsewhere=self._elsewhere,
        )
        self._classic_members = ClassicMembers(
            self.consumers, self.classic, new_id=new_id, topics_by_id=lambda: controller.image.topics_by_id
        )
        self._clock = clock
        self._trusted = TrustedTime(clock)
        self._controller = controller
        self._alarm = Alarm(self._timers, self.now, self._due)
        self._journal = Journal(flusher, self.now, Codec(config.integer("offsets.topic.compression.codec")))
        self._commits: dict[TimerKey, asyncio.Future[ErrorCode]] = {}
        self._commit_number = 0
        self.commit_count = 0
        self.deleted_count = 0
        self.expired_count = 0
        self._tasks = Tasks()
        self._assignments: ThreadPoolExecutor | None = None
        self._gone: set[str] = set()  # topics that have been deleted, until their offsets are
        self._late_markers: dict[int, list[tuple[int, bool]]] = {}  # of partitions that are being read
        self.configure(config)
        self.topic = InternalTopic(
            OFFSETS_TOPIC,
            "offsets.load.buffer.size",
            config,
            controller=controller,
            partitions=partitions,
            executor=executor,
            make_replay=lambda partition: Replay(
                partition.name, partition.index, partition.rules.max_decompressed_bytes
            ),
            take=self._take,
            forget=self._forget_all,
        )

    def configure(self, config: BrokerConfig) -> None:
        """Take a (changed) config."""
        self._config = config
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

    def _settings(self, group_id: str) -> consumer.GroupSettings:
        overrides = self._controller.image.group_configs.get(group_id)
        return group_settings(self._config, overrides) if overrides else self._default_settings

    def _elsewhere(self, compute: Callable[[], Computed], done: Callable[[Computed | None, Now], None]) -> None:
        self._tasks.start(self._compute(compute, done))

    async def _compute(self, compute: Callable[[], Computed], done: Callable[[Computed | None, Now], None]) -> None:
        """One assignment at a time, in a thread of its own: the interpreter lets the loop in every few milliseconds."""
        if self._assignments is None:
            self._assignments = ThreadPoolExecutor(1, thread_name_prefix="klamm-assign")
        computed = None
        try:
            computed = await asyncio.get_running_loop().run_in_executor(self._assignments, compute)
        finally:
            now = self.now()
            done(computed, now)
            self.arm(now)

    def now(self) -> Now:
        return Now(int(self._clock.monotonic() * 1000), self._clock.wall_ms())

    # -- which groups are ours ----------------------------------------------------------------------------------

    def check(self, group_id: str) -> None:
        """Raise what `InternalTopic.check` does unless the group is looked after here; InvalidGroupId for an id that
        cannot be stored."""
        if not fits_string(group_id):
            raise InvalidGroupId(f"the group id has more than {MAX_STRING_BYTES} bytes of UTF-8")
        self.topic.check(group_id)

    @property
    def consumer_protocol(self) -> bool:
        """Whether ConsumerGroupHeartbeat is served at all."""
        return self._consumer_protocol and self._controller.image.features.finalized.get(GROUP_VERSION, 0) >= 1

    def machine(self, group_id: str) -> ClassicGroups | ClassicMembers:
        """Who answers the classic protocol for a group."""
        return self._classic_members if group_id in self.consumers.groups else self.classic

    def make_room_for_classic(self, group_id: str, now: Now) -> None:
        """A consumer group that nobody is in gives way to the classic group that somebody wants to join."""
        group = self.consumers.groups.get(group_id)
        if group is not None and not group.members:
            self._remove_group(group_id, lambda code: None, now)
            self._simple(group_id, now.wall_ms)  # if nobody joins in the end, its offsets still belong to a group

    def group(self, group_id: str) -> Group | None:
        """A group of either protocol."""
        return self.classic.groups.get(group_id) or self.consumers.groups.get(group_id)

    def groups(self) -> Iterator[Group]:
        """All groups of both protocols."""
        yield from self.classic.groups.values()
        yield from self.consumers.groups.values()

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read the log back, and to look at the clock. On the loop."""
        if (EXPIRY,) not in self._timers:
            self._set_expiry(self.now())
        self.topic.start()

    def close(self) -> None:
        """No more ticks; whoever waits is told to look elsewhere."""
        self._alarm.close()
        self._tasks.cancel()
        if self._assignments is not None:
            self._assignments.shutdown(wait=False, cancel_futures=True)
        self.topic.close()

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Our topic has come or gone, or a topic with offsets is gone."""
        if new.topics is old.topics:
            return
        self.topic.on_image(new)
        self._gone |= {
            name
            for name, topic in old.topics.items()
            if name != OFFSETS_TOPIC and (name not in new.topics or new.topics[name].topic_id != topic.topic_id)
        }
        self.consumers.topics_changed(*_changed_topics(old, new))

    async def settle(self) -> None:
        """The last step of a change of the metadata: remove the offsets of topics that are gone, in turns."""
        gone, self._gone = self._gone, set()
        if gone:
            await self._delete_offsets_of(gone)

    def _forget_all(self) -> None:
        wall_ms = self._clock.wall_ms()
        for group_id in list(self.classic.groups):
            self.classic.forget(group_id, int(ErrorCode.NOT_COORDINATOR), wall_ms)
        for group_id in list(self.consumers.groups):
            self.consumers.forget(group_id)
        for group_id in list(self.offsets.groups()):
            self.offsets.forget(group_id)
        self.pending.clear()
        self._late_markers.clear()

    def _read_again(self, group_id: str) -> None:
        """A record of a consumer group was appended and is not durable: memory may be ahead of the log, believe the
        log."""
        index = self.topic.index_of(group_id)
        if not self.topic.unload(index):
            return
        log.warning("%s-%d: its groups are read again", OFFSETS_TOPIC, index)
        for other in [other for other in self._all_ids() if self.topic.index_of(other) == index]:
            self.classic.forget(other, int(ErrorCode.NOT_COORDINATOR), self._clock.wall_ms())
            self.consumers.forget(other)
            self.offsets.forget(other)
        self.pending.forget(index)

    def _all_ids(self) -> set[str]:
        return {*self.classic.groups, *self.consumers.groups, *self.offsets.groups()}

    # -- loading ------------------------------------------------------------------------------------------------

    async def _take(self, index: int, replay: Replay) -> None:
        """In turns: no group of the partition is answered for before all of it is here."""
        now = self.now()
        self.pending.forget(index)  # what a try that failed has left
        stale: dict[str, list[Offset]] = {}
        async for group_id, value in in_turns(replay.groups.items()):
            self.classic.take(ClassicGroup.from_record(group_id, value), now)
        async for group_id, parts in in_turns(replay.consumers.items()):
            group = from_records(group_id, parts, self.consumers.limits.assignors[0])
            if group is not None:
                self.classic.forget(group_id, int(ErrorCode.NOT_COORDINATOR), now.wall_ms)
                self.consumers.take(group, now)
        async for (group_id, name, partition), committed in in_turns(replay.offsets.items(), PIECE):
            if self._is_stale(name, committed):
                stale.setdefault(group_id, []).append((name, partition))  # deleted while this broker was down
            self.offsets.put(group_id, name, partition, committed)
            self._simple(group_id, committed.commit_timestamp_ms)
        async for group_id, gone in in_turns(stale.items(), 1):
            self.remove_offsets(group_id, gone)
        self.pending.merge(replay.pending)
        for producer_id, commit in self._late_markers.pop(index, ()):
            self._end_transaction(index, producer_id, commit=commit)
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
        self.arm(now)

    def _is_stale(self, name: str, committed: CommittedOffset) -> bool:
        """Whether it is the offset of a topic that is gone, perhaps replaced by another of its name."""
        topic = self._controller.image.topics.get(name)
        return topic is None or committed.topic_id not in (ZERO_UUID, topic.topic_id)

    # -- storing ------------------------------------------------------------------------------------------------

    def _store(
        self,
        group_id: str,
        records: Records,
        done: Done,
        now: Now,
        *,
        appended: Callable[[], None] = lambda: None,
        producer: TransactionalProducer | None = None,
    ) -> None:
        partition = self.topic.partition_for(group_id)
        if partition is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER, now)
            return

        def stored(code: ErrorCode, now: Now) -> None:
            done(code, now)
            self.arm(now)

        self._journal.append(partition, records, stored, now, appended=appended, producer=producer)

    def _simple(self, group_id: str, wall_ms: int) -> None:
        if group_id not in self.consumers.groups:
            self.classic.simple(group_id, wall_ms)

    def commit(
        self, group_id: str, commits: Sequence[Commit], producer: TransactionalProducer | None = None
    ) -> Outcome:
        """Store offsets, all of a request in one batch; what the client is told. Those of a ``producer`` count when
        its transaction commits."""
        now = self.now()
        answer: Answer[ErrorCode] = Answer()

        def done(code: ErrorCode, now: Now) -> None:
            if code is ErrorCode.NONE:
                for topic, partition, committed in commits:
                    self._count(producer, (group_id, topic, partition), committed)
                self._simple(group_id, now.wall_ms)
                self.commit_count += len(commits)
            answer.give(_commit_error(code))

        def records() -> list[KeyValue]:
            return [offset_record(group_id, topic, partition, committed) for topic, partition, committed in commits]

        self._store(group_id, records, done, now, producer=producer)
        return self._limited(answer, now)

    def _count(self, producer: TransactionalProducer | None, key: Key, committed: CommittedOffset) -> None:
        """An offset is in the log: it counts, or waits for the outcome of its transaction."""
        if producer is not None:
            self.pending.add(self.topic.index_of(key[0]), producer.producer_id, key, committed)
            return
        self.pending.overtake(key)
        self.offsets.put(*key, committed)
        if self._is_stale(key[1], committed):  # its topic was deleted while it waited for the disk
            self.remove_offsets(key[0], [(key[1], key[2])])

    def transaction_ended(self, index: int, producer_id: int, producer_epoch: int, *, commit: bool) -> None:
        """The partition ``index`` has the marker of a transaction: its offsets count, or never will."""
        if not self.topic.is_loaded(index):
            self._late_markers.setdefault(index, []).append((producer_id, commit))
            return
        self._end_transaction(index, producer_id, commit=commit)

    def _end_transaction(self, index: int, producer_id: int, *, commit: bool) -> None:
        """Many offsets in turns: those that are not decided yet stay unstable."""
        transaction = self.pending.ended(index, producer_id)
        if transaction is not None:
            self._decide(transaction, commit=commit)
            if transaction.offsets:
                self._tasks.start(self._decide_in_turns(transaction, commit=commit))

    async def _decide_in_turns(self, transaction: OffsetsOfTransaction, *, commit: bool) -> None:
        while transaction.offsets:
            self._decide(transaction, commit=commit)
            await asyncio.sleep(0)

    def _decide(self, transaction: OffsetsOfTransaction, *, commit: bool) -> None:
        wall_ms = self._clock.wall_ms()
        for key, committed in self.pending.decide(transaction, commit=commit, at_most=PIECE).items():
            group_id, name, partition = key
            self.offsets.put(*key, committed)
            self._simple(group_id, wall_ms)
            if self._is_stale(name, committed):
                self.remove_offsets(group_id, [(name, partition)])

    def _limited(self, answer: Answer[ErrorCode], now: Now) -> Outcome:
        """The answer; after ``offsets.commit.timeout.ms`` the client is told that nobody knows."""
        outcome = answer.now_or_later()
        if isinstance(outcome, asyncio.Future):
            self._commit_number += 1
            key = (COMMIT, str(self._commit_number))
            self._commits[key] = outcome
            self._timers.set(key, now.ms + self._config.integer("offsets.commit.timeout.ms"))
            outcome.add_done_callback(lambda _: self._forget_commit(key))
            self.arm(now)
        return outcome

    def _forget_commit(self, key: TimerKey) -> None:
        self._commits.pop(key, None)
        self._timers.cancel(key)

    def remove_offsets(self, group_id: str, offsets: Sequence[Offset], *, group_too: bool = False) -> Outcome:
        """Write tombstones, and forget the offsets when they are durable; with ``group_too`` the group goes, too."""
        now = self.now()
        answer: Answer[ErrorCode] = Answer()
        codes: list[ErrorCode] = []
        pieces = batches([*offsets])
        count = len(pieces) + group_too
        if not count:
            return ErrorCode.NONE

        def stored(code: ErrorCode) -> None:
            codes.append(code)
            if len(codes) == count:
                answer.give(_worst(codes))

        for piece in pieces:

            def forgotten(code: ErrorCode, now: Now, piece: Sequence[Offset] = piece) -> None:
                if code is ErrorCode.NONE:
                    for topic, partition in piece:
                        self.pending.drop((group_id, topic, partition))
                        self.offsets.remove(group_id, topic, partition)
                stored(code)

            self._store(group_id, partial(_tombstones, group_id, piece), forgotten, now)
        if group_too:
            self._remove_group(group_id, stored, now)
        return self._limited(answer, now)

    def _remove_group(self, group_id: str, stored: Callable[[ErrorCode], None], now: Now) -> None:
        """An empty group. One of the consumer protocol is gone with the append, as all that it does."""
        if group_id in self.consumers.groups:
            self.consumers.delete(group_id, lambda code: stored(ErrorCode(code)), now)
            return

        def deleted(code: ErrorCode, now: Now) -> None:
            group = self.classic.groups.get(group_id)
            if code is ErrorCode.NONE and group is not None and group.state is State.EMPTY:
                self.classic.forget(group_id, int(ErrorCode.NOT_COORDINATOR), now.wall_ms)
            stored(code)

        self._store(group_id, lambda: [(group_key(group_id), None)], deleted, now)

    def delete_group(self, group_id: str) -> Outcome:
        """DeleteGroups: the group with its offsets, if nobody is in it."""
        group = self.group(group_id)
        if group is None or group.state is State.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state not in (State.EMPTY, GroupState.EMPTY):
            return ErrorCode.NON_EMPTY_GROUP
        offsets = self._offsets_of(group_id)
        self.deleted_count += len(offsets)
        return self.remove_offsets(group_id, offsets, group_too=True)

    def delete_offsets(self, group_id: str, offsets: Sequence[Offset]) -> Outcome:
        """OffsetDelete: tombstones for these."""
        self.deleted_count += len(offsets)
        return self.remove_offsets(group_id, offsets)

    async def _delete_offsets_of(self, topics: Collection[str]) -> None:
        async for group_id in in_turns([*self.offsets.groups(), *self.pending.groups()]):
            found = self.offsets.of(group_id)
            gone = {(topic, index) for topic in found.keys() & topics for index in found[topic]}
            gone |= {(topic, index) for topic, index in self.pending.of(group_id) if topic in topics}
            async for piece in in_turns(batches(sorted(gone)), 1):
                self.remove_offsets(group_id, piece)

    def _offsets_of(self, group_id: str) -> list[Offset]:
        """The committed ones, and those that open transactions have."""
        offsets = [(topic, partition) for topic, found in self.offsets.of(group_id).items() for partition in found]
        return list(dict.fromkeys([*offsets, *self.pending.of(group_id)]))

    # -- time ---------------------------------------------------------------------------------------------------

    def arm(self, now: Now) -> None:
        """After every call of a machine: it may have set a deadline."""
        self._alarm.arm(now)

    def _due(self, key: TimerKey, now: Now) -> None:
        if key[0] in classic.KINDS:
            self.classic.due(key, now)
        elif key[0] in consumer.KINDS:
            self.consumers.due(key, now)
        elif key[0] == COMMIT:
            future = self._commits.pop(key, None)
            if future is not None and not future.done():
                future.set_result(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            self._tasks.start(self._expire())

    async def _expire(self) -> None:
        try:
            await self.expire_offsets()
        finally:
            self._set_expiry(self.now())

    def _set_expiry(self, now: Now) -> None:
        self._timers.set((EXPIRY,), now.ms + self._config.integer("offsets.retention.check.interval.ms"))
        self.arm(now)

    async def expire_offsets(self) -> None:
        """Remove offsets that nobody has used for ``offsets.retention.minutes``, and empty groups without offsets.

        A clock that has just jumped ahead is not believed (`TrustedTime`). In turns: what has expired is looked up and
        removed in one step, `PIECE` offsets at most.
        """
        now_ms = self._trusted.now_ms()
        async for group_id in in_turns([group.group_id for group in self.groups()]):
            while (outcome := self._expire_some(group_id, now_ms)) is not None:
                if isinstance(outcome, asyncio.Future):
                    outcome = await outcome
                if outcome is not ErrorCode.NONE:
                    break
                await asyncio.sleep(0)

    def _expire_some(self, group_id: str, now_ms: int) -> Outcome | None:
        """The outcome of a removal after which there may be more to remove; None for none."""
        group = self.group(group_id)
        if group is None or not self.topic.is_loaded(self.topic.index_of(group_id)):
            return None
        retention_ms = self._config.integer("offsets.retention.minutes") * MINUTE_MS
        undecided = self.pending.of(group_id)
        expired, left = expired_offsets(group, self.offsets.of(group_id), undecided, now_ms, retention_ms, PIECE)
        group_too = not (left or undecided) and _is_abandoned(group)
        if not expired and not group_too:
            return None
        self.expired_count += len(expired)
        log.info("group %s: %d offset(s) expired%s", group_id, len(expired), ", deleted" * group_too)
        outcome = self.remove_offsets(group_id, expired, group_too=group_too)
        return outcome if len(expired) == PIECE and not group_too else None


def _is_abandoned(group: Group) -> bool:
    if isinstance(group, ConsumerGroup):
        return not group.members
    return group.state is State.EMPTY and not group.pending_members


def _changed_topics(old: MetadataImage, new: MetadataImage) -> tuple[frozenset[str], frozenset[str]]:
    """Topics that have come, gone, or got other partitions; and those of them that have come or gone."""
    differ = {
        name
        for name in old.topics.keys() | new.topics.keys()
        if (was := old.topics.get(name)) is not (now := new.topics.get(name))
        and (was is None or now is None or was.topic_id != now.topic_id or len(was.partitions) != len(now.partitions))
    }
    return frozenset(differ), frozenset(name for name in differ if name not in old.topics or name not in new.topics)


def _tombstones(group_id: str, offsets: Sequence[Offset]) -> list[KeyValue]:
    return [(offset_key(group_id, topic, partition), None) for topic, partition in offsets]


def _worst(codes: Sequence[ErrorCode]) -> ErrorCode:
    """What the client of a removal is told."""
    return next((_commit_error(code) for code in codes if code), ErrorCode.NONE)


def _commit_error(code: ErrorCode) -> ErrorCode:
    return told(code, too_large=ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
