"""AddOffsetsToTxn (25): v0-4. Adds the offsets of a group to a transaction, as their partition of the offsets topic.

Clients of version 2 of the transaction protocol do not send this: their TxnOffsetCommit adds the partition. v2 has
PRODUCER_FENCED where older versions have INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.broker.coordinator.transaction.transaction import ProducerIdAndEpoch
from klamm.broker.metadata.image import OFFSETS_TOPIC
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker

FENCED_FROM = 2
PROTOCOL = 0


async def handle(broker: Broker, context: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=int(ErrorCode.INVALID_REQUEST))
    await broker.groups.topic.find()
    who = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    partitions = frozenset(((OFFSETS_TOPIC, broker.groups.topic.index_of(request.group_id)),))
    outcome = broker.transactions.add_partitions(request.transactional_id, who, partitions, PROTOCOL)
    code = outcome if isinstance(outcome, ErrorCode) else await outcome
    if code is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_FROM:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=int(code))
