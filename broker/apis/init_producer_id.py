"""InitProducerId (22): v0-5. A producer id, and the epoch in which to use it.

v3 (KIP-360) lets a producer send the id and epoch that it had; without a transactional id it gets a new id
nevertheless. With one it gets the id of that transactional id in a new epoch, and the previous user is fenced: an open
transaction is aborted first, and the producer must ask again (CONCURRENT_TRANSACTIONS). v4 has PRODUCER_FENCED where
older versions have INVALID_PRODUCER_EPOCH. v6 (KIP-939) is unstable and not served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.broker.coordinator.transaction.transaction import ProducerIdAndEpoch
from klamm.protocol.errors import ErrorCode, InvalidRequest, InvalidTransactionTimeout, KafkaError
from klamm.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker

UNSET = -1
FENCED_FROM = 4


async def handle(broker: Broker, context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if (request.producer_id == UNSET) != (request.producer_epoch == UNSET):
        raise InvalidRequest("a producer id comes with its epoch, or neither is given")
    if request.transactional_id is None:
        return InitProducerIdResponse(producer_id=await broker.producer_ids.next(), producer_epoch=0)
    _check(request.transactional_id, request.transaction_timeout_ms, broker.transactions.max_timeout_ms)
    expected = None
    if request.producer_id != UNSET:
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    code, (producer_id, epoch) = await broker.transactions.init_producer_id(
        request.transactional_id, request.transaction_timeout_ms, expected
    )
    if code is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_FROM:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(error_code=int(code), producer_id=producer_id, producer_epoch=epoch)


def error_response(request: InitProducerIdRequest, error: KafkaError, version: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=int(error.code), producer_id=UNSET, producer_epoch=UNSET)


def _check(transactional_id: str, timeout_ms: int, longest_ms: int) -> None:
    if not transactional_id:
        raise InvalidRequest("a transactional id must not be empty")
    if not 0 < timeout_ms <= longest_ms:
        raise InvalidTransactionTimeout(f"transaction timeout {timeout_ms} ms is not in [1, {longest_ms}]")
