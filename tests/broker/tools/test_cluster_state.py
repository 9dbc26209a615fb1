"""What metadata records come to, in their order."""

from __future__ import annotations

import pytest

from klamm.broker.security.authorizer.acls import Acl
from klamm.broker.tools.cluster_state import ClusterState, Inconsistent
from klamm.protocol.cluster_metadata.access import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    EntityData,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from klamm.protocol.cluster_metadata.cluster import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    ProducerIdsRecord,
)
from klamm.protocol.cluster_metadata.topics import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from klamm.protocol.schema import Message
from tests.broker.tools.kafka_directory import topic_id, topic_records

T = topic_id(1)


def state_of(*records: Message) -> ClusterState:
    state = ClusterState()
    for record in records:
        state.apply(record)
    return state


def test_a_topic_has_its_partitions_and_configs() -> None:
    state = state_of(*topic_records("t", T, 3, config={"retention.ms": "-1"}))
    topic = state.topics[T]
    assert (topic.name, sorted(topic.partitions)) == ("t", [0, 1, 2])
    assert topic.partitions[2].leader_epoch == 4
    assert state.topic_configs == {"t": {"retention.ms": "-1"}}


def test_every_new_leader_is_a_new_epoch_and_other_changes_are_not() -> None:
    def change(**what: object) -> PartitionChangeRecord:
        return PartitionChangeRecord(partition_id=0, topic_id=T, **what)  # type: ignore[arg-type]

    state = state_of(*topic_records("t", T, 1))
    for record, leader, epoch in (
        (change(isr=[]), 1, 4),
        (change(leader=-1), -1, 5),
        (change(leader=1), 1, 6),
        (change(leader=1), 1, 7),
        (change(eligible_leader_replicas=[1]), 1, 7),
    ):
        state.apply(record)
        partition = state.topics[T].partitions[0]
        assert (partition.leader, partition.leader_epoch) == (leader, epoch)


def test_replicas_and_directories_change_together_or_the_directories_alone() -> None:
    state = state_of(*topic_records("t", T, 1))
    partition = state.topics[T].partitions[0]
    state.apply(PartitionChangeRecord(partition_id=0, topic_id=T, directories=[topic_id(9)]))
    assert (partition.replicas, partition.directories) == ([1], [topic_id(9)])
    state.apply(PartitionChangeRecord(partition_id=0, topic_id=T, replicas=[2, 1]))
    assert (partition.replicas, partition.directories) == ([2, 1], [])


def test_a_topic_that_is_removed_takes_its_configs_and_may_come_again() -> None:
    state = state_of(*topic_records("t", T, 2, config={"a": "1"}), RemoveTopicRecord(topic_id=T))
    assert (state.topics, state.topic_configs) == ({}, {})
    for record in topic_records("t", topic_id(2), 1):
        state.apply(record)
    assert [topic.topic_id for topic in state.topics.values()] == [topic_id(2)]
    assert state.topic_configs == {}


def test_a_metadata_transaction_counts_when_it_ends() -> None:
    first, second, third = (topic_records(name, topic_id(n), 1) for n, name in enumerate(("a", "b", "c"), 1))
    state = state_of(BeginTransactionRecord(), *first, EndTransactionRecord())
    assert [topic.name for topic in state.topics.values()] == ["a"]
    for record in (BeginTransactionRecord(name="x"), *second, AbortTransactionRecord(reason="no")):
        state.apply(record)
    for record in (BeginTransactionRecord(), *third):
        state.apply(record)
    assert [topic.name for topic in state.topics.values()] == ["a"]


def test_configs_go_where_they_belong_and_null_takes_them_away() -> None:
    def config(kind: int, name: str, value: str | None) -> ConfigRecord:
        return ConfigRecord(resource_type=kind, resource_name=name, name="k", value=value)

    state = state_of(config(2, "t", "1"), config(4, "", "2"), config(4, "7", "3"), config(16, "m", "4"))
    assert state.topic_configs == {"t": {"k": "1"}}
    assert state.broker_configs == {"": {"k": "2"}, "7": {"k": "3"}}
    assert {what: len(which) for what, which in state.left_out.items()} == {"client metrics subscriptions": 1}
    for record in (config(2, "t", None), config(16, "m", None), config(99, "x", "5"), config(4, "8", None)):
        state.apply(record)
    assert state.topic_configs == {"t": {}}
    assert state.left_out["client metrics subscriptions"] == set()
    assert len(state.left_out["configs of resource type 99"]) == 1


