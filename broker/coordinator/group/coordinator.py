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
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from klamm.broker.controller.configs import automatic_topic
from klamm.broker.coordinator.group import classic
from klamm.broker.coordinator.group.classic import ClassicGroups, Done, GroupLimits, Now, TimerKey
from klamm.broker.coordinator.group.classic_group import ClassicGroup
from klamm.broker.coordinator.group.journal import Journal
from klamm.broker.coordinator.group.loader import Replay
from klamm.broker.coordinator.group.offsets import CommittedOffset, OffsetTable
from klamm.broker.coordinator.group.records import KeyValue, batches, group_key, offset_key, offset_record
from klamm.broker.coordinator.group.states import State
from klamm.broker.coordinator.group.timers import Timers
from klamm.protocol.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    KafkaError,
    NotCoordinator,
)
from klamm.protocol.records.compression import Codec
from klamm.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from klamm.broker.controller.controller import Controller
    from klamm.broker.flusher import Flusher
    from klamm.broker.metadata.image import MetadataImage
    from klamm.broker.partition import Partition
    from klamm.broker.partition_manager import PartitionManager
    from klamm.config.broker_config import BrokerConfig
    from klamm.protocol.regions import FileRegion
    from klamm.storage.clock import Clock

log = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"
COMMIT, EXPIRY = "commit", "expiry"
MINUTE_MS = 60_000

