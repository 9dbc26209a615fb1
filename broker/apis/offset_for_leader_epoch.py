"""OffsetForLeaderEpoch (23): v0-4. The end offset of a leader epoch (KIP-101, KIP-279, KIP-320).

After an unclean failover a consumer uses it to check whether the records it has read are still there. v1 has the epoch
of the end offset, v2 checks the client's current epoch, v3 has the replica id of the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.protocol.errors import KafkaError, UnknownTopicOrPartition
from klamm.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker


def handle(
    broker: Broker, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_end_offset(broker, topic.topic, wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def error_response(
    request: OffsetForLeaderEpochRequest, error: KafkaError, version: int
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=wanted.partition, error_code=int(error.code))
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _end_offset(broker: Broker, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = broker.partitions.get_partition(topic, wanted.partition)
        if partition is None:
            raise UnknownTopicOrPartition(f"no partition {topic}-{wanted.partition}")
        partition.check_leader_epoch(wanted.current_leader_epoch)
        if wanted.leader_epoch == partition.leader_epoch:
            epoch, end_offset = partition.leader_epoch, partition.online_log().log_end_offset
        else:
            log = partition.online_log()
            epoch, end_offset = log.leader_epochs.end_offset_for(wanted.leader_epoch, log.log_end_offset)
    except KafkaError as error:
        return EpochEndOffset(partition=wanted.partition, error_code=int(error.code))
    return EpochEndOffset(partition=wanted.partition, error_code=0, leader_epoch=epoch, end_offset=end_offset)
