"""DescribeTransactions (65): v0. The state of transactional ids (KIP-664).

For a transaction that is ending, the response has only the partitions that lack their marker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.broker.apis.common import unseen
from klamm.broker.coordinator.transaction.states import State
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker


def handle(
    broker: Broker, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            _describe(broker, transactional_id)
            for transactional_id in request.transactional_ids
            if unseen(context, transactional_id)
        ]
    )


def _describe(broker: Broker, transactional_id: str) -> TransactionState:
    answer = TransactionState(transactional_id=transactional_id)
    if not transactional_id:
        answer.error_code = int(ErrorCode.INVALID_REQUEST)
        return answer
    try:
        broker.transactions.topic.check(transactional_id)
    except KafkaError as error:
        answer.error_code = int(error.code)
        return answer
    transaction = broker.transactions.state_machine.get(transactional_id)
    if transaction is None or transaction.state is State.DEAD:
        answer.error_code = int(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return answer
    answer.transaction_state = transaction.state.value
    answer.transaction_timeout_ms = transaction.timeout_ms
    answer.transaction_start_time_ms = transaction.started_ms
    answer.producer_id = transaction.producer_id
    answer.producer_epoch = transaction.producer_epoch
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(broker.transactions.state_machine.unmarked(transactional_id)):
        topics.setdefault(topic, []).append(index)
    answer.topics = [TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()]
    return answer


def error_response(
    request: DescribeTransactionsRequest, error: KafkaError, version: int
) -> DescribeTransactionsResponse:
    """Return the same error for every id."""
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(transactional_id=transactional_id, error_code=int(error.code))
            for transactional_id in request.transactional_ids
        ]
    )
