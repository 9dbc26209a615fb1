"""One classic group and its members: their state, without the timing (see `classic`).

The leader computes the assignment; it is the first member to join. Each member votes for the protocol it prefers among
those that all members support; the protocol with most votes wins. A static member (KIP-345) has a group instance id
that outlives its member ids; a member that joins with the same instance id replaces the one before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from klamm.broker.coordinator.group.classic.states import TABLE, State
from klamm.broker.coordinator.group.subscription import CONSUMER, subscribed_topics
from klamm.protocol.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    FencedInstanceId,
    IllegalGeneration,
    RebalanceInProgress,
    UnknownMemberId,
)
from klamm.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from klamm.protocol.messages.sync_group import SyncGroupResponse
from klamm.protocol.wire import Malformed

log = logging.getLogger(__name__)

CLASSIC = "classic"
NO_TIMESTAMP = -1
REBALANCE_IN_PROGRESS = int(ErrorCode.REBALANCE_IN_PROGRESS)

JoinCallback = Callable[[JoinGroupResponse], None]
SyncCallback = Callable[[SyncGroupResponse], None]
Protocols = Sequence[tuple[str, bytes]]


class Client(NamedTuple):
    """The sender of a request, as far as a group stores it."""

    client_id: str
    host: str
    version: int
    """The API version of the request."""


class Member:
    """One member. At most one JoinGroup and one SyncGroup of it wait here."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join_callback",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_callback",
    )

    def __init__(
        self,
        member_id: str,
        *,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
        is_new: bool = False,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = is_new  # has had no response to its first JoinGroup: it cannot send heartbeats
        self.join_callback: JoinCallback | None = None
        self.sync_callback: SyncCallback | None = None

    @property
    def waits(self) -> bool:
        """Return whether a request of the member waits, which counts as a heartbeat."""
        return self.join_callback is not None or self.sync_callback is not None

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


class ClassicGroup:
    """State and members of one group. ``state_timestamp_ms`` is wall time, -1 when unknown (old records)."""

    __slots__ = (
        "_awaiting_join",
        "_supported",
        "generation_id",
        "group_id",
        "leader",
        "members",
        "new_member_added",
        "pending_members",
        "pending_sync",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
    )
    kind = CLASSIC

    def __init__(self, group_id: str, state: State = State.EMPTY, *, state_timestamp_ms: int = NO_TIMESTAMP) -> None:
        self.group_id = group_id
        self.state = state
        self.previous_state = state
        self.state_timestamp_ms = state_timestamp_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: set[str] = set()  # have got an id and have not joined with it yet
        self.pending_sync: set[str] = set()  # have their generation and have not asked for the assignment yet
        self.new_member_added = False
        self.subscribed_topics: frozenset[str] | None = None  # None: not known, or not a consumer group
        self._supported: dict[str, int] = {}  # protocol -> number of members that support it
        self._awaiting_join = 0

    # -- state --------------------------------------------------------------------------------------------------

    def go_to(self, state: State, wall_ms: int) -> None:
        assert TABLE.permits(self.state, state), f"{self.group_id}: {self.state.value} -> {state.value}"
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = wall_ms

    @property
    def awaiting_join(self) -> int:
        """The number of members with a waiting JoinGroup."""
        return self._awaiting_join

    @property
    def all_have_joined(self) -> bool:
        return self._awaiting_join == len(self.members) and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members; 0 if all are negative."""
        return max([0, *(member.rebalance_timeout_ms for member in self.members.values())])

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER

    def is_subscribed(self, topic: str) -> bool:
        """Return whether the group consumes the topic; a consumer group with unknown topics may consume any."""
        if self.subscribed_topics is None:
            return self.is_consumer_group
        return topic in self.subscribed_topics

    def next_generation(self, wall_ms: int) -> None:
        """End the join phase and begin the next generation with the members that have joined."""
        self.generation_id += 1
        self.pending_sync.clear()
        self.protocol_name = self.select_protocol() if self.members else None
        self.refresh_subscription()
        self.go_to(State.COMPLETING_REBALANCE if self.members else State.EMPTY, wall_ms)

    def refresh_subscription(self) -> None:
        """Compute the topics that the members consume."""
        self.subscribed_topics = None
        if not self.is_consumer_group or (self.members and self.protocol_name is None):
            return
        topics: set[str] = set()
        try:
            for member in self.members.values():
                topics |= subscribed_topics(member.metadata(self.protocol_name))
        except Malformed as error:
            log.warning("group %s: the subscriptions do not parse: %s", self.group_id, error)
            return
        self.subscribed_topics = frozenset(topics)

    # -- members ------------------------------------------------------------------------------------------------

    def add(self, member: Member, callback: JoinCallback | None = None) -> None:
        self.members[member.member_id] = member
        self.pending_members.discard(member.member_id)
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self._count(member.protocols, 1)
        if self.leader is None:
            self.leader = member.member_id
        if callback is not None:
            self.set_join_callback(member, callback)

    def update(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        self._count(member.protocols, -1)
        self._count(protocols, 1)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def remove(self, member_id: str) -> Member | None:
        """Remove a member. Its waiting requests must have got their responses."""
        self.pending_members.discard(member_id)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        assert not member.waits, f"{self.group_id}: {member_id} would never get a response"
        self._count(member.protocols, -1)
        if member.group_instance_id is not None and self.static_members.get(member.group_instance_id) == member_id:
            del self.static_members[member.group_instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def replace_static(self, instance_id: str, old_id: str, new_id: str) -> Member:
        """Give the static member a new member id. Its waiting requests must have got their responses."""
        member = self.members[old_id]
        assert not member.waits
        member.member_id = new_id
        self.members = {new_id if key == old_id else key: value for key, value in self.members.items()}
        self.static_members[instance_id] = new_id
        if old_id in self.pending_sync:
            self.pending_sync.remove(old_id)
            self.pending_sync.add(new_id)
        if self.leader == old_id:
            self.leader = new_id
        return member

    def elect_leader_among_joined(self) -> bool:
        """Replace a leader that has not joined by a member that has. Return whether a joined member leads."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_callback is None:
            joined = next((member for member in self.members.values() if member.join_callback is not None), None)
            if joined is None:
                return False
            self.leader = joined.member_id
        return True

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member that sent a request. Raises UnknownMemberId or FencedInstanceId."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                raise UnknownMemberId(f"group {self.group_id} has no static member {instance_id!r}")
            if current != member_id:
                raise FencedInstanceId(f"group {self.group_id}: {instance_id!r} is {current!r} now, not {member_id!r}")
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"group {self.group_id} has no member {member_id!r}")
        return member

    def check_commit(
        self, member_id: str, instance_id: str | None, generation_id: int, *, transactional: bool = False
    ) -> None:
        """Raise a KafkaError with the response code unless an OffsetCommit is allowed.

        A commit within a transaction need not come from a member: the transaction coordinator fences its producer.
        """
        if self.state is State.DEAD:
            raise CoordinatorNotAvailable(f"group {self.group_id} is dead")
        if generation_id < 0 and self.state is State.EMPTY:
            return  # a consumer without group management, or an administrator
        if generation_id < 0 and not member_id and instance_id is None:
            if transactional:
                return
            raise UnknownMemberId(f"group {self.group_id} has members, and the commit comes from none of them")
        self.check_member(member_id, instance_id)
        if generation_id != self.generation_id:
            raise IllegalGeneration(f"group {self.group_id} is at generation {self.generation_id}")
        if self.state is State.COMPLETING_REBALANCE and not transactional:
            raise RebalanceInProgress(f"group {self.group_id} waits for its assignment")

    # -- protocols ----------------------------------------------------------------------------------------------

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols can be in the group."""
        if self.state is State.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        count = len(self.members)
        return protocol_type == self.protocol_type and any(self._supported.get(name, 0) == count for name in names)

    def select_protocol(self) -> str:
        """The protocol that the members vote for."""
        count = len(self.members)
        candidates = {name for name, knowing in self._supported.items() if knowing == count}
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next((name for name, _ in member.protocols if name in candidates), None)
            assert choice is not None, f"{self.group_id}: {member.member_id} has no protocol in common with the others"
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def _count(self, protocols: Protocols, by: int) -> None:
        for name in {name for name, _ in protocols}:
            count = self._supported.get(name, 0) + by
            if count:
                self._supported[name] = count
            else:
                del self._supported[name]

    # -- waiting requests ---------------------------------------------------------------------------------------

    def set_join_callback(self, member: Member, callback: JoinCallback) -> None:
        if member.join_callback is None:
            self._awaiting_join += 1
        else:  # the client gave up on the first one and repeats it
            member.join_callback(JoinGroupResponse(error_code=REBALANCE_IN_PROGRESS, member_id=member.member_id))
        member.join_callback = callback

    def answer_join(self, member: Member, response: JoinGroupResponse) -> None:
        """Send the response of the waiting JoinGroup, if there is one."""
        callback, member.join_callback = member.join_callback, None
        if callback is not None:
            self._awaiting_join -= 1
            callback(response)

    @staticmethod
    def answer_sync(member: Member, response: SyncGroupResponse) -> bool:
        """Send the response of the waiting SyncGroup. Return whether there was one."""
        callback, member.sync_callback = member.sync_callback, None
        if callback is None:
            return False
        callback(response)
        return True

    def answer_all(self, code: int) -> None:
        """Send an error to all waiting requests."""
        for member in self.members.values():
            self.answer(member, code)

    def answer(self, member: Member, code: int) -> None:
        """Send an error to this member's waiting requests."""
        self.answer_join(member, JoinGroupResponse(error_code=code, member_id=member.member_id))
        self.answer_sync(member, SyncGroupResponse(error_code=code))

    # -- responses ----------------------------------------------------------------------------------------------

    def joined_members(self) -> list[JoinGroupResponseMember]:
        """Return the members as the leader's JoinGroup response lists them."""
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(self.protocol_name),
            )
            for member in self.members.values()
        ]
