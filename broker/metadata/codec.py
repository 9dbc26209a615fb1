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

from collections.abc import Mapping
from typing import Any
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
from klamm.broker.metadata.store import MetadataStore, NoNode, StoreCorrupt, shape
from klamm.protocol.wire import uuid_from_text, uuid_to_text

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


def features_value(finalized: Mapping[str, int]) -> bytes:
    """Return the value of the features' node."""
    return paths.to_json({"version": 2, "status": 1, "features": dict(finalized)})


# -- reading ----------------------------------------------------------------------------------------------------


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
        **load_security(store),
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
        with shape(paths.topic(name)):
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
        with shape(path):
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
        with shape(path):
            node_id = int(path.rpartition("/")[2])
            protocols = value["listener_security_protocol_map"]
            endpoints = []
            for text in value["endpoints"]:
                name, _, address = text.partition("://")
                host, _, port = address.rpartition(":")
                endpoints.append(Endpoint(name, host, int(port), protocols[name]))
            brokers[node_id] = BrokerImage(node_id, tuple(endpoints), value.get("rack"))
    return brokers


def load_security(store: MetadataStore) -> dict[str, Any]:
    """Load the fields of the image that hold ACLs, credentials, client quotas and tokens; most clusters have none."""
    if not any(store.exists(path) for path in (paths.ACLS, paths.SCRAM, paths.CLIENT_QUOTAS, paths.TOKENS)):
        return {}
    from klamm.broker.metadata import acl_nodes, security_nodes

    return {
        "acls": acl_nodes.load(store),
        "scram": security_nodes.load_scram(store),
        "client_quotas": security_nodes.load_client_quotas(store),
        "tokens": security_nodes.load_tokens(store),
    }


def load_features(store: MetadataStore) -> FeaturesImage:
    """Load the finalized features; the epoch is the version of their node."""
    try:
        node = store.get(paths.FEATURES)
    except NoNode:
        return FeaturesImage()
    value: dict[str, Any] = paths.from_json(paths.FEATURES, node.value)
    with shape(paths.FEATURES):
        return FeaturesImage({str(name): int(level) for name, level in value["features"].items()}, node.version)
