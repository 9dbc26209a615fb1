"""Which committed offsets have had their time (KIP-211): see `offsets` for the rule, here is whom it is applied to."""

from __future__ import annotations

from collections.abc import Container

from klamm.broker.coordinator.group.classic.classic_group import ClassicGroup
from klamm.broker.coordinator.group.classic.states import State
from klamm.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from klamm.broker.coordinator.group.offsets import Topics

Offset = tuple[str, int]  # topic, partition


def expired_offsets(
    group: ClassicGroup | ConsumerGroup,
    topics: Topics,
    undecided: Container[Offset],
    now_ms: int,
    retention_ms: int,
    at_most: int,
) -> tuple[list[Offset], bool]:
    """The offsets of a group whose time is over, the first ones only if there are many, and whether there are others.

    Those that open transactions have are `undecided` and stay.
    """
    base_ms: int | None = None
    if isinstance(group, ClassicGroup) and group.protocol_type is not None:
        if group.state is State.EMPTY:
            base_ms = group.state_timestamp_ms if group.state_timestamp_ms >= 0 else None
        elif not (group.is_consumer_group and group.subscribed_topics is not None and group.state is State.STABLE):
            return [], True
    expired: list[Offset] = []
    left = False
    for topic, partitions in topics.items():
        subscribed = group.is_subscribed(topic)
        for partition, committed in partitions.items():
            offset = (topic, partition)
            if (
                not subscribed
                and committed.expired(now_ms, base_ms=base_ms, retention_ms=retention_ms)
                and offset not in undecided
            ):
                if len(expired) == at_most:
                    return expired, True
                expired.append(offset)
            else:
                left = True
    return expired, left
