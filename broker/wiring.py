"""The assembly of a broker: passes each part its dependencies, and subscribes parts to metadata changes.

Parts know each other only through these dependencies. Nothing here belongs to the process: a process may have two
brokers (tests do).
"""

from __future__ import annotations

import os
import secrets
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from klamm.broker.background.compaction import Compaction
from klamm.broker.background.flusher import Flusher
from klamm.broker.background.log_dir_mover import LogDirMover
from klamm.broker.background.retention import Retention
from klamm.broker.background.scrub import Scrubber
from klamm.broker.broker import Broker
from klamm.broker.coordinator.group import group_metrics
from klamm.broker.coordinator.group.coordinator import GroupCoordinator
from klamm.broker.coordinator.transaction import transaction_metrics
from klamm.broker.coordinator.transaction.coordinator import TransactionCoordinator
from klamm.broker.coordinator.transaction.producer_ids import ProducerIds
from klamm.broker.fetch.fetch_session import FetchSessions
from klamm.broker.fetch.ready_fetches import ReadyFetches
from klamm.broker.metadata.image import MetadataImage
from klamm.broker.metadata.response_cache import MetadataResponseCache
from klamm.broker.metrics import quotas as quota_metrics
from klamm.broker.quotas.entities import IP
from klamm.broker.turns import Turns

if TYPE_CHECKING:
    from klamm.broker.controller.controller import Controller
    from klamm.broker.metrics import Metrics
    from klamm.broker.partitions.partition_manager import PartitionManager
    from klamm.broker.security.authorizer.audit import AuditLog
    from klamm.broker.security.authorizer.standard import StandardAuthorizer
    from klamm.broker.security.tokens import TokenKeys
    from klamm.config.broker_config import BrokerConfig
    from klamm.storage.clock import Clock

FLUSH_THREADS = 8
NO_IMAGE = MetadataImage()


class Threads:
    """The threads of a broker, by the kind of work that may block them."""

    def __init__(self) -> None:
        self.disk = ThreadPoolExecutor(1, thread_name_prefix="klamm-disk")
        self.flushes = ThreadPoolExecutor(FLUSH_THREADS, thread_name_prefix="klamm-flush")
        self.background = ThreadPoolExecutor(1, thread_name_prefix="klamm-background")
        self.searches = ThreadPoolExecutor(2, thread_name_prefix="klamm-search")
        self.codecs = ThreadPoolExecutor(1, thread_name_prefix="klamm-codec")

    def shut(self) -> None:
        for executor in (self.disk, self.flushes, self.background, self.searches, self.codecs):
            executor.shutdown(wait=False)


def wire(
    controller: Controller, partitions: PartitionManager, *, clock: Clock, metrics: Metrics, threads: Threads
) -> Broker:
    """Return a broker made from opened parts, subscribed to metadata changes."""
    config = controller.config
    flusher = Flusher(threads.flushes, threads.background, threads=FLUSH_THREADS)
    groups = GroupCoordinator(
        config,
        clock=clock,
        controller=controller,
        partitions=partitions,
        flusher=flusher,
        executor=threads.disk,
        new_id=lambda: str(uuid.uuid4()),
    )
    producer_ids = ProducerIds(controller.allocate_producer_ids)
    transactions = TransactionCoordinator(
        config,
        clock=clock,
        controller=controller,
        partitions=partitions,
        flusher=flusher,
        executor=threads.disk,
        producer_ids=producer_ids,
        offsets=groups.commits,
    )

    def current_config() -> BrokerConfig:
        return controller.config

    retention = Retention(partitions, clock, threads.disk)
    broker = Broker(
        config=config,
        clock=clock,
        controller=controller,
        partitions=partitions,
        flusher=flusher,
        groups=groups,
        transactions=transactions,
        producer_ids=producer_ids,
        fetch_sessions=_fetch_sessions(config, clock),
        ready_fetches=ReadyFetches(),
        metadata_responses=MetadataResponseCache(partitions),
        retention=retention,
        compaction=Compaction(partitions, retention, current_config, threads.disk),
        scrubber=Scrubber(partitions, clock, current_config, threads.disk),
        log_dir_mover=LogDirMover(partitions, flusher, current_config, clock, threads.disk),
        metrics=metrics,
        turns=Turns(),
        searches=threads.searches,
        codecs=threads.codecs,
        authorizer=_authorizer(config),
        audit=_audit(config, clock),
        token_keys=_token_keys(config),
    )
    _listen(broker)
    _expose(broker)
    return broker