Commit = tuple[str, int, CommittedOffset]
Offset = tuple[str, int]


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
        self._timers: Timers[TimerKey] = Timers()
        self.classic = ClassicGroups(GroupLimits(), store=self._store, new_id=new_id, timers=self._timers)
        self._clock = clock
        self._controller = controller
        self._partitions = partitions
        self._executor = executor
        self._journal = Journal(flusher, self.now, _codec(config))
        self._loaded: set[int] = set()
        self._load_task: asyncio.Task[None] | None = None
        self._creation: asyncio.Task[KafkaError | None] | None = None
        self._partition_count = 0
        self._topic_id = ZERO_UUID
        self._wake_up: asyncio.TimerHandle | None = None
        self._wake_up_ms = 0
        self._commits: dict[TimerKey, asyncio.Future[ErrorCode]] = {}
        self._commit_number = 0
        self._closed = False
        self.configure(config)
        self._take_topic()

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

    def now(self) -> Now:
        return Now(int(self._clock.monotonic() * 1000), self._clock.wall_ms())

    # -- which groups are ours ----------------------------------------------------------------------------------

    def check(self, group_id: str) -> None:
        """Raise NotCoordinator or CoordinatorLoadInProgress unless the group is looked after here."""
        if not self._partition_count:
            raise NotCoordinator(f"there is no {OFFSETS_TOPIC} yet")
        index = partition_of(group_id, self._partition_count)
        if index not in self._loaded:
            self.start()
            if not self._is_online(index):
                raise NotCoordinator(f"{OFFSETS_TOPIC}-{index} is offline")
            if index not in self._loaded:
                raise CoordinatorLoadInProgress(f"{OFFSETS_TOPIC}-{index} is being read")

    @property
    def has_topic(self) -> bool:
        """Whether there is a coordinator for every group."""
        return self._partition_count > 0

    @property
    def loading(self) -> bool:
        """Whether there are groups that cannot be answered for yet."""
        if len(self._loaded) == self._partition_count:
            return False
        return any(index not in self._loaded and self._is_online(index) for index in range(self._partition_count))

    def _is_online(self, index: int) -> bool:
        partition = self._partitions.get(OFFSETS_TOPIC, index)
        return partition is not None and partition.log is not None

    async def find(self) -> None:
        """Make sure that there is a coordinator for every group; raises CoordinatorNotAvailable."""
        if self._partition_count:
            return
        if self._creation is None:
            self._creation = asyncio.get_running_loop().create_task(self._create_topic())
        error = await asyncio.shield(self._creation)
        if error is not None:
            raise CoordinatorNotAvailable(f"{OFFSETS_TOPIC} cannot be made: {error.message}")

    async def _create_topic(self) -> KafkaError | None:
        try:
            new = automatic_topic(OFFSETS_TOPIC, self._config)
            result = (await self._controller.create_topics([new]))[0]
        except KafkaError as error:
            return error
        finally:
            self._creation = None
        return None if OFFSETS_TOPIC in self._controller.image.topics else result.error

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read what is not read yet, and to look at the clock. On the loop; may be called again."""
        if (EXPIRY,) not in self._timers:
            self._set_expiry(self.now())
        if self._load_task is None and self.loading:
            self._load_what_is_empty()
            if self.loading:
                self._load_task = asyncio.get_running_loop().create_task(self._load())

    async def loaded(self) -> None:
        """Wait until every partition is read."""
        self.start()
        if self._load_task is not None:
            await self._load_task

    def close(self) -> None:
        """No more ticks; whoever waits is told to look elsewhere."""
        self._closed = True
        if self._load_task is not None:
            self._load_task.cancel()
        if self._wake_up is not None:
            self._wake_up.cancel()
        self._forget_all()
        self._partition_count = 0

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Our topic has come or gone, or a topic with offsets is gone."""
        if new.topics is old.topics:
            return
        ours = new.topics.get(OFFSETS_TOPIC)
        if ours is None or ours.topic_id != self._topic_id:
            if self._partition_count:
                log.warning("%s was deleted, and with it all groups", OFFSETS_TOPIC)
                self._forget_all()
            self._take_topic()
            if self._partition_count:
                self.start()
        for name, topic in old.topics.items():
            if name != OFFSETS_TOPIC and (name not in new.topics or new.topics[name].topic_id != topic.topic_id):
                self._delete_offsets_of(name)

    def _take_topic(self) -> None:
        """Kafka, too, counts the partitions once: adding some while it runs moves no group."""
        topic = self._controller.image.topics.get(OFFSETS_TOPIC)
        self._partition_count = len(topic.partitions) if topic is not None else 0
        self._topic_id = topic.topic_id if topic is not None else ZERO_UUID
        self._loaded.clear()

    def _forget_all(self) -> None:
        wall_ms = self._clock.wall_ms()
        for group_id in list(self.classic.groups):
            self.classic.forget(group_id, int(ErrorCode.NOT_COORDINATOR), wall_ms)
        for group_id in list(self.offsets.groups()):
            self.offsets.forget(group_id)

    # -- loading ------------------------------------------------------------------------------------------------

    def _load_what_is_empty(self) -> None:
        for index in range(self._partition_count):
            partition = self._partitions.get(OFFSETS_TOPIC, index)
            if partition is not None and partition.log is not None and not _has_data(partition):
                self._loaded.add(index)

    async def _load(self) -> None:
        topic_id = self._topic_id
        try:
            for index in range(self._partition_count):
                partition = self._partitions.get(OFFSETS_TOPIC, index)
                if index in self._loaded or partition is None or partition.log is None:
                    continue
                try:
                    replay = await self._read(partition)
                except KafkaError as error:
                    log.error("%s: the groups cannot be read: %s", partition.name, error.message)
                    continue
                if self._topic_id != topic_id:
                    return
                self._take_replay(index, replay)
        finally:
            self._load_task = None

    async def _read(self, partition: Partition) -> Replay:
        """Find the pieces here, read and take them apart in the thread."""
        loop = asyncio.get_running_loop()
        replay = Replay(partition.name, partition.rules.max_decompressed_bytes)
        size = self._config.integer("offsets.load.buffer.size")
        storage_log = partition.online_log()
        offset, end = storage_log.log_start_offset, storage_log.log_end_offset
        while offset < end:
            region = storage_log.read(offset, max_bytes=size, max_offset=end).region
            if region is None:
                break
            following = await loop.run_in_executor(self._executor, _absorb, replay, region, offset)
            if following <= offset:
                break
            offset = following
        return replay

    def _take_replay(self, index: int, replay: Replay) -> None:
        now = self.now()
        topics = self._controller.image.topics
        stale: dict[str, list[Offset]] = {}
        for group_id, value in replay.groups.items():
            self.classic.take(ClassicGroup.from_record(group_id, value), now)
        for (group_id, name, partition), committed in replay.offsets.items():
            topic = topics.get(name)
            if topic is None or committed.topic_id not in (ZERO_UUID, topic.topic_id):
                stale.setdefault(group_id, []).append((name, partition))  # deleted while this broker was down
            self.offsets.put(group_id, name, partition, committed)
            self.classic.simple(group_id, committed.commit_timestamp_ms)
        self._loaded.add(index)
        for group_id, gone in stale.items():
            self.remove_offsets(group_id, gone)
        if replay.record_count:
            log.info(
                "%s-%d: loaded, groups=%d offsets=%d records=%d skipped=%d",
                OFFSETS_TOPIC,
                index,
                len(replay.groups),
                len(replay.offsets),
                replay.record_count,
                replay.skipped,
            )
        self.arm(now)

    # -- storing ------------------------------------------------------------------------------------------------

    def _store(self, group_id: str, records: Sequence[KeyValue], done: Done, now: Now) -> None:
        index = partition_of(group_id, self._partition_count) if self._partition_count else -1
        partition = self._partitions.get(OFFSETS_TOPIC, index)
        if partition is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER, now)
            return

        def told(code: ErrorCode, now: Now) -> None:
            done(code, now)
            self.arm(now)

        self._journal.append(partition, records, told, now)

    def commit(self, group_id: str, commits: Sequence[Commit]) -> ErrorCode | asyncio.Future[ErrorCode]:
        """Store offsets, all of a request in one batch; what the client is told."""
        now = self.now()
        outcome: list[ErrorCode] = []
        waiting: list[asyncio.Future[ErrorCode]] = []

        def done(code: ErrorCode, now: Now) -> None:
            if code is ErrorCode.NONE:
                for topic, partition, committed in commits:
                    self.offsets.put(group_id, topic, partition, committed)
                self.classic.simple(group_id, now.wall_ms)
            outcome.append(_commit_error(code))
            if waiting and not waiting[0].done():
                waiting[0].set_result(outcome[0])

        records = [offset_record(group_id, topic, partition, committed) for topic, partition, committed in commits]
        self._store(group_id, records, done, now)
        if outcome:
            return outcome[0]
        waiting.append(asyncio.get_running_loop().create_future())
        self._limit_wait(waiting[0], now)
        return waiting[0]

    def _limit_wait(self, future: asyncio.Future[ErrorCode], now: Now) -> None:
        """After ``offsets.commit.timeout.ms`` the client is told that nobody knows."""
        self._commit_number += 1
        key = (COMMIT, str(self._commit_number))
        self._commits[key] = future
        self._timers.set(key, now.ms + self._config.integer("offsets.commit.timeout.ms"))

        def forget(_: asyncio.Future[ErrorCode]) -> None:
            self._commits.pop(key, None)
            self._timers.cancel(key)

        future.add_done_callback(forget)
        self.arm(now)

    def remove_offsets(self, group_id: str, offsets: Sequence[Offset], *, group_too: bool = False) -> None:
        """Write tombstones, and forget the offsets when they are durable; with ``group_too`` the group goes, too."""
        self._remove(group_id, offsets, group_too=group_too, failed=lambda code: None)

    def _remove(
        self, group_id: str, offsets: Sequence[Offset], *, group_too: bool, failed: Callable[[ErrorCode], None]
    ) -> None:
        now = self.now()
        for piece in batches([*offsets]):

            def forgotten(code: ErrorCode, now: Now, piece: Sequence[Offset] = piece) -> None:
                if code is not ErrorCode.NONE:
                    failed(code)
                    return
                for topic, partition in piece:
                    self.offsets.remove(group_id, topic, partition)

            keys = [(offset_key(group_id, topic, partition), None) for topic, partition in piece]
            self._store(group_id, keys, forgotten, now)
        if group_too:

            def deleted(code: ErrorCode, now: Now) -> None:
                group = self.classic.groups.get(group_id)
                if code is not ErrorCode.NONE:
                    failed(code)
                elif group is not None and group.state is State.EMPTY:
                    self.classic.forget(group_id, int(ErrorCode.NOT_COORDINATOR), now.wall_ms)

            self._store(group_id, [(group_key(group_id), None)], deleted, now)

    def delete_group(self, group_id: str) -> ErrorCode:
        """DeleteGroups: the group with its offsets, if nobody is in it."""
        group = self.classic.groups.get(group_id)
        if group is None or group.state is State.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not State.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        failures: list[ErrorCode] = []
        self._remove(group_id, self._offsets_of(group_id), group_too=True, failed=failures.append)
        return _commit_error(failures[0]) if failures else ErrorCode.NONE

    def delete_offsets(self, group_id: str, offsets: Sequence[Offset]) -> ErrorCode:
        """OffsetDelete: tombstones for these."""
        failures: list[ErrorCode] = []
        self._remove(group_id, offsets, group_too=False, failed=failures.append)
        return _commit_error(failures[0]) if failures else ErrorCode.NONE

    def _delete_offsets_of(self, topic: str) -> None:
        gone: dict[str, list[Offset]] = {}
        for group_id, partition, _ in self.offsets.of_topic(topic):
            gone.setdefault(group_id, []).append((topic, partition))
        for group_id, offsets in gone.items():
            self.remove_offsets(group_id, offsets)

    def _offsets_of(self, group_id: str) -> list[Offset]:
        return [(topic, partition) for topic, found in self.offsets.of(group_id).items() for partition in found]

    # -- time ---------------------------------------------------------------------------------------------------

    def arm(self, now: Now) -> None:
        """See to it that the loop wakes us for the next deadline. After every call of a machine."""
        next_ms = self._timers.next_ms()
        if next_ms is None or self._closed or (self._wake_up is not None and self._wake_up_ms <= next_ms):
            return
        if self._wake_up is not None:
            self._wake_up.cancel()
        self._wake_up_ms = next_ms
        self._wake_up = asyncio.get_running_loop().call_later(max(0, next_ms - now.ms) / 1000, self.tick)

    def tick(self) -> None:
        """Do what is due."""
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None
        now = self.now()
        while (key := self._timers.pop(now.ms)) is not None:
            try:
                self._due(key, now)
            except Exception:
                log.exception("group coordinator: %s failed", key)
        self.arm(now)

    def _due(self, key: TimerKey, now: Now) -> None:
        if key[0] in classic.KINDS:
            self.classic.due(key, now)
        elif key[0] == COMMIT:
            future = self._commits.pop(key, None)
            if future is not None and not future.done():
                future.set_result(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            self._set_expiry(now)
            self.expire_offsets(now)

    def _set_expiry(self, now: Now) -> None:
        self._timers.set((EXPIRY,), now.ms + self._config.integer("offsets.retention.check.interval.ms"))
        self.arm(now)

    def expire_offsets(self, now: Now) -> None:
        """Remove offsets that nobody has used for ``offsets.retention.minutes``, and empty groups without offsets."""
        retention_ms = self._config.integer("offsets.retention.minutes") * MINUTE_MS
        for group in list(self.classic.groups.values()):
            expired, left = self._expired(group, now.wall_ms, retention_ms)
            group_too = not left and group.state is State.EMPTY and not group.pending_members
            if expired or group_too:
                log.info("group %s: %d offset(s) expired%s", group.group_id, len(expired), ", deleted" * group_too)
                self.remove_offsets(group.group_id, expired, group_too=group_too)

    def _expired(self, group: ClassicGroup, now_ms: int, retention_ms: int) -> tuple[list[Offset], bool]:
        """The offsets of a group whose time is over, and whether there are others."""
        base_ms: int | None = None
        if group.protocol_type is not None:
            if group.state is State.EMPTY:
                base_ms = group.state_timestamp_ms if group.state_timestamp_ms >= 0 else None
            elif not (group.is_consumer_group and group.subscribed_topics is not None and group.state is State.STABLE):
                return [], True
        expired: list[Offset] = []
        left = False
        for topic, partitions in self.offsets.of(group.group_id).items():
            subscribed = group.is_subscribed(topic)
            for partition, committed in partitions.items():
                if not subscribed and committed.expired(now_ms, base_ms=base_ms, retention_ms=retention_ms):
                    expired.append((topic, partition))
                else:
                    left = True
        return expired, left


def partition_of(group_id: str, partition_count: int) -> int:
    """The partition of ``__consumer_offsets`` that a group belongs to: by Java's hash of its UTF-16 units."""
    units = group_id.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    if value & 0x80000000:
        value = 0x100000000 - value
        if value == 0x80000000:
            value = 0  # Java cannot negate its smallest int; Kafka takes 0 for it
    return value % partition_count


def _commit_error(code: ErrorCode) -> ErrorCode:
    """What a client is told when its commit cannot be stored."""
    if code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    ):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR):
        return ErrorCode.NOT_COORDINATOR
    if code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE):
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return code


def _codec(config: BrokerConfig) -> Codec:
    number = config.integer("offsets.topic.compression.codec")
    try:
        return Codec(number)
    except ValueError:
        log.error("offsets.topic.compression.codec=%d is not a codec (0-4); offsets are not compressed", number)
        return Codec.NONE


def _has_data(partition: Partition) -> bool:
    return partition.log_end_offset > partition.log_start_offset


def _absorb(replay: Replay, region: FileRegion, offset: int) -> int:
    """In the thread."""
    return replay.read(region.read(), offset)
