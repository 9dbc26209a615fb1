"""Consumer groups without a broker: a clock that is moved by hand, a log that is a dict, topics that are made up."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from klamm.broker.coordinator.group.classic import rebalances
from klamm.broker.coordinator.group.classic.classic import ClassicGroups
from klamm.broker.coordinator.group.classic.classic_group import Client
from klamm.broker.coordinator.group.classic.limits import GroupLimits
from klamm.broker.coordinator.group.consumer import sessions
from klamm.broker.coordinator.group.consumer.classic_members import ClassicMembers
from klamm.broker.coordinator.group.consumer.consumer import ConsumerGroups
from klamm.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from klamm.broker.coordinator.group.consumer.consumer_records import from_records
from klamm.broker.coordinator.group.consumer.limits import GroupSettings
from klamm.broker.coordinator.group.consumer.target_assignment_builder import TargetAssignmentResult
from klamm.broker.coordinator.group.records import ConsumerRecord, decode
from klamm.broker.coordinator.runtime.timer_queue import TimerQueue
from klamm.broker.coordinator.runtime.types import Done, Now, Records, TimerKey
from klamm.broker.metadata.image import PartitionImage, TopicImage
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.broker.coordinator.group.group_room import WALL_MS, Answer

GROUP = "g"
SESSION_MS = 45_000
REVOKE_MS = 10_000


def topic(name: str, count: int, generation: int = 0) -> TopicImage:
    topic_id = name.encode().ljust(15, b".")[:15] + bytes([generation])
    return TopicImage(name, topic_id, tuple(PartitionImage(index, 1, 0, (1,), (1,)) for index in range(count)))


class Room:
    """Makes requests at the time it is."""

    def __init__(self, topics: Mapping[str, int], *, interval_ms: int = 0) -> None:
        self.topics = {name: topic(name, count) for name, count in topics.items()}
        self.now_ms = 0
        self.log: dict[bytes, bytes | None] = {}
        self.failure = ErrorCode.NONE
        self.failed: list[str] = []
        self.appended = 0
        self.elsewhere: list[
            tuple[Callable[[], TargetAssignmentResult], Callable[[TargetAssignmentResult | None, Now], None]]
        ] = []
        self.settings = GroupSettings(assignment_interval_ms=interval_ms)
        self.timers: TimerQueue[TimerKey] = TimerQueue()
        numbers = itertools.count(1)
        self._new_id = lambda: f"id{next(numbers)}"
        limits = GroupLimits(initial_rebalance_delay_ms=0)
        self.classic = ClassicGroups(limits, store=self._store, new_id=self._new_id, timers=self.timers)
        self.consumers = ConsumerGroups(
            self.classic,
            store=self._store,
            new_id=self._new_id,
            timers=self.timers,
            topics=lambda: self.topics,
            topics_by_id=lambda: {one.topic_id: one for one in self.topics.values()},
            settings=lambda group: self.settings,
            failed=self.failed.append,
            elsewhere=lambda compute, done: self.elsewhere.append((compute, done)),
        )
        self.members = ClassicMembers(
            self.consumers,
            self.classic,
            new_id=self._new_id,
            topics_by_id=lambda: {one.topic_id: one for one in self.topics.values()},
        )

    @property
    def now(self) -> Now:
        return Now(self.now_ms, WALL_MS + self.now_ms)

    @property
    def group(self) -> ConsumerGroup:
        return self.consumers.groups[GROUP]

    @property
    def state(self) -> str:
        return self.group.state.value

    def machine(self) -> ClassicGroups | ClassicMembers:
        return self.members if GROUP in self.consumers.groups else self.classic

    def limit(self, **changes: Any) -> None:
        self.consumers.limits = replace(self.consumers.limits, **changes)

    def _store(
        self, group_id: str, records: Records, done: Done, now: Now, *, appended: Callable[[], None] = lambda: None
    ) -> None:
        made = records()
        assert made
        if self.failure is ErrorCode.NONE:
            self.appended += len(made)
            self.log.update(made)
            appended()
        done(self.failure, now)

    def change(self, name: str, count: int | None, generation: int = 0) -> None:
        """A topic comes, goes, or grows."""
        created = frozenset([name]) if count is None or name not in self.topics else frozenset()
        if count is None:
            del self.topics[name]
        else:
            self.topics[name] = topic(name, count, generation)
        self.consumers.topics_changed(frozenset([name]), created)

    def pass_time(self, ms: int) -> None:
        """Move the clock in steps, as the shell would wake up."""
        end = self.now_ms + ms
        while (next_ms := self.timers.next_ms()) is not None and next_ms <= end:
            self.now_ms = max(self.now_ms, next_ms)
            while (key := self.timers.pop(self.now_ms)) is not None:
                if key[0] in rebalances.KINDS:
                    self.classic.due(key, self.now)
                else:
                    assert key[0] in sessions.KINDS
                    self.consumers.due(key, self.now)
        self.now_ms = end

    def ask(
        self,
        member_id: str,
        epoch: int,
        names: Sequence[str] | None = None,
        *,
        owned: Mapping[str, Sequence[int]] | None = None,
        version: int = 1,
        group: str = GROUP,
        **options: Any,
    ) -> ConsumerGroupHeartbeatResponse:
        if epoch == 0:
            options.setdefault("rebalance_timeout_ms", REVOKE_MS)
            owned = {} if owned is None else owned
        parts = None
        if owned is not None:
            parts = [
                TopicPartitions(topic_id=self.topics[name].topic_id, partitions=[*indexes])
                for name, indexes in owned.items()
            ]
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            subscribed_topic_names=None if names is None else [*names],
            topic_partitions=parts,
            **options,
        )
        answer = Answer()
        self.consumers.heartbeat(request, Client("c", "/h", version), answer, self.now)
        assert isinstance(answer.response, ConsumerGroupHeartbeatResponse)
        return answer.response

    def code(self, *asked: Any, **options: Any) -> ErrorCode:
        return ErrorCode(self.ask(*asked, **options).error_code)

    def named(self, response: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]] | None:
        """The assignment in an answer, by topic name."""
        if response.assignment is None:
            return None
        names = {one.topic_id: one.name for one in self.topics.values()}
        return {names[part.topic_id]: list(part.partitions) for part in response.assignment.topic_partitions}

    def compute(self) -> None:
        """Finish the computations that run elsewhere."""
        under_way, self.elsewhere = self.elsewhere, []
        for compute, done in under_way:
            done(compute(), self.now)

    def read_back(self) -> ConsumerGroup | None:
        """The group as the log has it."""
        parts = {}
        for key, value in self.log.items():
            record = decode(key, value)
            if isinstance(record, ConsumerRecord) and record.group == GROUP and record.value is not None:
                parts[record.kind, record.part] = record.value
        return from_records(GROUP, parts, "uniform")


class ConsumerClient:
    """A client of the consumer protocol that does as the responses say."""

    def __init__(self, room: Room, member_id: str, names: Sequence[str] | None = None, **options: Any) -> None:
        self.room, self.member_id, self.names, self.options = room, member_id, names, options
        self.epoch = 0
        self.owned: dict[str, list[int]] = {}

    def beat(self) -> ErrorCode:
        """One heartbeat; what it must give up it has given up by the next one."""
        if self.epoch == 0:
            self.owned = {}
            response = self.room.ask(self.member_id, 0, self.names, **self.options)
        else:
            response = self.room.ask(self.member_id, self.epoch, owned=self.owned)
        return self.take(response)

    def say(self, names: Sequence[str], **options: Any) -> ErrorCode:
        """A heartbeat with another subscription."""
        self.names = names
        self.options.update(options)
        if self.epoch == 0:
            return self.beat()
        return self.take(self.room.ask(self.member_id, self.epoch, names, owned=self.owned, **options))

    def take(self, response: ConsumerGroupHeartbeatResponse) -> ErrorCode:
        code = ErrorCode(response.error_code)
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
            self.epoch, self.owned = 0, {}
        elif code is ErrorCode.NONE:
            self.epoch = response.member_epoch
            found = self.room.named(response)
            if found is not None:
                self.owned = found
        return code


def settle(*clients: ConsumerClient, rounds: int = 6) -> None:
    """Enough heartbeats of everybody that all have what they are to have."""
    for _ in range(rounds):
        for client in clients:
            client.beat()
            client.room.compute()
