"""Conversion between nodes of the store and parts of the image: the JSON that Apache Kafka kept in ZooKeeper.

=========================================== ==========================================================================
``/brokers/ids/1``                          ``{"version":5,"endpoints":["PLAINTEXT://h:9092"],"rack":null,...}``
``/brokers/topics/t``                       ``{"version":3,"topic_id":"...","partitions":{"0":[1]},...}``
``/brokers/topics/t/partitions/0/state``    ``{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}``
``/config/topics/t``, ``/config/brokers/1`` ``{"version":1,"config":{"retention.ms":"1000"}}``
``/quotas/user=u/producer_byte_rate``       the bytes of Kafka's ClientQuotaRecord
``/feature``                                ``{"version":2,"status":1,"features":{"metadata.version":33}}``
``/cluster/id``                             ``{"version":"1","id":"..."}``
``/security/scram/u:1``                     a UserScramCredentialRecord of Kafka's metadata, in bytes
``/acls/<id>``                              the bytes of Kafka's metadata record (`acl_nodes`)
``/security/delegation_tokens/ID``          a DelegationTokenRecord, likewise
=========================================== ==========================================================================

A value of another shape raises StoreCorrupt, which names the node.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from klamm.broker.metadata import paths
from klamm.broker.metadata.image import (
    INTERNAL_TOPICS,
    BrokerImage,
    Endpoint,
    FeaturesImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
    with_offline,
)
from klamm.broker.metadata.store import MetadataStore, NoNode, StoreCorrupt
from klamm.broker.security.tokens import DelegationToken
from klamm.protocol.cluster_metadata import kinds
from klamm.protocol.cluster_metadata.access import DelegationTokenRecord, UserScramCredentialRecord
from klamm.protocol.schema import Message
from klamm.protocol.scram import ScramCredential
from klamm.protocol.wire import uuid_from_text, uuid_to_text

if TYPE_CHECKING:
    from klamm.broker.security.authorizer.acls import Acl

STATE_SUFFIX = "/state"


# -- writing ----------------------------------------------------------------------------------------------------


def topic_value(topic: TopicImage) -> bytes:
    """Return the value of the topic's node."""
    replicas = {str(partition.index): partition.replicas for partition in topic.partitions}
    return paths.to_json(
        {
            "partitions": replicas,
            "topic_id": uuid_to_text(topic.topic_id),
            "adding_replicas": {},
            "removing_replicas": {},
            "version": 3,
        }
    )


def partition_value(partition: PartitionImage, controller_epoch: int) -> bytes:
    """Return the value of the partition's state node."""
    isr = ",".join(map(str, partition.isr))
    return (
        f'{{"controller_epoch":{controller_epoch},"leader":{partition.leader},"version":1,'
        f'"leader_epoch":{partition.leader_epoch},"isr":[{isr}]}}'
    ).encode()


def config_value(config: Mapping[str, str]) -> bytes:
    """Return the value of a config node."""
    return paths.to_json({"version": 1, "config": dict(config)})


def broker_value(broker: BrokerImage, timestamp_ms: int) -> bytes:
    """Return the value of a broker's registration."""
    first = broker.endpoints[0] if broker.endpoints else Endpoint("", "", -1)
    return paths.to_json(
        {
            "features": {},
            "listener_security_protocol_map": {endpoint.name: endpoint.protocol for endpoint in broker.endpoints},
            "endpoints": [f"{endpoint.name}://{endpoint.host}:{endpoint.port}" for endpoint in broker.endpoints],
            "jmx_port": -1,
            "port": first.port,
            "host": first.host,
            "rack": broker.rack,
            "version": 5,
            "timestamp": str(timestamp_ms),
        }
    )


def scram_value(user: str, mechanism: int, credential: ScramCredential) -> bytes:
    """Return the value of a SCRAM credential's node."""
    return kinds.encode(scram_record(user, mechanism, credential))


