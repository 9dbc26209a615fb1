"""EndTxn (26): v0-5. Commits or aborts a producer's transaction.

The response is sent when the decision is in ``__transaction_state``; from then on the coordinator writes the markers.
v2 has PRODUCER_FENCED where older versions have INVALID_PRODUCER_EPOCH. v5 is version 2 of the transaction protocol
(KIP-890): the producer continues with the epoch, and sometimes the id, in the response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.broker.coordinator.transaction.transaction import ProducerIdAndEpoch
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker

FENCED_FROM = 2
VERSION_2_FROM = 5


async def handle(broker: Broker, context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    version = context.api_version
    if not request.transactional_id:
        return EndTxnResponse(error_code=int(ErrorCode.INVALID_REQUEST))
    code, (producer_id, epoch) = await broker.transactions.end(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        2 if version >= VERSION_2_FROM else 0,
        commit=request.committed,
    )
    if code is ErrorCode.PRODUCER_FENCED and version < FENCED_FROM:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    if version < VERSION_2_FROM:
        return EndTxnResponse(error_code=int(code))
    return EndTxnResponse(error_code=int(code), producer_id=producer_id, producer_epoch=epoch)
