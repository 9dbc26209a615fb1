"""ElectLeaders (43): v0-2. Moves leadership to the preferred replica, or to any live one (KIP-183, KIP-460).

v0 has preferred elections only. With one replica for each partition, which leads while its broker is live, no election
is ever needed; errors are Kafka's. Null partitions mean all; then partitions that need no election are left out of the
response, though not their topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.broker.metadata.image import NO_LEADER
from klamm.protocol.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    ErrorCode,
    InvalidRequest,
    KafkaError,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from klamm.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker

TOP_LEVEL_ERROR_FROM = 1
PREFERRED = 0
UNCLEAN = 1


def handle(broker: Broker, context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    kind = request.election_type
    if kind not in (PREFERRED, UNCLEAN):
        raise InvalidRequest(f"unknown election type {kind}")
    if request.topic_partitions is None:
        everything = [
            (topic.name, [partition.index for partition in topic.partitions]) for topic in broker.image.topics.values()
        ]
        results = [(name, _elected(broker, name, indexes, kind, needed_only=True)) for name, indexes in everything]
    else:
        results = [
            (topic.topic, _elected(broker, topic.topic, topic.partitions, kind, needed_only=False))
            for topic in request.topic_partitions
        ]
    return ElectLeadersResponse(
        replica_election_results=[ReplicaElectionResult(topic=name, partition_result=found) for name, found in results]
    )


def error_response(request: ElectLeadersRequest, error: KafkaError, version: int) -> ElectLeadersResponse:
    code = int(error.code)
    response = ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=code, error_message=error.message)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ]
    )
    if version >= TOP_LEVEL_ERROR_FROM:
        response.error_code = code
    return response


def _elected(broker: Broker, topic: str, indexes: list[int], kind: int, *, needed_only: bool) -> list[PartitionResult]:
    found = []
    for index in indexes:
        error = _outcome(broker, topic, index, kind)
        if needed_only and error.code == ErrorCode.ELECTION_NOT_NEEDED:
            continue
        found.append(PartitionResult(partition_id=index, error_code=int(error.code), error_message=error.message))
    return found


def _outcome(broker: Broker, topic: str, index: int, kind: int) -> KafkaError:
    partition = broker.image.partition(topic, index)
    if partition is None:
        return UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
    if kind == PREFERRED:
        if partition.leader == partition.replicas[0]:
            return ElectionNotNeeded(f"{topic}-{index} is led by its preferred replica")
        return PreferredLeaderNotAvailable(f"the preferred replica {partition.replicas[0]} of {topic}-{index} is down")
    if partition.leader != NO_LEADER:
        return ElectionNotNeeded(f"{topic}-{index} has a leader")
    return EligibleLeadersNotAvailable(f"no replica of {topic}-{index} lives")
