"""Fetch (1): read record data from partitions, for consumers and followers.

The client's newest message format goes with the version: magic 0 up to v1, magic 1 up to v3, magic 2 from v4, zstd
from v10. v1 adds the throttle time, v3 the size limit of the whole answer, v4 the isolation level and aborted
transactions, v5 log start offsets, v7 incremental sessions (KIP-227), v9 leader epochs (KIP-320), v11 racks and the
preferred replica (KIP-392), v12 is flexible and finds divergence (KIP-595), v13 names topics by id (KIP-516), v15
moves the replica id to a tagged field (KIP-903), v16 tells addresses of new leaders (KIP-951), v17 directory ids
(KIP-853), v18 the follower's high watermark (KIP-1166).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int8, Int16, Int32, Int64, Records, String, Uuid


@struct
class ReplicaState:
    replica_id: Int32 = field("15+", default=-1)
    replica_epoch: Int64 = field("15+", default=-1)


@struct
class FetchPartition:
    partition: Int32 = field()
    current_leader_epoch: Int32 = field("9+", default=-1, ignorable=True)
    fetch_offset: Int64 = field()
    last_fetched_epoch: Int32 = field("12+", default=-1)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    partition_max_bytes: Int32 = field()
    replica_directory_id: Uuid = field("17+", tag=0, ignorable=True)
    high_watermark: Int64 = field("18+", tag=1, default=2**63 - 1, ignorable=True)


@struct
class FetchTopic:
    topic: String = field("0-12", ignorable=True)
    topic_id: Uuid = field("13+", ignorable=True)
    partitions: list[FetchPartition] = field()


@struct
class ForgottenTopic:
    topic: String = field("7-12", ignorable=True)
    topic_id: Uuid = field("13+", ignorable=True)
    partitions: list[Int32] = field("7+")


@message(key=1, kind="request", versions="0-18", flexible="12+")
class FetchRequest:
    cluster_id: String | None = field("12+", nullable="12+", tag=0, default=None, ignorable=True)
    replica_id: Int32 = field("0-14", default=-1)
    replica_state: ReplicaState = field("15+", tag=1)
    max_wait_ms: Int32 = field()
    min_bytes: Int32 = field()
    max_bytes: Int32 = field("3+", default=0x7FFFFFFF, ignorable=True)
    isolation_level: Int8 = field("4+", default=0, ignorable=True)
    session_id: Int32 = field("7+", default=0, ignorable=True)
    session_epoch: Int32 = field("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = field()
    forgotten_topics_data: list[ForgottenTopic] = field("7+")
    rack_id: String = field("11+", default="", ignorable=True)


@struct
class EpochEndOffset:
    epoch: Int32 = field("12+", default=-1)
    end_offset: Int64 = field("12+", default=-1)


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = field("12+", default=-1)
    leader_epoch: Int32 = field("12+", default=-1)


@struct
class SnapshotId:
    end_offset: Int64 = field(default=-1)
    epoch: Int32 = field(default=-1)


@struct
class AbortedTransaction:
    producer_id: Int64 = field("4+")
    first_offset: Int64 = field("4+")


@struct
class PartitionData:
    partition_index: Int32 = field()
    error_code: Int16 = field()
    high_watermark: Int64 = field()
    last_stable_offset: Int64 = field("4+", default=-1, ignorable=True)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = field("12+", tag=0)
    current_leader: LeaderIdAndEpoch = field("12+", tag=1)
    snapshot_id: SnapshotId = field("12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field("4+", nullable="4+", ignorable=True)
    preferred_read_replica: Int32 = field("11+", default=-1)
    records: Records = field(nullable="0+")


@struct
class FetchableTopicResponse:
    topic: String = field("0-12", ignorable=True)
    topic_id: Uuid = field("13+", ignorable=True)
    partitions: list[PartitionData] = field()


@struct
class NodeEndpoint:
    node_id: Int32 = field("16+")
    host: String = field("16+")
    port: Int32 = field("16+")
    rack: String | None = field("16+", nullable="16+", default=None)


@message(key=1, kind="response", versions="0-18", flexible="12+")
class FetchResponse:
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16 = field("7+", ignorable=True)
    session_id: Int32 = field("7+", default=0)
    responses: list[FetchableTopicResponse] = field()
    node_endpoints: list[NodeEndpoint] = field("16+", tag=0)
