"""EndTxn (26): commit or abort a transaction (KIP-98).

v2 may answer PRODUCER_FENCED, v3 is flexible, v4 may answer TRANSACTION_ABORTABLE. From v5 the coordinator raises the
producer epoch at the end of each transaction and gives the new id and epoch back (KIP-890, transaction.version 2).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message
from klamm.protocol.wire import Bool, Int16, Int32, Int64, String


@message(key=26, kind="request", versions="0-5", flexible="3+")
class EndTxnRequest:
    transactional_id: String = field()
    producer_id: Int64 = field()
    producer_epoch: Int16 = field()
    committed: Bool = field()


@message(key=26, kind="response", versions="0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    producer_id: Int64 = field("5+", default=-1, ignorable=True)
    producer_epoch: Int16 = field("5+", default=-1, ignorable=True)
