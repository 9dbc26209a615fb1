"""DescribeLogDirs (35): v0-5. The log dirs, and the size of each partition in them (KIP-113).

Null topics mean all; partitions that are not here are left out. v2 is flexible, v3 has a top-level error, v4 the size
and the free space of the volume (KIP-827), v5 whether a dir is cordoned (none is). A dir that has failed, or has an
unreachable volume, is KAFKA_STORAGE_ERROR and shows no contents. A partition that moves into a dir is shown there, too,
as a future one, with the number of records that its copy lacks.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.partitions.partition import Partition
    from klamm.storage.log_dir import LogDir

UNKNOWN = -1


async def handle(broker: Broker, context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    wanted = None if request.topics is None else {topic.topic: set(topic.partitions) for topic in request.topics}
    found: dict[LogDir, dict[str, list[DescribeLogDirsPartition]]] = {}
    for log_dir, partitions in _by_directory(broker).items():
        topics = found[log_dir] = {}
        for partition in partitions:
            if wanted is None or partition.index in wanted.get(partition.topic, ()):
                topics.setdefault(partition.topic, []).append(_described(partition))
    for future in broker.log_dir_mover.future_replicas():
        partition = future.partition
        if wanted is None or partition.index in wanted.get(partition.topic, ()):
            described = DescribeLogDirsPartition(
                partition_index=partition.index,
                partition_size=future.size_bytes,
                offset_lag=future.offset_lag,
                is_future_key=True,
            )
            found[future.log_dir].setdefault(partition.topic, []).append(described)
    volumes = await asyncio.get_running_loop().run_in_executor(None, _volumes, list(found))
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                error_code=int(ErrorCode.NONE if total != UNKNOWN else ErrorCode.KAFKA_STORAGE_ERROR),
                log_dir=str(log_dir.path),
                topics=[
                    DescribeLogDirsTopic(name=name, partitions=parts)
                    for name, parts in found[log_dir].items()
                    if total != UNKNOWN
                ],
                total_bytes=total,
                usable_bytes=usable,
            )
            for log_dir, (total, usable) in volumes.items()
        ]
    )


def _by_directory(broker: Broker) -> dict[LogDir, list[Partition]]:
    """Return the partitions of every log dir. Partitions with a lost directory, or that could not be created, are in
    none.
    """
    logs = broker.partitions.logs
    found: dict[LogDir, list[Partition]] = {log_dir: [] for log_dir in logs.log_dirs}
    for partition in broker.partitions:
        state = logs.get(partition.key)
        if state is not None and state.directory is not None:
            found[state.directory].append(partition)
    return found


def _described(partition: Partition) -> DescribeLogDirsPartition:
    log = partition.log
    return DescribeLogDirsPartition(
        partition_index=partition.index, partition_size=log.local.size_bytes if log is not None else 0
    )


def _volumes(log_dirs: list[LogDir]) -> dict[LogDir, tuple[int, int]]:
    """Return size and free bytes of each dir's volume; UNKNOWN where the dir has failed. Blocks."""
    found = {}
    for log_dir in log_dirs:
        if log_dir.offline_reason is not None:
            found[log_dir] = (UNKNOWN, UNKNOWN)
            continue
        try:
            volume = os.statvfs(log_dir.path)
            found[log_dir] = (volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize)
        except OSError:
            found[log_dir] = (UNKNOWN, UNKNOWN)
    return found
