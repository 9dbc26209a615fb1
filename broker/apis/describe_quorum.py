"""DescribeQuorum (55): v0-2. The voters on the metadata: one voter, this broker's controller (KIP-595, KIP-853).

The metadata are in a store and not in a Raft log, so the response translates: the leader epoch is the controller epoch,
offsets count the changes of the store. v1 adds times, v2 directory ids, error messages and the voters' addresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.broker.apis.common import advertised_address
from klamm.broker.metadata.image import CLUSTER_METADATA_TOPIC
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from klamm.protocol.wire import ZERO_UUID, uuid_from_text

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker

NODES_FROM = 2


async def handle(broker: Broker, context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    asked = [
        (topic.topic_name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    ]
    if asked != [(CLUSTER_METADATA_TOPIC, 0)]:
        return _unknown(request)
    offset = await broker.controller.metadata_offset()
    now_ms = broker.clock.wall_ms()
    voter = ReplicaState(
        replica_id=broker.node_id,
        log_end_offset=offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    partition = PartitionData(
        error_message=None,
        leader_id=broker.node_id,
        leader_epoch=broker.controller.controller_epoch,
        high_watermark=offset,
        current_voters=[voter],
    )
    response = DescribeQuorumResponse(
        error_message=None, topics=[TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])]
    )
    if context.api_version >= NODES_FROM:
        directory_id = broker.partitions.logs.log_dirs[0].meta.directory_id
        voter.replica_directory_id = uuid_from_text(directory_id) if directory_id else ZERO_UUID
        host, port = advertised_address(broker, context)
        listener = Listener(name=context.connection.listener, host=host, port=port)
        response.nodes = [Node(node_id=broker.node_id, listeners=[listener])]
    return response


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeQuorumResponse(
        error_message=None,
        topics=[
            TopicData(
                topic_name=topic.topic_name,
                partitions=[
                    PartitionData(
                        partition_index=partition.partition_index,
                        error_code=int(code),
                        error_message=f"only {CLUSTER_METADATA_TOPIC}-0 has a quorum",
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
