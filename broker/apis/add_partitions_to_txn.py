"""AddPartitionsToTxn (24): v0-5. Adds partitions to transactions, or verifies that they were added.

v0-3 are for clients, with one transaction. v4 is for brokers (KIP-890), with several, and may only verify. Clients of
version 2 of the transaction protocol do not send this: their Produce adds the partition. v2 has PRODUCER_FENCED where
older versions have INVALID_PRODUCER_EPOCH, v5 TRANSACTION_ABORTABLE. If one partition is unknown none is added, and the
others get OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from klamm.broker.coordinator.transaction.transaction import ProducerIdAndEpoch, TopicPartition
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker

FENCED_FROM = 2
BROKERS_FROM = 4
OF_CLIENTS, OF_BROKERS = 0, 2  # versions of the transaction protocol

Codes = dict[TopicPartition, ErrorCode]


async def handle(
    broker: Broker, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    version = context.api_version
    if version >= BROKERS_FROM:
        results = []
        for transaction in request.transactions:
            codes = await _codes(broker, transaction, OF_BROKERS)
            answers = _answers(transaction.topics, codes)
            results.append(
                AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=answers)
            )
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    codes = await _codes(broker, _as_newer(request), OF_CLIENTS)
    if version < FENCED_FROM:
        codes = {key: _older(code) for key, code in codes.items()}
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_answers(request.v3_and_below_topics, codes))


def _as_newer(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


async def _codes(broker: Broker, transaction: AddPartitionsToTxnTransaction, protocol: int) -> Codes:
    """Return the error code of each partition."""
    keys = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    known = [key for key in keys if broker.partitions.get_partition(*key) is not None]
    if len(known) < len(keys):
        codes = dict.fromkeys(keys, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return codes | dict.fromkeys(known, ErrorCode.OPERATION_NOT_ATTEMPTED)
    if not transaction.transactional_id:
        return dict.fromkeys(keys, ErrorCode.INVALID_REQUEST)
    who = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    transactions = broker.transactions
    try:
        if transaction.verify_only:
            return {key: transactions.verify(transaction.transactional_id, who, key) for key in keys}
        outcome = transactions.add_partitions(transaction.transactional_id, who, frozenset(keys), protocol)
        return dict.fromkeys(keys, outcome if isinstance(outcome, ErrorCode) else await outcome)
    except KafkaError as error:
        return dict.fromkeys(keys, error.code)


def _older(code: ErrorCode) -> ErrorCode:
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code


def _answers(topics: Sequence[AddPartitionsToTxnTopic], codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=int(codes[topic.name, index])
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def error_response(request: AddPartitionsToTxnRequest, error: KafkaError, version: int) -> AddPartitionsToTxnResponse:
    """Return the same error for every partition; since v4 one for all."""
    if version >= BROKERS_FROM:
        return AddPartitionsToTxnResponse(error_code=int(error.code))
    keys = [(topic.name, index) for topic in request.v3_and_below_topics for index in topic.partitions]
    answers = _answers(request.v3_and_below_topics, dict.fromkeys(keys, error.code))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=answers)