def _fetch_sessions(config: BrokerConfig, clock: Clock) -> FetchSessions:
    return FetchSessions(
        config.integer("max.incremental.fetch.session.cache.slots"),
        now_ms=lambda: int(clock.monotonic() * 1000),
        random_id=lambda: secrets.randbits(31),
    )


def _authorizer(config: BrokerConfig) -> StandardAuthorizer | None:
    if not config["authorizer.class.name"]:
        return None
    from klamm.broker.security.authorizer.setup import authorizer_of  # many brokers have none

    return authorizer_of(config)


def _audit(config: BrokerConfig, clock: Clock) -> AuditLog | None:
    path = config["klamm.audit.log"]
    if not config["authorizer.class.name"] and path is None:
        return None
    from klamm.broker.security.authorizer.audit import AuditLog, open_file

    file = open_file(str(path)) if path is not None else None
    return AuditLog(file, clock)


def _token_keys(config: BrokerConfig) -> TokenKeys | None:
    secret = config["delegation.token.secret.key"]
    if not secret:
        return None
    from klamm.broker.security.tokens import TokenKeys  # when tokens are on

    return TokenKeys(str(secret), os.urandom)


def _listen(broker: Broker) -> None:
    """Subscribe the parts to metadata changes, in this order."""
    controller, partitions, groups, transactions = (
        broker.controller,
        broker.partitions,
        broker.groups,
        broker.transactions,
    )

    def on_config(old: MetadataImage, new: MetadataImage) -> None:
        if new.broker_configs is not old.broker_configs:
            broker.configure(controller.config)
            partitions.reconfigure(controller.config)
            groups.configure(controller.config)
            transactions.configure(controller.config)

    controller.add_listener(partitions.on_image, partitions.prepare, partitions.settle)
    controller.add_listener(on_config)
    if broker.authorizer is not None:
        authorizer = broker.authorizer

        def on_acls(old: MetadataImage, new: MetadataImage) -> None:
            if new.acls is not old.acls:
                authorizer.change_to(old.acls, new.acls)
                groups.consumers.reconciler.rights_changed()

        authorizer.change_to({}, controller.image.acls)
        groups.consumers.reconciler.asks_rights = True
        controller.add_listener(on_acls)
    controller.add_listener(partial(_on_quotas, broker))
    _on_quotas(broker, NO_IMAGE, controller.image)
    controller.add_listener(broker.metadata_responses.on_image)
    controller.add_listener(groups.on_image, settle=groups.settle)
    controller.add_listener(transactions.on_image)


def _on_quotas(broker: Broker, old: MetadataImage, new: MetadataImage) -> None:
    """Have requests measured as long as there are quotas of users or client ids."""
    if new.client_quotas is old.client_quotas:
        return
    wanted = {entity: values for entity, values in new.client_quotas.items() if entity[0][0] != IP}
    known = broker.known_quotas
    if known is None and wanted:
        from klamm.broker.quotas.client_quotas import ClientQuotas  # when there are some
        from klamm.broker.quotas.measure import Windows

        windows, of_controller = (
            Windows(broker.config.integer(f"{prefix}.num"), broker.config.integer(f"{prefix}.size.seconds") * 1000)
            for prefix in ("quota.window", "controller.quota.window")
        )
        known = broker.known_quotas = ClientQuotas(windows, of_controller)
    if known is not None:
        known.change(wanted)
    broker.quotas = known if wanted else None


def _expose(broker: Broker) -> None:
    broker.compaction.expose(broker.metrics)
    broker.scrubber.expose(broker.metrics)
    group_metrics.register(broker.metrics, broker.groups)
    quota_metrics.expose(broker.metrics, lambda: broker.known_quotas)
    transaction_metrics.register(broker.metrics, broker.transactions)
    audit = broker.audit
    if audit is not None:
        denied, lost = "Requests for what a client may not do.", "Events that are missing in the audit log."
        broker.metrics.counter("klamm_authorization_denied_total", denied, lambda: audit.denied_count)
        broker.metrics.counter("klamm_audit_lost_total", lost, lambda: audit.lost_count)
