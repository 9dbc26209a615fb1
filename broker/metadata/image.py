"""The image: all metadata of the cluster in memory, immutable.

Brokers answer from an image and never wait for the store. The controller makes the next image from the last one: the
``with_*`` methods share all unchanged parts, so one new topic costs a copy of a dict and not of 10,000 partitions. An
image may be read from any thread and kept for any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klamm.broker.security.authorizer.acls import Acl
    from klamm.broker.security.tokens import DelegationToken
    from klamm.protocol.scram import ScramCredential

NO_LEADER = -1
NO_CONFIG: Mapping[str, str] = {}

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC, "__share_group_state"})
CLUSTER_METADATA_TOPIC = "__cluster_metadata"  # not a topic here; the name stays reserved


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition. ``offline`` are the ``replicas`` on brokers that are not live."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic; ``partitions[i].index == i``. ``topic_id`` is 16 bytes."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionImage, ...]
    internal: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint of a broker: the name of the listener, and the address that clients receive."""

    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One live broker."""

    node_id: int
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of the listener with this name."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener), None)


@dataclass(frozen=True, slots=True)
class FeaturesImage:
    """The finalized feature levels, and the epoch that grows with each change of them."""

    finalized: Mapping[str, int] = field(default_factory=dict)
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """All metadata. Every topic has an entry in ``topic_configs``; ``broker_configs[""]`` is the cluster-wide one."""

    cluster_id: str = ""
    controller_id: int = -1
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[bytes, TopicImage] = field(default_factory=dict)
    topic_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    features: FeaturesImage = field(default_factory=FeaturesImage)
    scram: Mapping[tuple[str, int], ScramCredential] = field(default_factory=dict)
    """By user and number of the mechanism."""
    acls: Mapping[bytes, Acl] = field(default_factory=dict)
    client_quotas: Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float]] = field(default_factory=dict)
    tokens: Mapping[str, DelegationToken] = field(default_factory=dict)
    """Delegation tokens by id."""

    def topic_config(self, name: str) -> Mapping[str, str]:
        """Return the overrides of a topic; empty for an unknown one."""
        return self.topic_configs.get(name, NO_CONFIG)

    def broker_config(self, name: str) -> Mapping[str, str]:
        """Return the dynamic config of one broker ("1"), or the cluster-wide one ("")."""
        return self.broker_configs.get(name, NO_CONFIG)

    def group_config(self, name: str) -> Mapping[str, str]:
        """Return the overrides of a group."""
        return self.group_configs.get(name, NO_CONFIG)

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        """Return one partition, or None."""
        image = self.topics.get(topic)
        if image is None or not 0 <= index < len(image.partitions):
            return None
        return image.partitions[index]

    # -- the next image -----------------------------------------------------------------------------------------

    def with_topics(
        self, topics: Iterable[TopicImage], configs: Mapping[str, Mapping[str, str]] | None = None
    ) -> MetadataImage:
        """Return the image with these topics added or replaced, by name; ``configs`` are the changed ones."""
        by_name, by_id, all_configs = (dict(self.topics), dict(self.topics_by_id), dict(self.topic_configs))
        for topic in topics:
            previous = by_name.get(topic.name)
            if previous is not None and previous.topic_id != topic.topic_id:
                del by_id[previous.topic_id]
            by_name[topic.name] = by_id[topic.topic_id] = topic
            all_configs.setdefault(topic.name, NO_CONFIG)
        all_configs.update(configs or {})
        return replace(self, topics=by_name, topics_by_id=by_id, topic_configs=all_configs)

    def without_topics(self, names: Iterable[str]) -> MetadataImage:
        """Return the image without these topics and their configs."""
        by_name, by_id, configs = (dict(self.topics), dict(self.topics_by_id), dict(self.topic_configs))
        for name in names:
            del by_id[by_name.pop(name).topic_id]
            configs.pop(name, None)
        return replace(self, topics=by_name, topics_by_id=by_id, topic_configs=configs)

    def with_topic_configs(self, configs: Mapping[str, Mapping[str, str]]) -> MetadataImage:
        """Return the image with these topics' overrides replaced."""
        return replace(self, topic_configs={**self.topic_configs, **configs})

    def with_broker_configs(self, configs: Mapping[str, Mapping[str, str]]) -> MetadataImage:
        """Return the image with these brokers' dynamic configs replaced."""
        return replace(self, broker_configs={**self.broker_configs, **configs})

    def with_group_configs(self, configs: Mapping[str, Mapping[str, str]]) -> MetadataImage:
        """Return the image with these groups' overrides replaced; a group without overrides has no entry."""
        changed = {**self.group_configs, **configs}
        return replace(self, group_configs={name: config for name, config in changed.items() if config})

    def with_client_quotas(
        self, quotas: Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float]]
    ) -> MetadataImage:
        """Return the image with these entities' quotas (`quotas.entities`); an entity without values has no entry."""
        changed = {**self.client_quotas, **quotas}
        return replace(self, client_quotas={entity: values for entity, values in changed.items() if values})

    def with_features(self, features: FeaturesImage) -> MetadataImage:
        """Return the image with these features."""
        return replace(self, features=features)

    def with_scram(self, changes: Mapping[tuple[str, int], ScramCredential | None]) -> MetadataImage:
        """Return the image with these SCRAM credentials, by user and mechanism; None removes one."""
        changed = {**self.scram, **changes}
        return replace(self, scram={key: credential for key, credential in changed.items() if credential is not None})

    def with_acls(self, added: Mapping[bytes, Acl]) -> MetadataImage:
        """Return the image with these ACLs, by their ids."""
        return replace(self, acls={**self.acls, **added})

    def without_acls(self, ids: Iterable[bytes]) -> MetadataImage:
        """Return the image without these ACLs."""
        acls = dict(self.acls)
        for acl_id in ids:
            del acls[acl_id]
        return replace(self, acls=acls)

    def with_tokens(self, changes: Mapping[str, DelegationToken | None]) -> MetadataImage:
        """Return the image with these delegation tokens; None removes one."""
        changed = {**self.tokens, **changes}
        return replace(self, tokens={key: token for key, token in changed.items() if token is not None})

    def with_brokers(self, brokers: Mapping[int, BrokerImage]) -> MetadataImage:
        """Return the image with these live brokers. Recompute each partition's offline replicas; unchanged partitions
        are reused.
        """
        live = frozenset(brokers)
        changed = []
        for topic in self.topics.values():
            partitions = tuple(with_offline(partition, live) for partition in topic.partitions)
            if any(new is not old for new, old in zip(partitions, topic.partitions, strict=True)):
                changed.append(replace(topic, partitions=partitions))
        image = replace(self, brokers=dict(brokers))
        return image.with_topics(changed) if changed else image


def with_offline(partition: PartitionImage, live: frozenset[int]) -> PartitionImage:
    """Return the partition with ``offline`` computed from the live brokers; the same object if nothing changes."""
    offline = tuple(replica for replica in partition.replicas if replica not in live)
    return partition if offline == partition.offline else replace(partition, offline=offline)
