"""DescribeLogDirs (35): the log directories of one broker and the replicas in them (KIP-113).

Null `topics` asks for all. From v1 the answer leaves before a throttled connection is muted (KIP-219). v2 is
flexible, v3 has a top-level error, v4 tells the volume's size and free space (KIP-827), v5 whether the directory is
cordoned. Apache Kafka 4.0 removed v0.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Int16, Int32, Int64, String


@struct
class DescribableLogDirTopic:
    topic: String = field()
    partitions: list[Int32] = field()


@message(key=35, kind="request", versions="0-5", flexible="2+")
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None = field(nullable="0+")


@struct
class DescribeLogDirsPartition:
    partition_index: Int32 = field()
    partition_size: Int64 = field()
    offset_lag: Int64 = field()
    is_future_key: Bool = field()


@struct
class DescribeLogDirsTopic:
    name: String = field()
    partitions: list[DescribeLogDirsPartition] = field()


@struct
class DescribeLogDirsResult:
    error_code: Int16 = field()
    log_dir: String = field()
    topics: list[DescribeLogDirsTopic] = field()
    total_bytes: Int64 = field("4+", default=-1, ignorable=True)
    usable_bytes: Int64 = field("4+", default=-1, ignorable=True)
    is_cordoned: Bool = field("5+", default=False, ignorable=True)


@message(key=35, kind="response", versions="0-5", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field("3+", ignorable=True)
    results: list[DescribeLogDirsResult] = field()
