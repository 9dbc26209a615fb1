"""The records of `__transaction_state`: one per transactional id (kind 0).

Version 1 of the value adds, as tagged fields, the data of KIP-890: the producer ids before and after a change.
"""

from __future__ import annotations

from klamm.protocol.schema import Message, field, message, struct
from klamm.protocol.wire import Int8, Int16, Int32, Int64, String


@message(key=0, kind="coordinator-key", versions="0")
class TransactionLogKey(Message):
    transactional_id: String = field()


@struct
class PartitionsSchema:
    topic: String = field()
    partition_ids: list[Int32] = field()


@message(key=0, kind="coordinator-value", versions="0-1", flexible="1+")
class TransactionLogValue(Message):
    """`transaction_status`: 0 empty, 1 ongoing, 2 prepare commit, 3 prepare abort, 4 complete commit, 5 complete abort,
    6 dead, 7 prepare epoch fence."""

    producer_id: Int64 = field()
    previous_producer_id: Int64 = field("1+", default=-1, tag=0, tagged="1+")
    next_producer_id: Int64 = field("1+", default=-1, tag=1, tagged="1+")
    producer_epoch: Int16 = field()
    next_producer_epoch: Int16 = field("1+", default=-1, tag=3, tagged="1+")
    transaction_timeout_ms: Int32 = field()
    transaction_status: Int8 = field()
    transaction_partitions: list[PartitionsSchema] | None = field(nullable="0+")
    transaction_last_update_timestamp_ms: Int64 = field()
    transaction_start_timestamp_ms: Int64 = field()
    client_transaction_version: Int16 = field("1+", default=0, tag=2, tagged="1+")
