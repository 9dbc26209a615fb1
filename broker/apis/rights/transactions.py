"""Rights of the APIs about transactions and producer ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klamm.broker.apis.add_partitions_to_txn import BROKERS_FROM
from klamm.broker.apis.rights.asker import refusal
from klamm.broker.apis.rights.guards import Guarded, after
from klamm.broker.apis.rights.table import (
    ALTER,
    CLUSTER,
    CLUSTER_ACTION,
    DESCRIBE,
    IDEMPOTENT_WRITE,
    TOPIC,
    TRANSACTIONAL_ID,
    TWO_PHASE_COMMIT,
    WRITE,
    Right,
)
from klamm.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
    from klamm.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
    from klamm.protocol.messages.init_producer_id import InitProducerIdRequest
    from klamm.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

WRITE_ID, WRITE_TOPIC = Right(WRITE, TRANSACTIONAL_ID), Right(WRITE, TOPIC)
IS_BROKER = Right(CLUSTER_ACTION, CLUSTER)


def init_producer_id(inner: Guarded, broker: Broker, context: RequestContext, request: InitProducerIdRequest) -> Any:
    """Ask for WRITE on the id; without an id, for IDEMPOTENT_WRITE on the cluster or WRITE on some topic."""
    ask, transactional_id = context.ask, request.transactional_id
    if transactional_id is not None:
        ask.need(WRITE_ID, transactional_id)
        if request.enable2_pc:
            ask.need(Right(TWO_PHASE_COMMIT, TRANSACTIONAL_ID), transactional_id)
    elif not ask.may(Right(IDEMPOTENT_WRITE, CLUSTER), quiet=True) and not ask.may_on_some(WRITE_TOPIC):
        ask.need(Right(IDEMPOTENT_WRITE, CLUSTER))
    return inner.handle(broker, context, request)


def add_partitions(inner: Guarded, broker: Broker, context: RequestContext, request: AddPartitionsToTxnRequest) -> Any:
    """Ask for WRITE on the id and each topic; internal topics are refused. One refused or unknown topic keeps all from
    being added. From v4 on the request is a broker's."""
    ask = context.ask
    if context.api_version >= BROKERS_FROM:
        ask.need(IS_BROKER)
        return inner.handle(broker, context, request)
    ask.need(WRITE_ID, request.v3_and_below_transactional_id)
    topics = request.v3_and_below_topics
    refused = {
        topic.name for topic in topics if _is_internal(broker, topic.name) or not ask.may(WRITE_TOPIC, topic.name)
    }
    if not refused:
        return inner.handle(broker, context, request)
    response = inner.refuse(request, refusal(TOPIC), context.api_version)
    for topic in response.results_by_topic_v3_and_below:
        if topic.name not in refused:
            for partition in topic.results_by_partition:
                is_known = broker.partitions.get_partition(topic.name, partition.partition_index) is not None
                code = ErrorCode.OPERATION_NOT_ATTEMPTED if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                partition.partition_error_code = int(code)
    return response


def _is_internal(broker: Broker, name: str) -> bool:
    topic = broker.image.topics.get(name)
    return topic is not None and topic.internal


def write_markers(inner: Guarded, broker: Broker, context: RequestContext, request: WriteTxnMarkersRequest) -> Any:
    """Ask for ALTER on the cluster, or CLUSTER_ACTION as brokers have it."""
    if not context.ask.may(Right(ALTER, CLUSTER), quiet=True):
        context.ask.need(IS_BROKER)
    return inner.handle(broker, context, request)


def hide_topics(inner: Guarded, broker: Broker, context: RequestContext, request: DescribeTransactionsRequest) -> Any:
    """Leave out the topics of transactions that the client may not describe."""

    def hide(response: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
        for state in response.transaction_states:
            state.topics = [
                topic for topic in state.topics if context.ask.may(Right(DESCRIBE, TOPIC), topic.topic, quiet=True)
            ]
        return response

    return after(inner.handle(broker, context, request), hide)
