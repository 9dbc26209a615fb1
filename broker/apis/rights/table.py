"""The table of rights: the questions for each API, in this order, and how a refusal looks.

A row is a list of checks. `whole`: without the right the whole request gets the API's error response. `each`: elements
of a list are refused one by one, the others are handled. `silent`: hidden elements are left out of the response.
`special` takes more than one question: it names a function in this folder, and lists the rights that it asks for.

A handler without a row here cannot be registered. With no authorizer nothing here is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from klamm.broker.security.authorizer.codes import Operation, ResourceType
from klamm.protocol.apis import ApiKey

READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
IDEMPOTENT_WRITE, TWO_PHASE_COMMIT = Operation.IDEMPOTENT_WRITE, Operation.TWO_PHASE_COMMIT
CREATE_TOKENS, DESCRIBE_TOKENS = Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
TOKEN, USER = ResourceType.DELEGATION_TOKEN, ResourceType.USER


class Right(NamedTuple):
    """An operation on a resource of this type."""

    operation: Operation
    resource: ResourceType


class Whole(NamedTuple):
    """The right to the one resource that the field `name` of the request names; the cluster needs none."""

    right: Right
    name: str = ""


class Each(NamedTuple):
    """The right to what each element of a list of the request names; `answers` is the list of the response. Elements
    are names, or have one in the field `name`; where that is empty, the topic of their `topic_id` is meant."""

    right: Right
    elements: str
    answers: str
    name: str = "name"


class Silent(NamedTuple):
    """The right to see an element of a list of the response."""

    right: Right
    answers: str
    name: str


class Special(NamedTuple):
    """A function of its own, as `module.function` in this folder, and the rights that it asks for."""

    function: str
    rights: tuple[Right, ...]


Check = Whole | Each | Silent | Special
Row = tuple[Check, ...]


def _whole(operation: Operation, resource: ResourceType, name: str = "") -> Whole:
    assert (resource is CLUSTER) == (not name)
    return Whole(Right(operation, resource), name)


def _each(operation: Operation, resource: ResourceType, elements: str, answers: str, name: str = "name") -> Each:
    return Each(Right(operation, resource), elements, answers, name)


def _silent(operation: Operation, resource: ResourceType, answers: str, name: str) -> Silent:
    return Silent(Right(operation, resource), answers, name)


def _special(function: str, *rights: tuple[Operation, ResourceType]) -> Special:
    return Special(function, tuple(Right(*right) for right in rights))


OPEN: Row = ()
"""Never refused."""

OF_GROUP = _whole(READ, GROUP, "group_id")
OF_TRANSACTION = _whole(WRITE, TRANSACTIONAL_ID, "transactional_id")
ALTERS_CLUSTER: Row = (_whole(ALTER, CLUSTER),)
DESCRIBES_CLUSTER: Row = (_whole(DESCRIBE, CLUSTER),)

RIGHTS: Mapping[int, Row] = {
    ApiKey.PRODUCE: (_special("records.produce", (WRITE, TRANSACTIONAL_ID), (WRITE, TOPIC)),),
    ApiKey.FETCH: (_special("records.fetch", (CLUSTER_ACTION, CLUSTER), (READ, TOPIC)),),
    ApiKey.LIST_OFFSETS: (
        _special("records.only_brokers_see_all", (CLUSTER_ACTION, CLUSTER)),
        _each(DESCRIBE, TOPIC, "topics", "topics"),
    ),
    ApiKey.METADATA: (_special("topics.metadata", (DESCRIBE, TOPIC), (CREATE, CLUSTER), (CREATE, TOPIC)),),
    ApiKey.OFFSET_COMMIT: (OF_GROUP, _each(READ, TOPIC, "topics", "topics")),
    ApiKey.OFFSET_FETCH: (_special("groups.offset_fetch", (DESCRIBE, GROUP), (DESCRIBE, TOPIC)),),
    ApiKey.FIND_COORDINATOR: (
        _special("groups.find_coordinator", (DESCRIBE, GROUP), (DESCRIBE, TRANSACTIONAL_ID), (CLUSTER_ACTION, CLUSTER)),
    ),
    ApiKey.JOIN_GROUP: (OF_GROUP,),
    ApiKey.HEARTBEAT: (OF_GROUP,),
    ApiKey.LEAVE_GROUP: (OF_GROUP,),
    ApiKey.SYNC_GROUP: (OF_GROUP,),
    ApiKey.DESCRIBE_GROUPS: (_each(DESCRIBE, GROUP, "groups", "groups"),),
    ApiKey.LIST_GROUPS: (_special("groups.list_groups", (DESCRIBE, CLUSTER), (DESCRIBE, GROUP)),),
    ApiKey.SASL_HANDSHAKE: OPEN,
    ApiKey.SASL_AUTHENTICATE: OPEN,
    ApiKey.API_VERSIONS: OPEN,
    ApiKey.CREATE_TOPICS: (
        _special("topics.create_topics", (CREATE, CLUSTER), (CREATE, TOPIC), (DESCRIBE_CONFIGS, TOPIC)),
    ),
    ApiKey.DELETE_TOPICS: (_special("topics.delete_topics", (DELETE, CLUSTER), (DESCRIBE, TOPIC), (DELETE, TOPIC)),),
    ApiKey.DELETE_RECORDS: (_each(DELETE, TOPIC, "topics", "topics"),),
    ApiKey.INIT_PRODUCER_ID: (
        _special(
            "transactions.init_producer_id",
            (WRITE, TRANSACTIONAL_ID),
            (TWO_PHASE_COMMIT, TRANSACTIONAL_ID),
            (IDEMPOTENT_WRITE, CLUSTER),
            (WRITE, TOPIC),
        ),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        _special("records.offset_for_leader_epoch", (CLUSTER_ACTION, CLUSTER), (DESCRIBE, TOPIC)),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        _special("transactions.add_partitions", (WRITE, TRANSACTIONAL_ID), (WRITE, TOPIC), (CLUSTER_ACTION, CLUSTER)),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (OF_TRANSACTION, OF_GROUP),
    ApiKey.END_TXN: (OF_TRANSACTION,),
    ApiKey.WRITE_TXN_MARKERS: (_special("transactions.write_markers", (ALTER, CLUSTER), (CLUSTER_ACTION, CLUSTER)),),
    ApiKey.TXN_OFFSET_COMMIT: (OF_TRANSACTION, OF_GROUP, _each(READ, TOPIC, "topics", "topics")),
    ApiKey.DESCRIBE_ACLS: DESCRIBES_CLUSTER,
    ApiKey.CREATE_ACLS: ALTERS_CLUSTER,
    ApiKey.DELETE_ACLS: ALTERS_CLUSTER,
    ApiKey.DESCRIBE_CONFIGS: (
        _special("configs.describe", (DESCRIBE_CONFIGS, TOPIC), (DESCRIBE_CONFIGS, GROUP), (DESCRIBE_CONFIGS, CLUSTER)),
    ),
    ApiKey.ALTER_CONFIGS: (
        _special("configs.alter", (ALTER_CONFIGS, TOPIC), (ALTER_CONFIGS, GROUP), (ALTER_CONFIGS, CLUSTER)),
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        _special("configs.alter", (ALTER_CONFIGS, TOPIC), (ALTER_CONFIGS, GROUP), (ALTER_CONFIGS, CLUSTER)),
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ALTERS_CLUSTER,
    ApiKey.DESCRIBE_LOG_DIRS: DESCRIBES_CLUSTER,
    ApiKey.CREATE_PARTITIONS: (_each(ALTER, TOPIC, "topics", "results"),),
    ApiKey.CREATE_DELEGATION_TOKEN: (_special("tokens.create", (CREATE_TOKENS, USER)),),
    ApiKey.RENEW_DELEGATION_TOKEN: OPEN,  # for whoever owns or may renew the token: the handler looks
    ApiKey.EXPIRE_DELEGATION_TOKEN: OPEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (_special("tokens.describe", (DESCRIBE, TOKEN), (DESCRIBE_TOKENS, USER)),),
    ApiKey.DELETE_GROUPS: (_each(DELETE, GROUP, "groups_names", "results"),),
    ApiKey.ELECT_LEADERS: ALTERS_CLUSTER,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ALTERS_CLUSTER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: DESCRIBES_CLUSTER,
    ApiKey.OFFSET_DELETE: (
        _whole(DELETE, GROUP, "group_id"),
        _special("groups.offset_delete", (READ, TOPIC)),
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (_whole(DESCRIBE_CONFIGS, CLUSTER),),
    ApiKey.ALTER_CLIENT_QUOTAS: (_whole(ALTER_CONFIGS, CLUSTER),),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: DESCRIBES_CLUSTER,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ALTERS_CLUSTER,
    ApiKey.DESCRIBE_QUORUM: DESCRIBES_CLUSTER,
    ApiKey.UPDATE_FEATURES: ALTERS_CLUSTER,
    ApiKey.DESCRIBE_CLUSTER: OPEN,  # its bits need DESCRIBE on the cluster (`common.cluster_operations`)
    ApiKey.DESCRIBE_PRODUCERS: (_special("records.describe_producers", (READ, TOPIC)),),
    ApiKey.UNREGISTER_BROKER: ALTERS_CLUSTER,
    ApiKey.DESCRIBE_TRANSACTIONS: (
        _each(DESCRIBE, TRANSACTIONAL_ID, "transactional_ids", "transaction_states"),
        _special("transactions.hide_topics", (DESCRIBE, TOPIC)),
    ),
    ApiKey.LIST_TRANSACTIONS: (_silent(DESCRIBE, TRANSACTIONAL_ID, "transaction_states", "transactional_id"),),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (_special("groups.consumer_heartbeat", (READ, GROUP), (DESCRIBE, TOPIC)),),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (_special("groups.consumer_describe", (DESCRIBE, GROUP), (DESCRIBE, TOPIC)),),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: OPEN,
    ApiKey.PUSH_TELEMETRY: OPEN,
    ApiKey.LIST_CONFIG_RESOURCES: (_whole(DESCRIBE_CONFIGS, CLUSTER),),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (_special("topics.describe_topic_partitions", (DESCRIBE, TOPIC)),),
}
