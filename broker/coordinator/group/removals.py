"""Removal of offsets and groups: DeleteGroups, OffsetDelete, and the offsets of deleted topics.

Each offset or group gets a tombstone, written in batches; memory drops it when the tombstone is durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from klamm.broker.coordinator.group.classic.states import State
from klamm.broker.coordinator.group.groups import Groups, is_empty
from klamm.broker.coordinator.group.offsets import Offset, OffsetTable
from klamm.broker.coordinator.group.pending_transactional_offsets import PendingTransactionalOffsets
from klamm.broker.coordinator.group.records import batches, offset_key
from klamm.broker.coordinator.runtime.completable_result import CompletableResult
from klamm.broker.coordinator.runtime.runtime import CoordinatorRuntime
from klamm.broker.coordinator.runtime.types import KeyValue, Now, coordinator_error
from klamm.broker.coordinator.runtime.write_timeouts import Outcome, WriteTimeouts
from klamm.broker.metadata.image import OFFSETS_TOPIC
from klamm.broker.turns import in_turns
from klamm.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from klamm.broker.metadata.image import MetadataImage

PIECE = 500
"""The number of offsets that are examined or removed in one turn."""


class Removals:
    """See the module's head."""

    def __init__(
        self,
        offsets: OffsetTable,
        pending: PendingTransactionalOffsets,
        groups: Groups,
        *,
        runtime: CoordinatorRuntime[Any],
        timeouts: WriteTimeouts,
    ) -> None:
        self.deleted_count = 0
        self._offsets = offsets
        self._pending = pending
        self._groups = groups
        self._runtime = runtime
        self._timeouts = timeouts
        self._gone: set[str] = set()  # deleted topics with offsets still to be removed

    def remove(self, group_id: str, offsets: Sequence[Offset], *, group_too: bool = False) -> Outcome:
        """Write tombstones, and drop the offsets when they are durable; with ``group_too`` also the group."""
        now = self._runtime.now()
        answer: CompletableResult[ErrorCode] = CompletableResult()
        codes: list[ErrorCode] = []
        pieces = batches([*offsets])
        count = len(pieces) + group_too
        if not count:
            return ErrorCode.NONE

        def stored(code: ErrorCode) -> None:
            codes.append(code)
            if len(codes) == count:
                answer.complete(_worst(codes))

        for piece in pieces:

            def forgotten(code: ErrorCode, now: Now, piece: Sequence[Offset] = piece) -> None:
                if code is ErrorCode.NONE:
                    for topic, partition in piece:
                        self._pending.drop((group_id, topic, partition))
                        self._offsets.remove(group_id, topic, partition)
                stored(code)

            self._runtime.append(group_id, partial(_tombstones, group_id, piece), forgotten, now)
        if group_too:
            self._groups.remove(group_id, stored, now)
        return self._timeouts.limited(answer, now)

    def delete_group(self, group_id: str) -> Outcome:
        """Handle DeleteGroups: delete an empty group with its offsets."""
        group = self._groups.get(group_id)
        if group is None or group.state is State.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not is_empty(group):
            return ErrorCode.NON_EMPTY_GROUP
        offsets = self._offsets_of(group_id)
        self.deleted_count += len(offsets)
        return self.remove(group_id, offsets, group_too=True)

    def delete_offsets(self, group_id: str, offsets: Sequence[Offset]) -> Outcome:
        """Handle OffsetDelete: write tombstones for these offsets."""
        self.deleted_count += len(offsets)
        return self.remove(group_id, offsets)

    def _offsets_of(self, group_id: str) -> list[Offset]:
        """Return the committed offsets of a group, and those of open transactions."""
        offsets = [(topic, partition) for topic, found in self._offsets.of(group_id).items() for partition in found]
        return list(dict.fromkeys([*offsets, *self._pending.of(group_id)]))

    # -- deleted topics -----------------------------------------------------------------------------------------

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Note topics that were deleted, or replaced by others of their name."""
        self._gone |= {
            name
            for name, topic in old.topics.items()
            if name != OFFSETS_TOPIC and (name not in new.topics or new.topics[name].topic_id != topic.topic_id)
        }

    async def settle(self) -> None:
        """Remove the offsets of deleted topics, in turns."""
        gone, self._gone = self._gone, set()
        if gone:
            await self._remove_all_of(gone)

    async def _remove_all_of(self, topics: set[str]) -> None:
        async for group_id in in_turns([*self._offsets.groups(), *self._pending.groups()]):
            found = self._offsets.of(group_id)
            gone = {(topic, index) for topic in found.keys() & topics for index in found[topic]}
            gone |= {(topic, index) for topic, index in self._pending.of(group_id) if topic in topics}
            async for piece in in_turns(batches(sorted(gone)), 1):
                self.remove(group_id, piece)


def _tombstones(group_id: str, offsets: Sequence[Offset]) -> list[KeyValue]:
    return [(offset_key(group_id, topic, partition), None) for topic, partition in offsets]


def _worst(codes: Sequence[ErrorCode]) -> ErrorCode:
    """Return the response code of a removal."""
    return next((commit_error(code) for code in codes if code), ErrorCode.NONE)


def commit_error(code: ErrorCode) -> ErrorCode:
    """Return the response code for offsets that cannot be stored."""
    return coordinator_error(code, too_large=ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
