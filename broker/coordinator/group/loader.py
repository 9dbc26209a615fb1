"""Replay of a partition of ``__consumer_offsets``: the last record of each offset and group.

A `Replay` decodes the log piece by piece, in any thread, and knows nothing but bytes. Offsets that were committed in a
transaction count once its commit marker is read. A record that does not decode is skipped and counted: one bad record
must not cost a group its other offsets.
"""

from __future__ import annotations

import logging

from klamm.broker.coordinator.group.offsets import CommittedOffset
from klamm.broker.coordinator.group.pending_transactional_offsets import PendingTransactionalOffsets
from klamm.broker.coordinator.group.records import ConsumerRecord, GroupRecord, OffsetRecord, decode
from klamm.protocol.coordinator_records.group import GroupMetadataValue
from klamm.protocol.errors import KafkaError
from klamm.protocol.records.batch import BatchHeader, Record, batches, records
from klamm.protocol.records.control import read_end_marker
from klamm.protocol.schema import Message
from klamm.protocol.wire import Malformed

log = logging.getLogger(__name__)


class Replay:
    """The offsets and groups found in the log so far."""

    def __init__(self, name: str, index: int, decompressed_limit: int) -> None:
        self.pending = PendingTransactionalOffsets()
        self.offsets: dict[tuple[str, str, int], CommittedOffset] = {}
        self.groups: dict[str, GroupMetadataValue] = {}
        self.consumers: dict[str, dict[tuple[int, str], Message]] = {}  # group -> (kind, part) -> value
        self.skipped = 0
        self.record_count = 0
        self._name = name
        self._limit = decompressed_limit
        self._index = index

    def read(self, data: bytes, offset: int) -> int:
        """Decode the whole batches in ``data`` from the record at ``offset`` on. Return the next offset to read."""
        for position, header in batches(data):
            if header.last_offset >= offset:
                try:
                    self._read_batch(data, header, position, offset)
                except KafkaError as error:
                    self._skip(header.base_offset, error.message)
                offset = header.next_offset
        return offset

    def _read_batch(self, data: bytes, header: BatchHeader, position: int, offset: int) -> None:
        if header.is_control:
            marker = read_end_marker(data, header, position)
            if marker is not None:
                ended = self.pending.end(self._index, header.producer_id, commit=marker.is_commit)
                self.offsets.update(ended)
            return
        for record in records(data, header, self._limit, position):
            if record.offset >= offset:
                self._apply(record, header.producer_id if header.is_transactional else None)

    def _apply(self, record: Record, producer_id: int | None) -> None:
        self.record_count += 1
        try:
            content = decode(record.key, record.value)
        except Malformed as error:
            self._skip(record.offset, str(error))
            return
        if isinstance(content, OffsetRecord):
            self._apply_offset(content, producer_id)
        elif isinstance(content, GroupRecord):
            if content.value is None:
                self.groups.pop(content.group, None)
            else:
                self.groups[content.group] = content.value
        elif isinstance(content, ConsumerRecord):
            self._apply_consumer(content)

    def _apply_offset(self, content: OffsetRecord, producer_id: int | None) -> None:
        key = (content.group, content.topic, content.partition)
        if producer_id is not None and content.committed is not None:
            self.pending.add(self._index, producer_id, key, content.committed)
            return
        if content.committed is None:
            self.pending.drop(key)
            self.offsets.pop(key, None)
        else:
            self.pending.overtake(key)
            self.offsets[key] = content.committed

    def _apply_consumer(self, content: ConsumerRecord) -> None:
        part = (content.kind, content.part)
        if content.value is not None:
            self.consumers.setdefault(content.group, {})[part] = content.value
            return
        parts = self.consumers.get(content.group)
        if parts is not None and parts.pop(part, None) is not None and not parts:
            del self.consumers[content.group]

    def _skip(self, offset: int, why: str) -> None:
        self.skipped += 1
        log.warning("%s: offset=%d: skipped while loading groups: %s", self._name, offset, why)
