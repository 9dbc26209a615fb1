"""DescribeProducers (61): v0. The producers with state in a partition, to find hanging transactions (KIP-664).

`current_txn_start_offset` is -1 for a producer without an open transaction, `last_sequence` for one with only a known
marker. Expired producers are left out once their partition has removed them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.broker.apis.common import unseen
from klamm.broker.controller.topics import check_name
from klamm.protocol.errors import KafkaError, UnknownTopicOrPartition
from klamm.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.storage.log.producer_state_entry import ProducerStateEntry


def handle(broker: Broker, context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _described(broker, topic.name, index)
                    for index in topic.partition_indexes
                    if unseen(context, (topic.name, index))
                ],
            )
            for topic in request.topics
        ]
    )


def error_response(request: DescribeProducersRequest, error: KafkaError, version: int) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(name=topic.name, partitions=[_failed(index, error) for index in topic.partition_indexes])
            for topic in request.topics
        ]
    )


def _described(broker: Broker, topic: str, index: int) -> PartitionResponse:
    try:
        check_name(topic)
        partition = broker.partitions.get_partition(topic, index)
        if partition is None:
            raise UnknownTopicOrPartition("")
        producers = partition.online_log().producers
    except KafkaError as error:
        return _failed(index, error)
    return PartitionResponse(partition_index=index, active_producers=[_state(producer) for producer in producers])


def _state(producer: ProducerStateEntry) -> ProducerState:
    return ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.first_transaction_offset,
    )


def _failed(index: int, error: KafkaError) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, error_code=int(error.code), error_message=error.message or None, active_producers=[]
    )
