"""The state that the records of Apache Kafka's cluster metadata describe: topics, partitions, configs, quotas,
features, producer ids.

Records are applied in the order of the log. Those between the brackets of a metadata transaction count when it ends.
What a Klamm broker cannot take over is counted, so that it can be said.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from klamm.broker.metadata.acl_nodes import acl_of
from klamm.broker.security.authorizer.acls import Acl
from klamm.protocol.cluster_metadata import access, cluster, topics
from klamm.protocol.schema import Message

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
SAME_LEADER = -2  # in a PartitionChangeRecord

RESOURCES = {8: "logger levels", 16: "client metrics subscriptions", 32: "group configs"}
"""Kinds of configs that are left out, by resource type."""


class Inconsistent(ValueError):
    """The records contradict each other."""


@dataclass(slots=True)
class KafkaPartition:
    """``directories`` are in the order of ``replicas``; empty before Kafka 3.7."""

    replicas: list[int]
    leader: int
    leader_epoch: int
    directories: list[bytes]


@dataclass(slots=True)
class KafkaTopic:
    name: str
    topic_id: bytes
    partitions: dict[int, KafkaPartition] = field(default_factory=dict)


class ClusterState:
    """``apply`` the records one by one. ``left_out`` has the data that is not imported, by its name for people."""

    def __init__(self) -> None:
        self.topics: dict[bytes, KafkaTopic] = {}
        self.topic_configs: dict[str, dict[str, str]] = {}
        self.broker_configs: dict[str, dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.client_quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {}
        self.next_producer_id = 0
        self.scram: dict[tuple[str, int], access.UserScramCredentialRecord] = {}
        self.acls: dict[bytes, Acl] = {}
        self.tokens: dict[str, access.DelegationTokenRecord] = {}
        self.left_out: dict[str, set[Hashable]] = {}
        self._transaction: list[Message] | None = None

    def apply(self, record: Message) -> None:
        """Apply one record. Raises Inconsistent."""
        if isinstance(record, cluster.BeginTransactionRecord):
            self._transaction = []
        elif isinstance(record, cluster.AbortTransactionRecord):
            self._transaction = None
        elif isinstance(record, cluster.EndTransactionRecord):
            records, self._transaction = self._transaction or [], None
            for each in records:
                self._apply(each)
        elif self._transaction is not None:
            self._transaction.append(record)
        else:
            self._apply(record)

    def _apply(self, record: Message) -> None:
        handler = _HANDLERS.get(type(record))
        if handler is not None:
            handler(self, record)

    # -- topics -------------------------------------------------------------------------------------------------

    def _topic(self, record: topics.TopicRecord) -> None:
        self.topics[record.topic_id] = KafkaTopic(record.name, record.topic_id)

    def _remove_topic(self, record: topics.RemoveTopicRecord) -> None:
        topic = self.topics.pop(record.topic_id, None)
        if topic is None:
            raise Inconsistent(f"topic id {record.topic_id.hex()} is removed but was never created")
        self.topic_configs.pop(topic.name, None)

    def _partition(self, record: topics.PartitionRecord) -> None:
        self._topic_of(record.topic_id).partitions[record.partition_id] = KafkaPartition(
            record.replicas, record.leader, record.leader_epoch, record.directories
        )

    def _partition_change(self, record: topics.PartitionChangeRecord) -> None:
        partition = self._topic_of(record.topic_id).partitions.get(record.partition_id)
        if partition is None:
            raise Inconsistent(f"partition {record.partition_id} is changed but was never created")
        if record.replicas is not None:
            partition.replicas, partition.directories = record.replicas, []
        if record.directories is not None:
            partition.directories = record.directories
        if record.leader != SAME_LEADER:
            partition.leader = record.leader
            partition.leader_epoch += 1

    def _topic_of(self, topic_id: bytes) -> KafkaTopic:
        topic = self.topics.get(topic_id)
        if topic is None:
            raise Inconsistent(f"a partition belongs to topic id {topic_id.hex()}, which was never created")
        return topic

    # -- the cluster --------------------------------------------------------------------------------------------

    def _config(self, record: topics.ConfigRecord) -> None:
        kind, name = record.resource_type, record.resource_name
        if kind not in (TOPIC_RESOURCE, BROKER_RESOURCE):
            what = RESOURCES.get(kind, f"configs of resource type {kind}")
            self._note(what, (kind, name, record.name), gone=record.value is None)
            return
        configs = self.topic_configs if kind == TOPIC_RESOURCE else self.broker_configs
        if record.value is None:
            configs.get(name, {}).pop(record.name, None)
        else:
            configs.setdefault(name, {})[record.name] = record.value

    def _feature(self, record: cluster.FeatureLevelRecord) -> None:
        if record.feature_level:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)

    def _producer_ids(self, record: cluster.ProducerIdsRecord) -> None:
        self.next_producer_id = max(self.next_producer_id, record.next_producer_id)

    def _scram(self, record: access.UserScramCredentialRecord) -> None:
        self.scram[record.name, record.mechanism] = record

    def _no_scram(self, record: access.RemoveUserScramCredentialRecord) -> None:
        self.scram.pop((record.name, record.mechanism), None)

    def _acl(self, record: access.AccessControlEntryRecord) -> None:
        self.acls[record.id] = acl_of(record)

    def _no_acl(self, record: access.RemoveAccessControlEntryRecord) -> None:
        self.acls.pop(record.id, None)

    def _quota(self, record: access.ClientQuotaRecord) -> None:
        entity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
        values = self.client_quotas.setdefault(entity, {})
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value

    def _token(self, record: access.DelegationTokenRecord) -> None:
        self.tokens[record.token_id] = record

    def _no_token(self, record: access.RemoveDelegationTokenRecord) -> None:
        self.tokens.pop(record.token_id, None)

    # -- records left out ---------------------------------------------------------------------------------------

    def _note(self, what: str, key: Hashable, *, gone: bool = False) -> None:
        known = self.left_out.setdefault(what, set())
        if gone:
            known.discard(key)
        else:
            known.add(key)


_HANDLERS: dict[type[Message], Callable[[ClusterState, Any], None]] = {
    topics.TopicRecord: ClusterState._topic,
    topics.RemoveTopicRecord: ClusterState._remove_topic,
    topics.PartitionRecord: ClusterState._partition,
    topics.PartitionChangeRecord: ClusterState._partition_change,
    topics.ConfigRecord: ClusterState._config,
    cluster.FeatureLevelRecord: ClusterState._feature,
    cluster.ProducerIdsRecord: ClusterState._producer_ids,
    access.AccessControlEntryRecord: ClusterState._acl,
    access.RemoveAccessControlEntryRecord: ClusterState._no_acl,
    access.UserScramCredentialRecord: ClusterState._scram,
    access.RemoveUserScramCredentialRecord: ClusterState._no_scram,
    access.DelegationTokenRecord: ClusterState._token,
    access.RemoveDelegationTokenRecord: ClusterState._no_token,
    access.ClientQuotaRecord: ClusterState._quota,
}
"""Other records (registrations, fencing, eligible leaders, no-ops) have no meaning for one node."""
