"""The APIs of a Kafka 4.4 broker: key, name, module of the messages, and all versions ever published.

Message modules are imported on first use: there are many, and a broker needs few at the start. The registry of handlers
decides which versions clients see; by default it takes these ranges.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from enum import IntEnum
from functools import cache

from klamm.protocol.schema import Message


class ApiKey(IntEnum):
    """The keys of the broker's APIs, under Kafka's names."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
    UNREGISTER_CONTROLLER = 94


@dataclass(frozen=True, slots=True)
class ApiInfo:
    """`first_flexible_version` is None where no version is flexible."""

    key: int
    name: str
    module: str
    min_version: int
    max_version: int
    first_flexible_version: int | None
    latest_version_unstable: bool = False


# fmt: off
API: dict[int, ApiInfo] = {
    info.key: info
    for info in (
        ApiInfo(0, "Produce", "produce", 0, 13, 9),
        ApiInfo(1, "Fetch", "fetch", 0, 18, 12),
        ApiInfo(2, "ListOffsets", "list_offsets", 0, 11, 6),
        ApiInfo(3, "Metadata", "metadata", 0, 13, 9),
        ApiInfo(8, "OffsetCommit", "offset_commit", 0, 10, 8),
        ApiInfo(9, "OffsetFetch", "offset_fetch", 0, 10, 6),
        ApiInfo(10, "FindCoordinator", "find_coordinator", 0, 6, 3),
        ApiInfo(11, "JoinGroup", "join_group", 0, 9, 6),
        ApiInfo(12, "Heartbeat", "heartbeat", 0, 4, 4),
        ApiInfo(13, "LeaveGroup", "leave_group", 0, 5, 4),
        ApiInfo(14, "SyncGroup", "sync_group", 0, 5, 4),
        ApiInfo(15, "DescribeGroups", "describe_groups", 0, 6, 5),
        ApiInfo(16, "ListGroups", "list_groups", 0, 5, 3),
        ApiInfo(17, "SaslHandshake", "sasl_handshake", 0, 1, None),
        ApiInfo(18, "ApiVersions", "api_versions", 0, 5, 3),
        ApiInfo(19, "CreateTopics", "create_topics", 0, 7, 5),
        ApiInfo(20, "DeleteTopics", "delete_topics", 0, 6, 4),
        ApiInfo(21, "DeleteRecords", "delete_records", 0, 2, 2),
        ApiInfo(22, "InitProducerId", "init_producer_id", 0, 6, 2, latest_version_unstable=True),
        ApiInfo(23, "OffsetForLeaderEpoch", "offset_for_leader_epoch", 0, 4, 4),
        ApiInfo(24, "AddPartitionsToTxn", "add_partitions_to_txn", 0, 5, 3),
        ApiInfo(25, "AddOffsetsToTxn", "add_offsets_to_txn", 0, 4, 3),
        ApiInfo(26, "EndTxn", "end_txn", 0, 5, 3),
        ApiInfo(27, "WriteTxnMarkers", "write_txn_markers", 0, 2, 1),
        ApiInfo(28, "TxnOffsetCommit", "txn_offset_commit", 0, 6, 3),
        ApiInfo(29, "DescribeAcls", "describe_acls", 0, 3, 2),
        ApiInfo(30, "CreateAcls", "create_acls", 0, 3, 2),
        ApiInfo(31, "DeleteAcls", "delete_acls", 0, 3, 2),
        ApiInfo(32, "DescribeConfigs", "describe_configs", 0, 4, 4),
        ApiInfo(33, "AlterConfigs", "alter_configs", 0, 2, 2),
        ApiInfo(34, "AlterReplicaLogDirs", "alter_replica_log_dirs", 0, 2, 2),
        ApiInfo(35, "DescribeLogDirs", "describe_log_dirs", 0, 5, 2),
        ApiInfo(36, "SaslAuthenticate", "sasl_authenticate", 0, 2, 2),
        ApiInfo(37, "CreatePartitions", "create_partitions", 0, 3, 2),
        ApiInfo(38, "CreateDelegationToken", "create_delegation_token", 0, 3, 2),
        ApiInfo(39, "RenewDelegationToken", "renew_delegation_token", 0, 2, 2),
        ApiInfo(40, "ExpireDelegationToken", "expire_delegation_token", 0, 2, 2),
        ApiInfo(41, "DescribeDelegationToken", "describe_delegation_token", 0, 3, 2),
        ApiInfo(42, "DeleteGroups", "delete_groups", 0, 3, 2),
        ApiInfo(43, "ElectLeaders", "elect_leaders", 0, 2, 2),
        ApiInfo(44, "IncrementalAlterConfigs", "incremental_alter_configs", 0, 1, 1),
        ApiInfo(45, "AlterPartitionReassignments", "alter_partition_reassignments", 0, 1, 0),
        ApiInfo(46, "ListPartitionReassignments", "list_partition_reassignments", 0, 0, 0),
        ApiInfo(47, "OffsetDelete", "offset_delete", 0, 0, None),
        ApiInfo(48, "DescribeClientQuotas", "describe_client_quotas", 0, 1, 1),
        ApiInfo(49, "AlterClientQuotas", "alter_client_quotas", 0, 1, 1),
        ApiInfo(50, "DescribeUserScramCredentials", "describe_user_scram_credentials", 0, 0, 0),
        ApiInfo(51, "AlterUserScramCredentials", "alter_user_scram_credentials", 0, 0, 0),
        ApiInfo(55, "DescribeQuorum", "describe_quorum", 0, 2, 0),
        ApiInfo(57, "UpdateFeatures", "update_features", 0, 2, 0),
        ApiInfo(60, "DescribeCluster", "describe_cluster", 0, 2, 0),
        ApiInfo(61, "DescribeProducers", "describe_producers", 0, 0, 0),
        ApiInfo(64, "UnregisterBroker", "unregister_broker", 0, 0, 0),
        ApiInfo(65, "DescribeTransactions", "describe_transactions", 0, 0, 0),
        ApiInfo(66, "ListTransactions", "list_transactions", 0, 2, 0),
        ApiInfo(68, "ConsumerGroupHeartbeat", "consumer_group_heartbeat", 0, 1, 0),
        ApiInfo(69, "ConsumerGroupDescribe", "consumer_group_describe", 0, 1, 0),
        ApiInfo(71, "GetTelemetrySubscriptions", "get_telemetry_subscriptions", 0, 0, 0),
        ApiInfo(72, "PushTelemetry", "push_telemetry", 0, 0, 0),
        ApiInfo(74, "ListConfigResources", "list_config_resources", 0, 1, 0),
        ApiInfo(75, "DescribeTopicPartitions", "describe_topic_partitions", 0, 0, 0),
        ApiInfo(76, "ShareGroupHeartbeat", "share_group_heartbeat", 1, 1, 0),
        ApiInfo(77, "ShareGroupDescribe", "share_group_describe", 1, 1, 0),
        ApiInfo(78, "ShareFetch", "share_fetch", 1, 2, 0),
        ApiInfo(79, "ShareAcknowledge", "share_acknowledge", 1, 2, 0),
        ApiInfo(80, "AddRaftVoter", "add_raft_voter", 0, 1, 0),
        ApiInfo(81, "RemoveRaftVoter", "remove_raft_voter", 0, 0, 0),
        ApiInfo(83, "InitializeShareGroupState", "initialize_share_group_state", 0, 0, 0),
        ApiInfo(84, "ReadShareGroupState", "read_share_group_state", 0, 0, 0),
        ApiInfo(85, "WriteShareGroupState", "write_share_group_state", 0, 1, 0),
        ApiInfo(86, "DeleteShareGroupState", "delete_share_group_state", 0, 0, 0),
        ApiInfo(87, "ReadShareGroupStateSummary", "read_share_group_state_summary", 0, 1, 0),
        ApiInfo(88, "StreamsGroupHeartbeat", "streams_group_heartbeat", 0, 1, 0),
        ApiInfo(89, "StreamsGroupDescribe", "streams_group_describe", 0, 1, 0),
        ApiInfo(90, "DescribeShareGroupOffsets", "describe_share_group_offsets", 0, 1, 0),
        ApiInfo(91, "AlterShareGroupOffsets", "alter_share_group_offsets", 0, 0, 0),
        ApiInfo(92, "DeleteShareGroupOffsets", "delete_share_group_offsets", 0, 0, 0),
        ApiInfo(93, "StreamsGroupTopologyDescriptionUpdate", "streams_group_topology_description_update", 0, 0, 0),
        ApiInfo(94, "UnregisterController", "unregister_controller", 0, 0, 0),
    )
}
# fmt: on


@cache
def request_class(key: int) -> type[Message]:
    """Return the request's class. Raises KeyError for an API that does not exist."""
    return _message_class(key, "Request")


@cache
def response_class(key: int) -> type[Message]:
    """Return the response's class. Raises KeyError for an API that does not exist."""
    return _message_class(key, "Response")


def _message_class(key: int, suffix: str) -> type[Message]:
    info = API[key]
    module = importlib.import_module(f"klamm.protocol.messages.{info.module}")
    cls: type[Message] = getattr(module, info.name + suffix)
    assert cls.api_key == key
    assert cls.versions == (info.min_version, info.max_version), f"{cls.__name__} has versions {cls.versions}"
    return cls
