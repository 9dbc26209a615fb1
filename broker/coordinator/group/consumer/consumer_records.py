"""The records of a consumer group: encoded, and decoded back into a group.

Each record has one aspect, so a heartbeat that changes little writes little. The group's records are its epoch, its
regular expressions and the target assignment; a member's records are its subscription and its current assignment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from klamm.broker.coordinator.group.consumer.assignors import Assignment
from klamm.broker.coordinator.group.consumer.consumer_group import ConsumerGroup, ResolvedRegex
from klamm.broker.coordinator.group.consumer.consumer_member import (
    ClassicProtocols,
    ConsumerMember,
    Epochs,
    MemberState,
)
from klamm.broker.coordinator.runtime.types import KeyValue
from klamm.protocol.coordinator_records.group import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
    encode_key,
    encode_value,
)
from klamm.protocol.schema import Message

EPOCH, TOPICS, MEMBER, TARGET_EPOCH, TARGET, CURRENT, REGEX = 3, 4, 5, 6, 7, 8, 16

Parts = Mapping[tuple[int, str], Message]  # (kind of record, member or expression) -> value


def _epoch_key(group_id: str) -> bytes:
    return encode_key(EPOCH, ConsumerGroupMetadataKey(group_id=group_id))


def _topics_key(group_id: str) -> bytes:
    return encode_key(TOPICS, ConsumerGroupPartitionMetadataKey(group_id=group_id))


def _member_key(group_id: str, member_id: str) -> bytes:
    return encode_key(MEMBER, ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id))


def _target_epoch_key(group_id: str) -> bytes:
    return encode_key(TARGET_EPOCH, ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id))


def _target_key(group_id: str, member_id: str) -> bytes:
    return encode_key(TARGET, ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id))


def _current_key(group_id: str, member_id: str) -> bytes:
    return encode_key(CURRENT, ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id))


def _regex_key(group_id: str, regex: str) -> bytes:
    return encode_key(REGEX, ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex))


# -- encoding ---------------------------------------------------------------------------------------------------


def epoch_record(group: ConsumerGroup) -> KeyValue:
    value = ConsumerGroupMetadataValue(epoch=group.epoch, metadata_hash=group.metadata_hash)
    return _epoch_key(group.group_id), encode_value(value)


def target_epoch_record(group: ConsumerGroup) -> KeyValue:
    value = ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=group.assignment_epoch, assignment_timestamp=group.assignment_ms
    )
    return _target_epoch_key(group.group_id), encode_value(value)


def target_record(group_id: str, member_id: str, assignment: Assignment) -> KeyValue:
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TopicPartition(topic_id=topic, partitions=sorted(indexes)) for topic, indexes in sorted(assignment.items())
        ]
    )
    return _target_key(group_id, member_id), encode_value(value)


def member_record(group_id: str, member: ConsumerMember) -> KeyValue:
    classic = None
    if member.classic is not None:
        classic = ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.classic.protocols
            ],
        )
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=classic,
    )
    return _member_key(group_id, member.member_id), encode_value(value)


def current_record(group_id: str, member: ConsumerMember) -> KeyValue:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=int(member.state),
        assigned_partitions=_with_epochs(member.assigned),
        partitions_pending_revocation=_with_epochs(member.revoking),
    )
    return _current_key(group_id, member.member_id), encode_value(value)


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> KeyValue:
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return _regex_key(group_id, regex), encode_value(value)


def _with_epochs(assignment: Epochs) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic, partitions=sorted(indexes), assignment_epochs=[indexes[index] for index in sorted(indexes)]
        )
        for topic, indexes in sorted(assignment.items())
    ]


# -- tombstones -------------------------------------------------------------------------------------------------


def member_tombstones(group_id: str, member_id: str) -> list[KeyValue]:
    return [
        (_current_key(group_id, member_id), None),
        (_target_key(group_id, member_id), None),
        (_member_key(group_id, member_id), None),
    ]


def regex_tombstone(group_id: str, regex: str) -> KeyValue:
    return _regex_key(group_id, regex), None


def group_tombstones(group: ConsumerGroup) -> list[KeyValue]:
    """Return tombstones for all records of a group; an older Kafka may have written the record of topics."""
    group_id = group.group_id
    records = [record for member_id in group.members for record in member_tombstones(group_id, member_id)]
    records += [regex_tombstone(group_id, regex) for regex in group.regexes]
    records += [(_target_epoch_key(group_id), None), (_topics_key(group_id), None), (_epoch_key(group_id), None)]
    return records


def all_records(group: ConsumerGroup) -> Iterator[KeyValue]:
    """Return all records of a group that was converted from a classic group."""
    for member in group.members.values():
        yield member_record(group.group_id, member)
    yield epoch_record(group)
    for member_id, assignment in group.target.items():
        yield target_record(group.group_id, member_id, assignment)
    yield target_epoch_record(group)
    for member in group.members.values():
        yield current_record(group.group_id, member)


# -- decoding ---------------------------------------------------------------------------------------------------


def from_records(group_id: str, parts: Parts, assignor: str) -> ConsumerGroup | None:
    """Return the group that the log describes; None if only remains of it are there."""
    metadata = parts.get((EPOCH, ""))
    if not isinstance(metadata, ConsumerGroupMetadataValue):
        return None
    group = ConsumerGroup(group_id, assignor)
    group.epoch = metadata.epoch
    group.metadata_hash = metadata.metadata_hash
    group.stale = True  # topics may have changed since
    targeted = parts.get((TARGET_EPOCH, ""))
    if isinstance(targeted, ConsumerGroupTargetAssignmentMetadataValue):
        group.assignment_epoch = targeted.assignment_epoch
        group.assignment_ms = targeted.assignment_timestamp
    for (kind, part), value in parts.items():
        if kind == MEMBER and isinstance(value, ConsumerGroupMemberMetadataValue):
            group.put(_member(part, value, parts.get((CURRENT, part))))
        elif kind == REGEX and isinstance(value, ConsumerGroupRegularExpressionValue):
            group.set_regex(part, ResolvedRegex(frozenset(value.topics), value.version, value.timestamp))
    for (kind, part), value in parts.items():
        if kind == TARGET and isinstance(value, ConsumerGroupTargetAssignmentMemberValue) and part in group.members:
            group.target[part] = {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}
    return group


def _member(member_id: str, value: ConsumerGroupMemberMetadataValue, current: Message | None) -> ConsumerMember:
    stored = value.classic_member_metadata
    classic = None
    if stored is not None:
        protocols = tuple((known.name, bytes(known.metadata)) for known in stored.supported_protocols)
        classic = ClassicProtocols(stored.session_timeout_ms, protocols)
    member = ConsumerMember(
        member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topic_names=frozenset(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex or "",
        server_assignor=value.server_assignor or None,
        classic=classic,
    )
    if not isinstance(current, ConsumerGroupCurrentMemberAssignmentValue):
        return member
    known = {int(state) for state in MemberState}
    return member._replace(
        epoch=current.member_epoch,
        previous_epoch=current.previous_member_epoch,
        state=MemberState(current.state if current.state in known else MemberState.STABLE),
        assigned=_epochs(current.assigned_partitions, current.member_epoch),
        revoking=_epochs(current.partitions_pending_revocation, current.member_epoch),
    )


def _epochs(stored: list[TopicPartitions], epoch: int) -> Epochs:
    """Decode assigned partitions. Older records lack epochs of partitions; then each gets that of the member."""
    found: dict[bytes, dict[int, int]] = {}
    for topic in stored:
        epochs = topic.assignment_epochs or []
        if len(epochs) != len(topic.partitions):
            epochs = [epoch] * len(topic.partitions)
        found[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return found
