"""The paths of the nodes, as Apache Kafka named them in ZooKeeper, and the values that are JSON.

This module makes and parses every path; a look with ``sqlite3`` or ``zkCli`` finds the paths of Kafka's documents.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from urllib.parse import quote

from klamm.broker.metadata.store import StoreCorrupt
from klamm.protocol.wire import uuid_to_text

BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
CLIENT_QUOTAS = "/quotas"
DELETE_TOPICS = "/admin/delete_topics"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
FEATURES = "/feature"
SCRAM = "/security/scram"
TOKENS = "/security/delegation_tokens"
SECRET = "/security/secret"
"""Random bytes that only this cluster knows."""
ACLS = "/acls"

DEFAULT_ENTITY = "<default>"  # the node of the cluster-wide broker config; "" on the wire and in the image

SKELETON = (BROKER_IDS, TOPICS, TOPIC_CONFIGS, BROKER_CONFIGS, GROUP_CONFIGS, DELETE_TOPICS)


def broker_id(node_id: int) -> str:
    """``/brokers/ids/1``: ephemeral, the endpoints of a live broker."""
    return f"{BROKER_IDS}/{node_id}"


def topic(name: str) -> str:
    """``/brokers/topics/t``: the topic's id and the replicas of its partitions."""
    return f"{TOPICS}/{name}"


def partition(name: str, index: int) -> str:
    """``/brokers/topics/t/partitions/0``: an empty node above the state."""
    return f"{TOPICS}/{name}/partitions/{index}"


def partition_state(name: str, index: int) -> str:
    """``/brokers/topics/t/partitions/0/state``: leader, leader epoch, isr."""
    return f"{TOPICS}/{name}/partitions/{index}/state"


def directories(name: str, node_id: int) -> str:
    """``/brokers/topics/t/directories/1``: the log directory of each partition on a broker. Klamm's own."""
    return f"{TOPICS}/{name}/directories/{node_id}"


def topic_config(name: str) -> str:
    """``/config/topics/t``: the topic's overrides."""
    return f"{TOPIC_CONFIGS}/{name}"


def broker_config(name: str) -> str:
    """``/config/brokers/1``, or ``/config/brokers/<default>`` for ""."""
    return f"{BROKER_CONFIGS}/{name or DEFAULT_ENTITY}"


def group_config(name: str) -> str:
    """``/config/groups/g``: the group's overrides. The group id is percent-encoded."""
    return f"{GROUP_CONFIGS}/{quote(name, safe='')}"


def scram(user: str, mechanism: int) -> str:
    """``/security/scram/u:1``: the credential of a user for a mechanism. The name is percent-encoded. Klamm's own."""
    return f"{SCRAM}/{quote(user, safe='')}:{mechanism}"


def client_quota_entity(entity: Iterable[tuple[str, str | None]]) -> str:
    """``/quotas/client-id,user=alice``: above the quotas of an entity. Names are percent-encoded; a part without one
    is the default of its type."""
    parts = (kind if name is None else f"{kind}={quote(name, safe='')}" for kind, name in entity)
    return f"{CLIENT_QUOTAS}/{','.join(parts)}"


def client_quota(entity: Iterable[tuple[str, str | None]], key: str) -> str:
    """``/quotas/client-id,user=alice/producer_byte_rate``: one quota, as the bytes of Kafka's ClientQuotaRecord."""
    return f"{client_quota_entity(entity)}/{key}"


def token(token_id: str) -> str:
    """``/security/delegation_tokens/ID``: a delegation token, without its HMAC. Ours."""
    return f"{TOKENS}/{quote(token_id, safe='')}"


def delete_topic(name: str) -> str:
    """``/admin/delete_topics/t``: the deletion was requested and is not finished."""
    return f"{DELETE_TOPICS}/{name}"


def acl(acl_id: bytes) -> str:
    """``/acls/<id>``: an ACL, as the bytes of Kafka's metadata record. Klamm's own, not that of the ZooKeeper era."""
    return f"{ACLS}/{uuid_to_text(acl_id)}"


def to_json(value: dict[str, object]) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def from_json(path: str, value: bytes) -> dict[str, object]:
    """Decode the JSON object at a path. Raises StoreCorrupt."""
    try:
        decoded = json.loads(value)
    except ValueError as error:
        raise StoreCorrupt(f"metadata node {path} is not JSON: {error}") from None
    if type(decoded) is not dict:
        raise StoreCorrupt(f"metadata node {path} is not a JSON object")
    return decoded
