"""AlterReplicaLogDirs (34): v0-2. Moves partitions of this broker between its log directories (KIP-113).

The response is sent when the moves have begun; DescribeLogDirs shows their progress. A path that is not one of
`log.dirs`, character for character, is LOG_DIR_NOT_FOUND; a failed directory, or an offline partition, is
KAFKA_STORAGE_ERROR. A request for the current directory of a partition ends its move. If a partition is named twice,
the last one counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker


async def handle(
    broker: Broker, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for (topic, index), path in _places(request).items():
        code = ErrorCode.NONE
        try:
            await broker.log_dir_mover.move_partition(*broker.log_dir_mover.check_move(path, topic, index))
        except KafkaError as error:
            code = error.code
        results.setdefault(topic, []).append(
            AlterReplicaLogDirPartitionResult(partition_index=index, error_code=int(code))
        )
    return _response(results)


def _places(request: AlterReplicaLogDirsRequest) -> dict[tuple[str, int], str]:
    return {
        (topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }


def _response(results: dict[str, list[AlterReplicaLogDirPartitionResult]]) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=name, partitions=parts) for name, parts in results.items()]
    )


def error_response(request: AlterReplicaLogDirsRequest, error: KafkaError, version: int) -> AlterReplicaLogDirsResponse:
    """Return the same error for every partition named."""
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for topic, index in _places(request):
        results.setdefault(topic, []).append(
            AlterReplicaLogDirPartitionResult(partition_index=index, error_code=int(error.code))
        )
    return _response(results)
