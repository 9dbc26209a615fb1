"""AddOffsetsToTxn (25): the offsets partition of a group joins a transaction (KIP-98).

v2 may answer PRODUCER_FENCED, v3 is flexible, v4 may answer TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message
from klamm.protocol.wire import Int16, Int32, Int64, String


@message(key=25, kind="request", versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    transactional_id: String = field()
    producer_id: Int64 = field()
    producer_epoch: Int16 = field()
    group_id: String = field()


@message(key=25, kind="response", versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