def test_features_and_producer_ids() -> None:
    state = state_of(
        FeatureLevelRecord(name="metadata.version", feature_level=29),
        FeatureLevelRecord(name="group.version", feature_level=1),
        ProducerIdsRecord(broker_id=1, next_producer_id=2000),
        ProducerIdsRecord(broker_id=1, next_producer_id=1000),
        FeatureLevelRecord(name="metadata.version", feature_level=33),
        FeatureLevelRecord(name="group.version", feature_level=0),
        NoOpRecord(),
    )
    assert state.features == {"metadata.version": 33}
    assert state.next_producer_id == 2000


def test_scram_credentials_are_those_that_were_not_removed() -> None:
    def credential(name: str, mechanism: int, salt: bytes = b"s") -> UserScramCredentialRecord:
        return UserScramCredentialRecord(
            name=name, mechanism=mechanism, salt=salt, stored_key=b"k", server_key=b"v", iterations=4096
        )

    state = state_of(
        credential("a", 1),
        credential("a", 2),
        credential("b", 1),
        credential("b", 1, b"new"),
        RemoveUserScramCredentialRecord(name="a", mechanism=1),
        RemoveUserScramCredentialRecord(name="nobody", mechanism=1),
    )
    assert {key: record.salt for key, record in state.scram.items()} == {("a", 2): b"s", ("b", 1): b"new"}


def test_acls_are_those_that_were_not_removed() -> None:
    def acl(number: int) -> AccessControlEntryRecord:
        return AccessControlEntryRecord(
            id=topic_id(number),
            resource_type=2,
            resource_name=f"t{number}",
            pattern_type=4,
            principal="User:a",
            host="*",
            operation=3,
            permission_type=2,
        )

    state = state_of(*(acl(number) for number in range(3)), RemoveAccessControlEntryRecord(id=topic_id(1)))
    assert state.acls == {topic_id(number): Acl(2, f"t{number}", 4, "User:a", "*", 3, 2) for number in (0, 2)}


def test_client_quotas_as_they_stand_at_the_end() -> None:
    def quota(key: str, value: float, *, remove: bool = False, name: str | None = None) -> ClientQuotaRecord:
        parts = [EntityData(entity_type="user", entity_name=name), EntityData(entity_type="client-id", entity_name="c")]
        return ClientQuotaRecord(entity=parts, key=key, value=value, remove=remove)

    state = state_of(quota("producer_byte_rate", 1.0), quota("producer_byte_rate", 2.0), quota("x", 3.0, name="a"))
    default, named = (("client-id", "c"), ("user", None)), (("client-id", "c"), ("user", "a"))
    assert state.client_quotas == {default: {"producer_byte_rate": 2.0}, named: {"x": 3.0}}
    state.apply(quota("producer_byte_rate", 0.0, remove=True))
    assert state.client_quotas[default] == {}


@pytest.mark.parametrize(
    "record",
    [
        PartitionRecord(partition_id=0, topic_id=topic_id(9), replicas=[1], isr=[1]),
        PartitionChangeRecord(partition_id=0, topic_id=topic_id(9), leader=1),
        PartitionChangeRecord(partition_id=5, topic_id=T, leader=1),
        RemoveTopicRecord(topic_id=topic_id(9)),
    ],
    ids=lambda record: type(record).__name__,
)
def test_records_that_do_not_fit_are_refused(record: Message) -> None:
    state = state_of(TopicRecord(name="t", topic_id=T))
    with pytest.raises(Inconsistent):
        state.apply(record)


def test_delegation_tokens_are_those_that_were_not_removed() -> None:
    state = state_of(
        DelegationTokenRecord(owner="a", requester="a", renewers=[], token_id="x"),
        DelegationTokenRecord(owner="a", requester="a", renewers=[], token_id="y"),
        RemoveDelegationTokenRecord(token_id="x"),
    )
    assert state.tokens.keys() == {"y"}
