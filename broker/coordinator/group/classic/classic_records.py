"""Conversion between a classic group and its record of ``__consumer_offsets``."""

from __future__ import annotations

from collections.abc import Mapping

from klamm.broker.coordinator.group.classic.classic_group import ClassicGroup, Member
from klamm.broker.coordinator.group.classic.states import State
from klamm.broker.coordinator.group.records import group_record
from klamm.broker.coordinator.runtime.types import KeyValue
from klamm.protocol.coordinator_records.group import GroupMetadataValue, MemberMetadata


def record_of(group: ClassicGroup, assignments: Mapping[str, bytes] | None = None) -> KeyValue:
    """Return the record of the group; see `metadata_value`."""
    return group_record(group.group_id, metadata_value(group, assignments))


def metadata_value(group: ClassicGroup, assignments: Mapping[str, bytes] | None = None) -> GroupMetadataValue:
    """Return the record's value. ``assignments``, by member id, replaces those of the members until it is stored."""
    return GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader,
        current_state_timestamp=group.state_timestamp_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name),
                assignment=(member.assignment if assignments is None else assignments.get(member.member_id, b"")),
            )
            for member in group.members.values()
        ],
    )


def from_record(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Return the group that the record describes: Stable, or Empty."""
    group = ClassicGroup(
        group_id,
        State.STABLE if value.members else State.EMPTY,
        state_timestamp_ms=value.current_state_timestamp,
    )
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    if value.members:
        group.leader = value.leader
    for stored in value.members:
        rebalance_timeout_ms = stored.rebalance_timeout if stored.rebalance_timeout >= 0 else stored.session_timeout
        group.add(
            Member(
                stored.member_id,
                group_instance_id=stored.group_instance_id,
                client_id=stored.client_id,
                client_host=stored.client_host,
                rebalance_timeout_ms=rebalance_timeout_ms,
                session_timeout_ms=stored.session_timeout,
                protocols=((value.protocol or "", bytes(stored.subscription)),),
                assignment=bytes(stored.assignment),
            )
        )
    if group.leader not in group.members:
        group.leader = next(iter(group.members), None)
    group.refresh_subscription()
    return group
