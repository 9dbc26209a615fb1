"""The broker as its handlers see it: what they may use, and nothing that they would have to look for.

`server` makes one and wires it; tests make one with fakes of the seams.
"""

from __future__ import annotations

from concurrent.futures import Executor
from typing import TYPE_CHECKING

from klamm.broker.background.compaction import Compaction
from klamm.broker.background.relocations import Relocations
from klamm.broker.background.retention import Retention
from klamm.broker.background.scrub import Scrubber
from klamm.broker.fetch.fetch_together import WokenFetches
from klamm.broker.metadata.answers import TopicAnswers
from klamm.broker.turns import Turns

if TYPE_CHECKING:
    from klamm.broker.background.flusher import Flusher
    from klamm.broker.controller.controller import Controller
    from klamm.broker.coordinator.group.coordinator import GroupCoordinator
    from klamm.broker.coordinator.transaction.coordinator import TransactionCoordinator
    from klamm.broker.coordinator.transaction.producer_ids import ProducerIds
    from klamm.broker.fetch.fetch_session import FetchSessions
    from klamm.broker.metadata.image import MetadataImage
    from klamm.broker.metrics import Metrics, TopicMetrics
    from klamm.broker.partitions.partition_manager import PartitionManager
    from klamm.config.broker_config import BrokerConfig
    from klamm.storage.clock import Clock


class Broker:
    """Everything a handler may reach. What the hot paths read of the config is kept as plain attributes."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        controller: Controller,
        partitions: PartitionManager,
        flusher: Flusher,
        fetch_sessions: FetchSessions,
        producer_ids: ProducerIds,
        metrics: Metrics,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        disk: Executor | None = None,
        searches: Executor | None = None,
        codecs: Executor | None = None,
    ) -> None:
        self.clock = clock
        self.controller = controller
        self.partitions = partitions
        self.flusher = flusher
        self.fetch_sessions = fetch_sessions
        self.producer_ids = producer_ids
        self.metrics = metrics
        self.groups = groups
        self.transactions = transactions
        self.searches = searches
        self.codecs = codecs
        self.turns = Turns()
        self.topic_answers = TopicAnswers(partitions)
        self.woken_fetches = WokenFetches()
        self.retention = Retention(partitions, clock, disk)
        self.compaction = Compaction(partitions, self.retention, lambda: self.config, disk)
        self.compaction.expose(metrics)
        self.scrubber = Scrubber(partitions, clock, lambda: self.config, disk)
        self.scrubber.expose(metrics)
        self.relocations = Relocations(partitions, flusher, lambda: self.config, clock, disk)
        self.node_id: int = config.node_id
        self.is_stopping = False
        self.configure(config)

    def configure(self, config: BrokerConfig) -> None:
        """Take a (changed) config."""
        self.config = config
        self.auto_create = config.flag("auto.create.topics.enable")
        self.max_request_elements = config.integer("klamm.request.max.elements")
        self.fetch_max_bytes = config.integer("fetch.max.bytes")
        self.advertised = {listener.name: (listener.host, listener.port) for listener in config.advertised_listeners}

    def stop_waiting(self) -> None:
        """The end is near: answer the fetches and members of groups that wait, and let none wait any more."""
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
        """Counters of a topic that is named in either way; None when it is gone."""
        found = self.partitions.topics_by_id.get(topic_id) or self.partitions.topics.get(name)
        return found.metrics if found is not None else None
