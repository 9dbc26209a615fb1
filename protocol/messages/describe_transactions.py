"""DescribeTransactions (65): the state of transactions, asked from their coordinator (KIP-664)."""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int16, Int32, Int64, String


@message(key=65, kind="request", versions="0", flexible="0+")
class DescribeTransactionsRequest:
    transactional_ids: list[String] = field()


@struct
class TopicData:
    topic: String = field()
    partitions: list[Int32] = field()


@struct
class TransactionState:
    error_code: Int16 = field()
    transactional_id: String = field()
    transaction_state: String = field()
    transaction_timeout_ms: Int32 = field()
    transaction_start_time_ms: Int64 = field()
    producer_id: Int64 = field()
    producer_epoch: Int16 = field()
    topics: list[TopicData] = field()


@message(key=65, kind="response", versions="0", flexible="0+")
class DescribeTransactionsResponse:
    throttle_time_ms: Int32 = field()
    transaction_states: list[TransactionState] = field()
