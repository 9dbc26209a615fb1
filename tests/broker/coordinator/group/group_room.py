"""Classic groups without a broker: a clock that is moved by hand, a log that is a list, members with names."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from klamm.broker.coordinator.group.classic.classic import ClassicGroups
from klamm.broker.coordinator.group.classic.classic_group import ClassicGroup, Client
from klamm.broker.coordinator.group.classic.limits import GroupLimits
from klamm.broker.coordinator.group.records import KeyValue
from klamm.broker.coordinator.runtime.types import Done, Now, Records
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.heartbeat import HeartbeatRequest
from klamm.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from klamm.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from klamm.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

WALL_MS = 1_700_000_000_000
GROUP = "g"
SESSION_MS = 10_000
REBALANCE_MS = 60_000


class Answer:
    """The answer to one request; a second one is a defect."""

    def __init__(self) -> None:
        self.response: Any = None

    def __call__(self, response: Any) -> None:
        assert self.response is None, "answered twice"
        self.response = response

    @property
    def waits(self) -> bool:
        return self.response is None

    @property
    def code(self) -> ErrorCode:
        assert self.response is not None, "not answered yet"
        return ErrorCode(self.response.error_code)

    @property
    def joined(self) -> JoinGroupResponse:
        assert isinstance(self.response, JoinGroupResponse) and self.code is ErrorCode.NONE, self.code.name
        return self.response

    @property
    def synced(self) -> SyncGroupResponse:
        assert isinstance(self.response, SyncGroupResponse) and self.code is ErrorCode.NONE, self.code.name
        return self.response


class Room:
    """Makes requests at the time it is. With ``hold`` the records stay undurable until `release`."""

    def __init__(self, limits: GroupLimits | None = None) -> None:
        self.limits = limits or GroupLimits()
        self.stored: list[tuple[str, Sequence[KeyValue]]] = []
        self.hold = False
        self.failure = ErrorCode.NONE
        self.held: list[Done] = []
        numbers = itertools.count(1)
        self.groups = ClassicGroups(self.limits, store=self._store, new_id=lambda: f"id{next(numbers)}")
        self.now_ms = 0

    @property
    def now(self) -> Now:
        return Now(self.now_ms, WALL_MS + self.now_ms)

    @property
    def group(self) -> ClassicGroup:
        return self.groups.groups[GROUP]

    @property
    def state(self) -> str:
        return self.group.state.value

    def _store(
        self, group_id: str, records: Records, done: Done, now: Now, *, appended: Callable[[], None] = lambda: None
    ) -> None:
        self.stored.append((group_id, records()))
        if self.failure is ErrorCode.NONE:
            appended()
        if self.hold:
            self.held.append(done)
        else:
            done(self.failure, now)

    def release(self, code: ErrorCode = ErrorCode.NONE) -> None:
        held, self.held = self.held, []
        for done in held:
            done(code, self.now)

    def pass_time(self, ms: int) -> None:
        """Move the clock in steps, as the shell would wake up."""
        end = self.now_ms + ms
        while (next_ms := self.groups.timers.next_ms()) is not None and next_ms <= end:
            self.now_ms = max(self.now_ms, next_ms)
            self.groups.tick(self.now)
        self.now_ms = end

    # -- requests

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = (("range", b"m"),),
        protocol_type: str = "test",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 9,
        client_id: str = "c",
        group: str = GROUP,
    ) -> Answer:
        answer = Answer()
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        )
        self.groups.join(request, Client(client_id, "/127.0.0.1", version), answer, self.now)
        return answer

    def enter(self, **options: Any) -> tuple[str, Answer]:
        """A new dynamic member: asks for its id and comes back with it."""
        first = self.join(**options)
        assert first.code is ErrorCode.MEMBER_ID_REQUIRED
        member_id: str = first.response.member_id
        return member_id, self.join(member_id, **options)

    def sync(
        self,
        member_id: str,
        generation: int | None = None,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        group: str = GROUP,
    ) -> Answer:
        answer = Answer()
        request = SyncGroupRequest(
            group_id=group,
            generation_id=self.group.generation_id if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=part)
                for member, part in (assignments or {}).items()
            ],
        )
        self.groups.sync(request, answer, self.now)
        return answer

    def heartbeat(
        self, member_id: str, generation: int | None = None, *, instance: str | None = None, group: str = GROUP
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group,
            generation_id=self.group.generation_id if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        return ErrorCode(self.groups.heartbeat(request, self.now).error_code)

    def leave(self, *members: tuple[str, str | None], group: str = GROUP) -> LeaveGroupResponse:
        identities = [MemberIdentity(member_id=member, group_instance_id=instance) for member, instance in members]
        return self.groups.leave(LeaveGroupRequest(group_id=group, members=identities), self.now)

    # -- what most tests begin with

    def stable(self, count: int = 2, **options: Any) -> list[str]:
        """A stable group of so many members, the leader first."""
        members = [self.enter(**options) for _ in range(count)]
        self.pass_time(3 * self.limits.initial_rebalance_delay_ms + 1)
        self.all_sync([member_id for member_id, _ in members])
        assert self.state == "Stable"
        return [member_id for member_id, _ in members]

    def all_sync(self, members: Sequence[str]) -> None:
        """The leader assigns each member its own id."""
        leader = self.group.leader
        assert leader is not None
        waiting = [self.sync(member) for member in members if member != leader]
        given = self.sync(leader, assignments={member: member.encode() for member in members})
        assert given.synced.assignment == leader.encode()
        assert all(answer.code is ErrorCode.NONE for answer in waiting)

    def counts(self) -> tuple[int, int, int]:
        """Members, timers, parked requests."""
        members = [member for group in self.groups.groups.values() for member in group.members.values()]
        parked = sum((member.join_callback is not None) + (member.sync_callback is not None) for member in members)
        return len(members), len(self.groups.timers), parked
