"""The context that request handlers receive: every part of the broker they may use.

`wiring` makes one from its parts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from klamm.broker.background.compaction import Compaction
    from klamm.broker.background.flusher import Flusher
    from klamm.broker.background.log_dir_mover import LogDirMover
    from klamm.broker.background.retention import Retention
    from klamm.broker.background.scrub import Scrubber
    from klamm.broker.controller.controller import Controller
    from klamm.broker.coordinator.group.coordinator import GroupCoordinator
    from klamm.broker.coordinator.transaction.coordinator import TransactionCoordinator
    from klamm.broker.coordinator.transaction.producer_ids import ProducerIds
    from klamm.broker.fetch.fetch_session import FetchSessions
    from klamm.broker.fetch.ready_fetches import ReadyFetches
    from klamm.broker.metadata.image import MetadataImage
    from klamm.broker.metadata.response_cache import MetadataResponseCache
    from klamm.broker.metrics import Metrics, TopicMetrics
    from klamm.broker.partitions.partition_manager import PartitionManager
    from klamm.broker.quotas.client_quotas import ClientQuotas
    from klamm.broker.security.authorizer.audit import AuditLog
    from klamm.broker.security.authorizer.standard import StandardAuthorizer
    from klamm.broker.security.tokens import TokenKeys
    from klamm.broker.tls_listeners import TlsListeners
    from klamm.broker.turns import Turns
    from klamm.config.broker_config import BrokerConfig
    from klamm.storage.clock import Clock


@dataclass(kw_only=True, eq=False, slots=True)
class Broker:
    """The parts of a broker, as handlers use them. Config values for the hot paths are plain attributes.

    `quotas` is set while a user or a client id has a quota; `known_quotas` from the first one on, as its measurements
    are kept.
    """

    config: BrokerConfig
    clock: Clock
    controller: Controller
    partitions: PartitionManager
    flusher: Flusher
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    producer_ids: ProducerIds
    fetch_sessions: FetchSessions
    ready_fetches: ReadyFetches
    metadata_responses: MetadataResponseCache
    retention: Retention
    compaction: Compaction
    scrubber: Scrubber
    log_dir_mover: LogDirMover
    metrics: Metrics
    turns: Turns
    searches: Executor
    codecs: Executor
    authorizer: StandardAuthorizer | None = None
    audit: AuditLog | None = None

    tls: TlsListeners | None = None
    """The listeners with TLS, if there are some."""
    token_keys: TokenKeys | None = None
    """None without delegation tokens."""

    node_id: int = field(init=False)
    quotas: ClientQuotas | None = field(init=False, default=None)
    known_quotas: ClientQuotas | None = field(init=False, default=None)
    is_stopping: bool = field(init=False, default=False)
    auto_create: bool = field(init=False)
    max_request_elements: int = field(init=False)
    fetch_max_bytes: int = field(init=False)
    advertised: dict[str, tuple[str, int]] = field(init=False)

    def __post_init__(self) -> None:
        self.node_id = self.config.node_id
        self.configure(self.config)

    def configure(self, config: BrokerConfig) -> None:
        """Apply a new config."""
        self.config = config
        self.auto_create = config.flag("auto.create.topics.enable")
        self.max_request_elements = config.integer("klamm.request.max.elements")
        self.fetch_max_bytes = config.integer("fetch.max.bytes")
        self.advertised = {listener.name: (listener.host, listener.port) for listener in config.advertised_listeners}

    def complete_delayed_fetches(self) -> None:
        """Prepare for shutdown: answer waiting fetches and group members, and accept no new waits."""
        self.is_stopping = True
        self.groups.close()
        self.transactions.close()
        for partition in self.partitions:
            partition.wake(0)

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    @property
    def cluster_id(self) -> str:
        return self.controller.image.cluster_id

    def topic_metrics(self, name: str, topic_id: bytes) -> TopicMetrics | None:
        """Return the counters of a topic, by name or id; None if it does not exist."""
        found = self.partitions.topics_by_id.get(topic_id) or self.partitions.topics.get(name)
        return found.metrics if found is not None else None
