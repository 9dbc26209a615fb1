"""AlterPartitionReassignments (45): v0-1. Gives partitions other replicas (KIP-455).

On one node there is nothing to reassign: only the current assignment can be requested. It is accepted, as in Apache
Kafka, since kafka-reassign-partitions begins with it when it moves partitions between log directories. Any other is
INVALID_REPLICA_ASSIGNMENT, and there is never a reassignment to cancel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.protocol.errors import (
    InvalidReplicaAssignment,
    KafkaError,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from klamm.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker


def handle(
    broker: Broker, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_result(broker, topic.name, partition) for partition in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def error_response(
    request: AlterPartitionReassignmentsRequest, error: KafkaError, version: int
) -> AlterPartitionReassignmentsResponse:
    """Return the error at the top level and at every partition named."""
    code, message = int(error.code), error.message
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=code,
        error_message=message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=partition.partition_index, error_code=code, error_message=message
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _result(broker: Broker, topic: str, partition: ReassignablePartition) -> ReassignablePartitionResponse:
    try:
        _check(broker, topic, partition)
    except KafkaError as error:
        return ReassignablePartitionResponse(
            partition_index=partition.partition_index, error_code=int(error.code), error_message=_message(error)
        )
    return ReassignablePartitionResponse(partition_index=partition.partition_index, error_code=0, error_message=None)


def _message(error: KafkaError) -> str | None:
    """Return the message; Apache Kafka sends none for a reassignment that does not exist."""
    return error.message if not isinstance(error, NoReassignmentInProgress) else None


def _check(broker: Broker, topic: str, wanted: ReassignablePartition) -> None:
    """Raise an error, with Kafka's text, unless the wanted assignment is the current one."""
    image = broker.image.topics.get(topic)
    if image is None:
        raise UnknownTopicOrPartition(f"Unable to find a topic named {topic}.")
    if not 0 <= wanted.partition_index < len(image.partitions):
        raise UnknownTopicOrPartition(f"Unable to find partition {topic}:{wanted.partition_index}.")
    replicas = wanted.replicas
    if replicas is None:
        raise NoReassignmentInProgress
    beginning = "The manual partition assignment includes"
    if not replicas:
        raise InvalidReplicaAssignment(f"{beginning} an empty replica list.")
    for broker_id in sorted(replicas):
        if broker_id not in broker.image.brokers:
            raise InvalidReplicaAssignment(f"{beginning} broker {broker_id}, but no such broker is registered.")
        if replicas.count(broker_id) > 1:
            raise InvalidReplicaAssignment(f"{beginning} the broker {broker_id} more than once.")
    if tuple(replicas) != tuple(image.partitions[wanted.partition_index].replicas):
        raise InvalidReplicaAssignment("replicas do not move between brokers yet")
