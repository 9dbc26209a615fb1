"""Expiry of committed offsets (KIP-211), and of groups without any: see `offsets` for the rule.

`expired_offsets` finds them, `Expiry` removes them from time to time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container
from typing import TYPE_CHECKING, Any

from klamm.broker.coordinator.group.classic.classic_group import ClassicGroup
from klamm.broker.coordinator.group.classic.states import State
from klamm.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from klamm.broker.coordinator.group.groups import Groups, is_abandoned
from klamm.broker.coordinator.group.offsets import Offset, OffsetTable, Topics
from klamm.broker.coordinator.group.pending_transactional_offsets import PendingTransactionalOffsets
from klamm.broker.coordinator.group.removals import PIECE, Removals
from klamm.broker.coordinator.runtime.runtime import CoordinatorRuntime
from klamm.broker.coordinator.runtime.types import Now
from klamm.broker.coordinator.runtime.write_timeouts import Outcome
from klamm.broker.turns import in_turns
from klamm.protocol.errors import ErrorCode
from klamm.storage.log.retention import TrustedTime

if TYPE_CHECKING:
    from klamm.storage.clock import Clock

log = logging.getLogger(__name__)

MINUTE_MS = 60_000


class Expiry:
    """Removes offsets unused for ``offsets.retention.minutes``. It does not trust a clock that has just jumped ahead
    (`TrustedTime`).
    """

    def __init__(
        self,
        offsets: OffsetTable,
        pending: PendingTransactionalOffsets,
        groups: Groups,
        removals: Removals,
        *,
        runtime: CoordinatorRuntime[Any],
        clock: Clock,
    ) -> None:
        self.expired_count = 0
        self._offsets = offsets
        self._pending = pending
        self._groups = groups
        self._removals = removals
        self._runtime = runtime
        self._trusted = TrustedTime(clock)

    def begin(self, now: Now) -> None:
        """Expire offsets now, then schedule the next expiry."""
        self._runtime.tasks.start(self._run())

    async def _run(self) -> None:
        try:
            await self.expire()
        finally:
            self._runtime.set_expiry(self._runtime.now())

    async def expire(self) -> None:
        """Remove expired offsets, and empty groups without offsets. In turns: one step finds and removes at most
        `PIECE` offsets.
        """
        now_ms = self._trusted.now_ms()
        async for group_id in in_turns([group.group_id for group in self._groups]):
            while (outcome := self._expire_some(group_id, now_ms)) is not None:
                if isinstance(outcome, asyncio.Future):
                    outcome = await outcome
                if outcome is not ErrorCode.NONE:
                    break
                await asyncio.sleep(0)

    def _expire_some(self, group_id: str, now_ms: int) -> Outcome | None:
        """Remove some expired offsets of a group. Return the outcome if there may be more to remove, else None."""
        group, topic = self._groups.get(group_id), self._runtime.topic
        if group is None or not topic.is_loaded(topic.index_of(group_id)):
            return None
        retention_ms = self._runtime.config.integer("offsets.retention.minutes") * MINUTE_MS
        undecided = self._pending.of(group_id)
        expired, left = expired_offsets(group, self._offsets.of(group_id), undecided, now_ms, retention_ms, PIECE)
        group_too = not (left or undecided) and is_abandoned(group)
        if not expired and not group_too:
            return None
        self.expired_count += len(expired)
        log.info("group %s: %d offset(s) expired%s", group_id, len(expired), ", deleted" * group_too)
        outcome = self._removals.remove(group_id, expired, group_too=group_too)
        return outcome if len(expired) == PIECE and not group_too else None


def expired_offsets(
    group: ClassicGroup | ConsumerGroup,
    topics: Topics,
    undecided: Container[Offset],
    now_ms: int,
    retention_ms: int,
    at_most: int,
) -> tuple[list[Offset], bool]:
    """Return at most `at_most` expired offsets of a group, and whether it has others.

    Offsets of open transactions are `undecided` and stay.
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
