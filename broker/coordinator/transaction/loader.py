"""Replay of a partition of ``__transaction_state``: the last record of each transactional id.

A `Replay` decodes the log piece by piece, in any thread, and knows nothing but bytes. A record that does not decode is
skipped and counted: one bad record must not block the others.
"""

from __future__ import annotations

import logging

from klamm.broker.coordinator.transaction.records import decode
from klamm.broker.coordinator.transaction.transaction import Transaction
from klamm.protocol.errors import KafkaError
from klamm.protocol.records.batch import BatchHeader, Record, batches, records
from klamm.protocol.wire import Malformed

log = logging.getLogger(__name__)


class Replay:
    """The transactions found in the log so far."""

    def __init__(self, name: str, decompressed_limit: int) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.record_count = 0
        self.skipped = 0
        self._name = name
        self._limit = decompressed_limit

    def read(self, data: bytes, offset: int) -> int:
        """Decode the whole batches in ``data`` from the record at ``offset`` on. Return the next offset to read."""
        for position, header in batches(data):
            if header.last_offset >= offset:
                self._read_batch(data, header, position, offset)
                offset = header.next_offset
        return offset

    def _read_batch(self, data: bytes, header: BatchHeader, position: int, offset: int) -> None:
        if header.is_control:
            return
        try:
            for record in records(data, header, self._limit, position):
                if record.offset >= offset:
                    self._apply(record)
        except KafkaError as error:
            self._skip(header.base_offset, error.message)

    def _apply(self, record: Record) -> None:
        self.record_count += 1
        try:
            transactional_id, transaction = decode(record.key, record.value)
        except Malformed as error:
            self._skip(record.offset, str(error))
            return
        if transaction is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = transaction

    def _skip(self, offset: int, why: str) -> None:
        self.skipped += 1
        log.warning("%s: offset=%d: skipped while loading transactions: %s", self._name, offset, why)
