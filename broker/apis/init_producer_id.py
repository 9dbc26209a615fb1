"""InitProducerId (22): v0-5. A producer id for an idempotent producer.

v3 (KIP-360) lets a producer give the id and epoch that it had; without a transactional id it gets a new id all the
same. With a transactional id it needs the transaction coordinator, which does not exist yet: what the coordinator would
refuse is refused, the rest is COORDINATOR_NOT_AVAILABLE. v6 (KIP-939) is unstable and not served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.protocol.errors import CoordinatorNotAvailable, InvalidRequest, InvalidTransactionTimeout, KafkaError
from klamm.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker

UNSET = -1


async def handle(broker: Broker, context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if (request.producer_id == UNSET) != (request.producer_epoch == UNSET):
        raise InvalidRequest("a producer id comes with its epoch, or neither is given")
    if request.transactional_id is not None:
        _check_transactional(broker, request.transactional_id, request.transaction_timeout_ms)
        raise CoordinatorNotAvailable("transactions are not available yet")
    return InitProducerIdResponse(producer_id=await broker.producer_ids.next(), producer_epoch=0)


def error_response(request: InitProducerIdRequest, error: KafkaError, version: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=int(error.code), producer_id=UNSET, producer_epoch=UNSET)


def _check_transactional(broker: Broker, transactional_id: str, timeout_ms: int) -> None:
    if not transactional_id:
        raise InvalidRequest("a transactional id must not be empty")
    longest = broker.controller.config.integer("transaction.max.timeout.ms")
    if not 0 < timeout_ms <= longest:
        raise InvalidTransactionTimeout(f"transaction timeout {timeout_ms} ms is not in [1, {longest}]")
