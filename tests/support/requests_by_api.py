"""Requests of every API that can be refused, as plain data, for any version.

`requests(api, version, ids)` gives them by a label. They are about the topic `t` and the topics that it names besides,
the group `g` and the transactional id `x`; where a version names topics by id, `ids` has the id of each.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from klamm.protocol.apis import API, ApiKey, request_class
from klamm.protocol.fields import specs
from klamm.protocol.records.batch import Record, encode_batch

UNKNOWN_ID: Final = bytes(15) + b"\x77"
NOW_MS: Final = 1_700_000_000_000
T, NOPE = "t", "nope"


def _batch(**options: Any) -> bytes:
    return bytes(encode_batch([Record(0, NOW_MS, b"k", b"v", ())], **options))


def _message_set() -> bytes:
    """One message of format 0, which old versions of Produce carry."""
    import zlib

    body = struct.pack(">bbi", 0, 0, -1) + struct.pack(">i", 1) + b"v"
    return struct.pack(">qi", 0, len(body) + 4) + struct.pack(">I", zlib.crc32(body)) + body


def _topics(*names: str, field: str = "name", **more: Any) -> list[dict[str, Any]]:
    return [{field: name, "topic_id": name, **more} for name in names]


def _records(version: int, **options: Any) -> bytes:
    return _batch(**options) if version >= 3 else _message_set()


def _produce(version: int) -> dict[str, Any]:
    def data(records: bytes, *names: str, **more: Any) -> dict[str, Any]:
        partitions = [{"index": 0, "records": records}]
        return {"acks": -1, "timeout_ms": 1000, "topic_data": _topics(*names, partition_data=partitions), **more}

    found = {"": data(_records(version), T), "two": data(_records(version), T, NOPE)}
    if version >= 3:
        transactional = _batch(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        found["transactional"] = data(transactional, T, transactional_id="x")
        found["transactional without id"] = data(transactional, T)
    return found


def _fetch(version: int) -> dict[str, Any]:
    def data(replica_id: int, *names: str) -> dict[str, Any]:
        partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]
        return {
            "replica_id": replica_id,
            "replica_state": {"replica_id": replica_id},
            "max_wait_ms": 0,
            "topics": _topics(*names, field="topic", partitions=partitions),
        }

    return {"": data(-1, T), "two": data(-1, T, NOPE), "debug": data(-2, T), "replica": data(1, T)}


def _list_offsets(version: int) -> dict[str, Any]:
    topics = _topics(T, NOPE, partitions=[{"partition_index": 0, "timestamp": -1}])
    return {
        "": {"replica_id": -1, "topics": topics, "timeout_ms": 1000},
        "debug": {"replica_id": -2, "topics": topics, "timeout_ms": 1000},
    }


def _metadata(version: int) -> dict[str, Any]:
    bits = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": version <= 10}
    bits = bits if version >= 8 else {}
    asked = [T, NOPE] if version >= 4 else [T]  # older versions create what they ask for
    found: dict[str, Any] = {
        "": {"topics": [{"name": name} for name in asked], "allow_auto_topic_creation": False, **bits},
        "all": {"topics": None if version else [], "allow_auto_topic_creation": False, **bits},
        "creates": {"topics": [{"name": f"made-{version}"}], "allow_auto_topic_creation": True},
    }
    if version >= 12:
        ids = [{"topic_id": T, "name": None}, {"topic_id": UNKNOWN_ID, "name": None}]
        found["by id"] = {"topics": ids, "allow_auto_topic_creation": False, **bits}
    return found


def _offset_commit(version: int) -> dict[str, Any]:
    topics = _topics(T, NOPE, partitions=[{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}])
    return {"": {"group_id": "g", "member_id": "", "topics": topics}}


def _offset_fetch(version: int) -> dict[str, Any]:
    named = _topics(T, NOPE, partition_indexes=[0])
    if version >= 8:
        groups = [{"group_id": "g", "topics": named}, {"group_id": "h", "topics": named}]
        return {"": {"groups": groups}, "all": {"groups": [{"group_id": "g", "topics": None}]}}
    found: dict[str, Any] = {"": {"group_id": "g", "topics": named}}
    if version >= 2:
        found["all"] = {"group_id": "g", "topics": None}
    return found


def _find_coordinator(version: int) -> dict[str, Any]:
    kinds = {"group": (0, "g"), "transaction": (1, "x")} if version else {"group": (0, "g")}
    if version >= 6:
        kinds["share"] = (2, "g:AAAAAAAAAAAAAAAAAAAAAQ:0")
    return {label: {"key": key, "key_type": kind, "coordinator_keys": [key]} for label, (kind, key) in kinds.items()}


def _create_topics(version: int) -> dict[str, Any]:
    topic = {"name": f"new-{version}", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    return {"": {"topics": [topic], "timeout_ms": 5000}}


def _delete_topics(version: int) -> dict[str, Any]:
    if version < 6:
        return {"": {"topic_names": ["victim", NOPE], "timeout_ms": 5000}}
    return {
        "": {"topics": [{"name": name, "topic_id": bytes(16)} for name in ("victim", NOPE)], "timeout_ms": 5000},
        "by id": {
            "topics": [{"name": None, "topic_id": topic_id} for topic_id in ("victim", UNKNOWN_ID)],
            "timeout_ms": 5000,
        },
    }


def _init_producer_id(version: int) -> dict[str, Any]:
    return {
        "": {"transactional_id": None, "transaction_timeout_ms": 1000},
        "transactional": {"transactional_id": "x", "transaction_timeout_ms": 60000},
    }


def _add_partitions(version: int) -> dict[str, Any]:
    topics, identity = _topics(T, NOPE, partitions=[0]), {"producer_id": 1, "producer_epoch": 0}
    return {
        "": {
            "transactions": [{"transactional_id": "x", **identity, "topics": topics}],
            "v3_and_below_transactional_id": "x",
            "v3_and_below_producer_id": 1,
            "v3_and_below_topics": topics,
        }
    }


def _describe_configs(version: int) -> dict[str, Any]:
    resources = [(2, T), (2, NOPE), (32, "g"), (4, "1"), (8, "1")]
    return {
        "": {"resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": None}
                           for kind, name in resources]}
    }  # fmt: skip


def _alter_configs(incremental: bool) -> dict[str, Any]:
    key = {"name": "retention.ms", "value": "86400000", "config_operation": 0}
    group = {"name": "consumer.session.timeout.ms", "value": "50000", "config_operation": 0}
    broker = {"name": "log.cleaner.threads", "value": "1", "config_operation": 0}
    level = {"name": "kafka.none", "value": "INFO", "config_operation": 0}
    resources = [(2, T, key), (2, NOPE, key), (32, "g", group), (4, "", broker)]
    resources += [] if incremental else [(8, "1", level)]
    return {
        "": {
            "validate_only": True,
            "resources": [
                {"resource_type": kind, "resource_name": name, "configs": [config]} for kind, name, config in resources
            ],
        }
    }


def _consumer_heartbeat(version: int) -> dict[str, Any]:
    join = {"group_id": "c", "member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 1000, "topic_partitions": []}
    return {
        "": {**join, "subscribed_topic_names": [T, NOPE]},
        "unknown group": {**join, "member_epoch": 1, "topic_partitions": None},
    }


OF_MEMBER: Final = {"group_id": "g", "generation_id": 1, "member_id": "m"}
OF_PRODUCER: Final = {"transactional_id": "x", "producer_id": 1, "producer_epoch": 0}
JOIN: Final = {
    "group_id": "g",
    "session_timeout_ms": 10000,
    "rebalance_timeout_ms": 1000,
    "member_id": "unknown",
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b""}],
}
ACL: Final = {
    "resource_type": 2, "resource_name": "other", "resource_pattern_type": 3, "principal": "User:zoe", "host": "*",
    "operation": 3, "permission_type": 3,
}  # fmt: skip
ACL_FILTER: Final = {
    "resource_type_filter": 2, "resource_name_filter": "other", "pattern_type_filter": 3, "principal_filter": None,
    "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
INDEXES: Final = [{"partition_index": 0}]

_BY_API: Final[Mapping[int, Any]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: _metadata,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: {"": JOIN},
    ApiKey.HEARTBEAT: {"": OF_MEMBER},
    ApiKey.LEAVE_GROUP: {"": {"group_id": "g", "member_id": "m", "members": [{"member_id": "m"}]}},
    ApiKey.SYNC_GROUP: {"": {**OF_MEMBER, "protocol_type": "consumer", "protocol_name": "range", "assignments": []}},
    ApiKey.DESCRIBE_GROUPS: lambda version: {"": {"groups": ["g", "h"], "include_authorized_operations": version >= 3}},
    ApiKey.LIST_GROUPS: {"": {}},
    ApiKey.SASL_HANDSHAKE: {"": {"mechanism": "PLAIN"}},
    ApiKey.SASL_AUTHENTICATE: {"": {"auth_bytes": b""}},
    ApiKey.API_VERSIONS: {"": {"client_software_name": "klamm", "client_software_version": "1"}},
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: {
        "": {"topics": _topics(T, NOPE, partitions=[{"partition_index": 0, "offset": 0}]), "timeout_ms": 1000}
    },
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {
        "": {
            "replica_id": -1,
            "topics": _topics(T, NOPE, field="topic", partitions=[{"partition": 0, "leader_epoch": 0}]),
        }
    },
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: {"": {**OF_PRODUCER, "group_id": "g"}},
    ApiKey.END_TXN: {"": {**OF_PRODUCER, "committed": True}},
    ApiKey.TXN_OFFSET_COMMIT: {
        "": {
            **OF_PRODUCER,
            "group_id": "g",
            "topics": _topics(
                T, NOPE, partitions=[{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]
            ),
        }
    },
    ApiKey.WRITE_TXN_MARKERS: {
        "": {
            "markers": [
                {
                    "producer_id": 1,
                    "producer_epoch": 0,
                    "transaction_result": False,
                    "coordinator_epoch": 0,
                    "topics": _topics(NOPE, partition_indexes=[0]),
                }
            ]
        }
    },
    ApiKey.DESCRIBE_TRANSACTIONS: {"": {"transactional_ids": ["x", "y"]}},
    ApiKey.LIST_TRANSACTIONS: {"": {}},
    ApiKey.DESCRIBE_ACLS: {"": ACL_FILTER},
    ApiKey.CREATE_ACLS: {"": {"creations": [ACL]}},
    ApiKey.DELETE_ACLS: {"": {"filters": [ACL_FILTER]}},
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: lambda _: _alter_configs(False),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda _: _alter_configs(True),
    ApiKey.ALTER_REPLICA_LOG_DIRS: {"": {"dirs": [{"path": "/none", "topics": _topics(T, partitions=[0])}]}},
    ApiKey.DESCRIBE_LOG_DIRS: {"": {"topics": _topics(T, field="topic", partitions=[0])}},
    ApiKey.CREATE_PARTITIONS: {
        "": {
            "topics": _topics(T, NOPE, count=3, assignments=None),
            "timeout_ms": 1000,
            "validate_only": True,
        }
    },
    ApiKey.DELETE_GROUPS: {"": {"groups_names": ["g", "h"]}},
    ApiKey.ELECT_LEADERS: {"": {"topic_partitions": _topics(T, NOPE, field="topic", partitions=[0])}},
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {"": {"topics": _topics(NOPE, partitions=INDEXES)}},
    ApiKey.LIST_PARTITION_REASSIGNMENTS: {"": {"topics": None}},
    ApiKey.OFFSET_DELETE: {"": {"group_id": "g", "topics": _topics(T, partitions=INDEXES)}},
    ApiKey.DESCRIBE_QUORUM: {"": {"topics": [{"topic_name": "__cluster_metadata", "partitions": INDEXES}]}},
    ApiKey.UPDATE_FEATURES: {"": {"feature_updates": [], "validate_only": True}},
    ApiKey.DESCRIBE_CLUSTER: {"": {"include_cluster_authorized_operations": True, "endpoint_type": 1}},
    ApiKey.DESCRIBE_PRODUCERS: {"": {"topics": _topics(T, NOPE, "no topic!", partition_indexes=[0])}},
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: {"": {"group_ids": ["c", "h"], "include_authorized_operations": True}},
    ApiKey.LIST_CONFIG_RESOURCES: {"": {}},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {
        "": {"topics": _topics(T, NOPE), "response_partition_limit": 100, "cursor": None},
        "all": {"topics": [], "response_partition_limit": 100, "cursor": None},
    },
    ApiKey.DESCRIBE_CLIENT_QUOTAS: {"": {"components": [], "strict": False}},
    ApiKey.ALTER_CLIENT_QUOTAS: {
        "": {
            "entries": [{"entity": [{"entity_type": "user", "entity_name": "zoe"}], "ops": []}],
            "validate_only": True,
        }
    },
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {"": {"users": [{"name": "zoe"}]}},
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {"": {"deletions": [{"name": "zoe", "mechanism": 1}], "upsertions": []}},
    ApiKey.CREATE_DELEGATION_TOKEN: {"": {"renewers": [], "max_lifetime_ms": 1000}},
    ApiKey.RENEW_DELEGATION_TOKEN: {"": {"hmac": b"h", "renew_period_ms": 1000}},
    ApiKey.EXPIRE_DELEGATION_TOKEN: {"": {"hmac": b"h", "expiry_time_period_ms": 1000}},
    ApiKey.DESCRIBE_DELEGATION_TOKEN: {"": {"owners": None}},
}


def requests(api: int, version: int, ids: Mapping[str, bytes]) -> dict[str, Any]:
    """The requests of an API in one version, by label."""
    shapes = _BY_API[api]
    found = shapes(version) if callable(shapes) else shapes
    return {label: built(request_class(api), version, data, ids) for label, data in found.items()}


def built(cls: type, version: int, data: Mapping[str, Any], ids: Mapping[str, bytes]) -> Any:
    """A message, or a part of one, with those of the fields that the version has."""
    values = {}
    for spec in specs(cls):
        if spec.name not in data or not spec.in_version(version):
            continue
        value = data[spec.name]
        if spec.name == "topic_id" and isinstance(value, str):
            value = ids.get(value, UNKNOWN_ID)
        elif spec.wire is None and isinstance(value, list):
            value = [built(spec.struct, version, item, ids) for item in value]
        elif spec.wire is None and value is not None:
            value = built(spec.struct, version, value, ids)
        values[spec.name] = value
    return cls(**values)


def name(api: int) -> str:
    return API[api].name