def scram_record(user: str, mechanism: int, credential: ScramCredential) -> UserScramCredentialRecord:
    """Return the credential as a record of Kafka's metadata."""
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


def token_value(token: DelegationToken) -> bytes:
    """The value of a delegation token's node."""
    return kinds.encode(token_record(token))


def token_record(token: DelegationToken) -> DelegationTokenRecord:
    """The token as Kafka's metadata have it."""
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issued_ms,
        max_timestamp=token.max_ms,
        expiration_timestamp=token.expiry_ms,
        token_id=token.token_id,
    )


def token_of(record: DelegationTokenRecord) -> DelegationToken:
    """The token of a record."""
    return DelegationToken(
        record.token_id,
        record.owner,
        record.requester,
        tuple(record.renewers),
        record.issue_timestamp,
        record.max_timestamp,
        record.expiration_timestamp,
    )


def features_value(finalized: Mapping[str, int]) -> bytes:
    """Return the value of the features' node."""
    return paths.to_json({"version": 2, "status": 1, "features": dict(finalized)})


# -- reading ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _shape(path: str) -> Iterator[None]:
    """Turn any error in decoding a value into StoreCorrupt for its node."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise StoreCorrupt(f"metadata node {path}, or one below it, lacks its shape: {error!r}") from None


def load_image(store: MetadataStore, *, cluster_id: str = "", controller_id: int = -1) -> MetadataImage:
    """Load everything that is stored, in a few round trips. Raises StoreError, in particular StoreCorrupt."""
    brokers = load_brokers(store)
    topics = load_topics(store, frozenset(brokers))
    topic_configs = load_configs(store, paths.TOPIC_CONFIGS)
    broker_configs = load_configs(store, paths.BROKER_CONFIGS)
    group_configs = load_configs(store, paths.GROUP_CONFIGS)
    return MetadataImage(
        cluster_id=cluster_id,
        controller_id=controller_id,
        brokers=brokers,
        topics=topics,
        topics_by_id={topic.topic_id: topic for topic in topics.values()},
        topic_configs={name: topic_configs.get(name, {}) for name in topics},
        broker_configs={"": {}, **broker_configs},
        group_configs={unquote(name): config for name, config in group_configs.items() if config},
        features=load_features(store),
        scram=load_scram(store),
        acls=load_acls(store),
        client_quotas=load_client_quotas(store),
        tokens=load_tokens(store),
    )


def load_topics(store: MetadataStore, live: frozenset[int]) -> dict[str, TopicImage]:
    """Load all topics with their partitions, including those that wait for deletion."""
    headers: dict[str, dict[str, Any]] = {}
    states: dict[tuple[str, str], dict[str, Any]] = {}
    start = len(paths.TOPICS) + 1
    for path, node in store.subtree(paths.TOPICS):
        name, _, rest = path[start:].partition("/")
        value = paths.from_json(path, node.value)
        if not rest:
            headers[name] = value
        elif rest.endswith(STATE_SUFFIX):
            states[name, rest[len("partitions/") : -len(STATE_SUFFIX)]] = value
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}
    topics = {}
    for name, header in headers.items():
        with _shape(paths.topic(name)):
            replicas_of = header["partitions"]
            partitions = []
            for index in range(len(replicas_of)):
                key = str(index)
                state = states.get((name, key))
                if state is None:
                    raise StoreCorrupt(f"metadata node {paths.partition_state(name, index)} is missing")
                replicas, isr = tuple(replicas_of[key]), tuple(state["isr"])
                partition = PartitionImage(
                    index,
                    state["leader"],
                    state["leader_epoch"],
                    shared.setdefault(replicas, replicas),
                    shared.setdefault(isr, isr),
                )
                partitions.append(with_offline(partition, live))
            topic_id = uuid_from_text(header["topic_id"])
        topics[name] = TopicImage(name, topic_id, tuple(partitions), name in INTERNAL_TOPICS)
    return topics


def load_configs(store: MetadataStore, parent: str) -> dict[str, dict[str, str]]:
    """Load the configs below one of the config nodes, by name ("" for the default entity)."""
    configs = {}
    for path, node in store.subtree(parent):
        name = path[len(parent) + 1 :]
        value = paths.from_json(path, node.value)
        with _shape(path):
            config = value["config"]
            if not isinstance(config, dict):
                raise TypeError(config)
            configs["" if name == paths.DEFAULT_ENTITY else name] = {str(k): str(v) for k, v in config.items()}
    return configs


def load_brokers(store: MetadataStore) -> dict[int, BrokerImage]:
    """Load the live brokers."""
    brokers = {}
    for path, node in store.subtree(paths.BROKER_IDS):
        value: dict[str, Any] = paths.from_json(path, node.value)
        with _shape(path):
            node_id = int(path.rpartition("/")[2])
            protocols = value["listener_security_protocol_map"]
            endpoints = []
            for text in value["endpoints"]:
                name, _, address = text.partition("://")
                host, _, port = address.rpartition(":")
                endpoints.append(Endpoint(name, host, int(port), protocols[name]))
            brokers[node_id] = BrokerImage(node_id, tuple(endpoints), value.get("rack"))
    return brokers


def load_acls(store: MetadataStore) -> dict[bytes, Acl]:
    """Load the ACLs, by their ids."""
    if not store.exists(paths.ACLS):
        return {}
    from klamm.broker.metadata import acl_nodes  # most clusters have none

    return acl_nodes.load(store)


def load_features(store: MetadataStore) -> FeaturesImage:
    """Load the finalized features; the epoch is the version of their node."""
    try:
        node = store.get(paths.FEATURES)
    except NoNode:
        return FeaturesImage()
    value: dict[str, Any] = paths.from_json(paths.FEATURES, node.value)
    with _shape(paths.FEATURES):
        return FeaturesImage({str(name): int(level) for name, level in value["features"].items()}, node.version)


def load_scram(store: MetadataStore) -> dict[tuple[str, int], ScramCredential]:
    """Load the SCRAM credentials, by user and number of the mechanism."""
    found = {}
    for path, node in store.subtree(paths.SCRAM):
        with _shape(path):
            record = kinds.decode(node.value).message
            if not isinstance(record, UserScramCredentialRecord):
                raise TypeError(record)
            found[record.name, record.mechanism] = ScramCredential(
                record.salt, record.stored_key, record.server_key, record.iterations
            )
    return found


# -- client quotas, as records of Kafka's own -------------------------------------------------------------------


def client_quota_value(entity: tuple[tuple[str, str | None], ...], key: str, value: float) -> bytes:
    """The value of the node of one quota."""
    return kinds.encode(client_quota_record(entity, key, value))


def client_quota_record(entity: tuple[tuple[str, str | None], ...], key: str, value: float) -> Message:
    """One quota as a record of the cluster metadata."""
    from klamm.protocol.cluster_metadata.access import ClientQuotaRecord, EntityData  # when there are quotas

    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    return ClientQuotaRecord(entity=parts, key=key, value=value)


def load_client_quotas(store: MetadataStore) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    """All client quotas, by entity."""
    found: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {}
    for path, node in store.subtree(paths.CLIENT_QUOTAS):
        if not node.value:
            continue  # the node above the values of an entity
        with _shape(path):
            record: Any = kinds.decode(node.value).message
            entity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
            found.setdefault(entity, {})[record.key] = record.value
    return found


def load_tokens(store: MetadataStore) -> dict[str, DelegationToken]:
    """The delegation tokens, by id."""
    found = {}
    for path, node in store.subtree(paths.TOKENS):
        with _shape(path):
            record = kinds.decode(node.value).message
            if not isinstance(record, DelegationTokenRecord):
                raise TypeError(record)
            found[record.token_id] = token_of(record)
    return found
