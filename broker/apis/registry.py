"""The registry: the APIs of this broker, their versions, and the module that handles each.

The table below is the only source, with the ranges of `protocol.apis` unless a row lowers a maximum. ApiVersions is
computed from it, and the dispatcher refuses anything that is not in it, so advertised and working versions cannot
differ. A handler module is imported when its first request arrives; each has one public function::

    def handle(broker: Broker, context: RequestContext, request: XRequest) -> XResponse | None | Awaitable[...]

and may have ``error_response(request, error, version)`` for a response without a top-level error code, and ``async
handle_large(broker, context, request)`` for requests of very many elements, if `pieces` cannot cut them.
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm.broker.apis.rights.table import RIGHTS, Row
from klamm.protocol.apis import API, ApiKey


@dataclass(frozen=True, slots=True)
class Handler:
    """One row: the API, the served versions, its module under ``klamm.broker.apis``, and the rights it needs."""

    key: ApiKey
    min_version: int
    max_version: int
    module: str
    rights: Row


def _row(key: ApiKey, max_version: int | None = None) -> Handler:
    """Return a row with every version ever published, or up to ``max_version`` where the newest is still unstable. An
    API without a row in the table of rights cannot be registered."""
    info = API[key]
    if max_version is None:
        max_version = info.max_version
    return Handler(key, info.min_version, max_version, info.module, RIGHTS[key])


HANDLERS: dict[int, Handler] = {
    row.key: row
    for row in (
        _row(ApiKey.PRODUCE),
        _row(ApiKey.FETCH),
        _row(ApiKey.LIST_OFFSETS),
        _row(ApiKey.METADATA),
        _row(ApiKey.OFFSET_COMMIT),
        _row(ApiKey.OFFSET_FETCH),
        _row(ApiKey.FIND_COORDINATOR),
        _row(ApiKey.JOIN_GROUP),
        _row(ApiKey.HEARTBEAT),
        _row(ApiKey.LEAVE_GROUP),
        _row(ApiKey.SYNC_GROUP),
        _row(ApiKey.DESCRIBE_GROUPS),
        _row(ApiKey.LIST_GROUPS),
        _row(ApiKey.SASL_HANDSHAKE),
        _row(ApiKey.API_VERSIONS),
        _row(ApiKey.CREATE_TOPICS),
        _row(ApiKey.DELETE_TOPICS),
        _row(ApiKey.DELETE_RECORDS),
        _row(ApiKey.INIT_PRODUCER_ID, max_version=5),  # 6 is declared unstable by Kafka 4.4
        _row(ApiKey.OFFSET_FOR_LEADER_EPOCH),
        _row(ApiKey.ADD_PARTITIONS_TO_TXN),
        _row(ApiKey.ADD_OFFSETS_TO_TXN),
        _row(ApiKey.END_TXN),
        _row(ApiKey.TXN_OFFSET_COMMIT),
        _row(ApiKey.DESCRIBE_TRANSACTIONS),
        _row(ApiKey.LIST_TRANSACTIONS),
        _row(ApiKey.WRITE_TXN_MARKERS),
        _row(ApiKey.DESCRIBE_ACLS),
        _row(ApiKey.CREATE_ACLS),
        _row(ApiKey.DELETE_ACLS),
        _row(ApiKey.DESCRIBE_CONFIGS),
        _row(ApiKey.ALTER_CONFIGS),
        _row(ApiKey.ALTER_REPLICA_LOG_DIRS),
        _row(ApiKey.DESCRIBE_LOG_DIRS),
        _row(ApiKey.SASL_AUTHENTICATE),
        _row(ApiKey.CREATE_PARTITIONS),
        _row(ApiKey.DELETE_GROUPS),
        _row(ApiKey.ELECT_LEADERS),
        _row(ApiKey.INCREMENTAL_ALTER_CONFIGS),
        _row(ApiKey.ALTER_PARTITION_REASSIGNMENTS),
        _row(ApiKey.LIST_PARTITION_REASSIGNMENTS),
        _row(ApiKey.OFFSET_DELETE),
        _row(ApiKey.CREATE_DELEGATION_TOKEN),
        _row(ApiKey.RENEW_DELEGATION_TOKEN),
        _row(ApiKey.EXPIRE_DELEGATION_TOKEN),
        _row(ApiKey.DESCRIBE_DELEGATION_TOKEN),
        _row(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS),
        _row(ApiKey.ALTER_USER_SCRAM_CREDENTIALS),
        _row(ApiKey.DESCRIBE_CLIENT_QUOTAS),
        _row(ApiKey.ALTER_CLIENT_QUOTAS),
        _row(ApiKey.DESCRIBE_QUORUM),
        _row(ApiKey.UPDATE_FEATURES),
        _row(ApiKey.DESCRIBE_CLUSTER),
        _row(ApiKey.DESCRIBE_PRODUCERS),
        _row(ApiKey.CONSUMER_GROUP_HEARTBEAT),
        _row(ApiKey.CONSUMER_GROUP_DESCRIBE),
        _row(ApiKey.LIST_CONFIG_RESOURCES),
        _row(ApiKey.DESCRIBE_TOPIC_PARTITIONS),
    )
}
