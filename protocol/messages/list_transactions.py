"""ListTransactions (66): the transactions coordinated by this broker (KIP-664).

Empty filters let all pass. v1 filters by the time a transaction has been open, in ms (KIP-994), v2 by a pattern of the
transactional id (KIP-1152).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int16, Int32, Int64, String


@message(key=66, kind="request", versions="0-2", flexible="0+")
class ListTransactionsRequest:
    state_filters: list[String] = field()
    producer_id_filters: list[Int64] = field()
    duration_filter: Int64 = field("1+", default=-1)
    transactional_id_pattern: String | None = field("2+", nullable="2+", default=None)


@struct
class TransactionState:
    transactional_id: String = field()
    producer_id: Int64 = field()
    transaction_state: String = field()


@message(key=66, kind="response", versions="0-2", flexible="0+")
class ListTransactionsResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    unknown_state_filters: list[String] = field()
    transaction_states: list[TransactionState] = field()
