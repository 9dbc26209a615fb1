"""InitProducerId (22): a producer id and epoch for an idempotent or transactional producer.

v2 is flexible, v3 lets a producer go on after INVALID_PRODUCER_EPOCH (KIP-360), v4 may answer PRODUCER_FENCED, v5
TRANSACTION_ABORTABLE (KIP-890). v6 (two-phase commit, KIP-939) is unstable and not to be advertised.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message
from klamm.protocol.wire import Bool, Int16, Int32, Int64, String


@message(key=22, kind="request", versions="0-6", flexible="2+")
class InitProducerIdRequest:
    transactional_id: String | None = field(nullable="0+")
    transaction_timeout_ms: Int32 = field()
    producer_id: Int64 = field("3+", default=-1)
    producer_epoch: Int16 = field("3+", default=-1)
    enable2_pc: Bool = field("6+", default=False)
    keep_prepared_txn: Bool = field("6+", default=False)


@message(key=22, kind="response", versions="0-6", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: Int32 = field(ignorable=True)
    error_code: Int16 = field()
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16 = field()
    ongoing_txn_producer_id: Int64 = field("6+", default=-1)
    ongoing_txn_producer_epoch: Int16 = field("6+", default=-1)
