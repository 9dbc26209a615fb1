"""AlterReplicaLogDirs (34): move replicas of one broker between its log directories (KIP-113).

From v1 the answer leaves before a throttled connection is muted (KIP-219). v2 is flexible. Apache Kafka 4.0
removed v0.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int16, Int32, String


@struct
class AlterReplicaLogDirTopic:
    name: String = field()
    partitions: list[Int32] = field()


@struct
class AlterReplicaLogDir:
    path: String = field()
    topics: list[AlterReplicaLogDirTopic] = field()


@message(key=34, kind="request", versions="0-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir] = field()


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: Int32 = field()
    error_code: Int16 = field()


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: String = field()
    partitions: list[AlterReplicaLogDirPartitionResult] = field()


@message(key=34, kind="response", versions="0-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    throttle_time_ms: Int32 = field()
    results: list[AlterReplicaLogDirTopicResult] = field()
