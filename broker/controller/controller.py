"""The controller: every change of the cluster's metadata, one at a time.

`topics`, `configs` and `features` plan the changes; `changes` makes them durable and visible.

Deletion of a topic has two transactions: the first marks it in ``/admin/delete_topics``, the second, after its logs are
deleted, removes its nodes. After a crash between them `finish_deletions` completes it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from klamm.broker.controller import configs, features, secrets, startup, topics
from klamm.broker.controller.auto_creation import AutoCreation
from klamm.broker.controller.changes import Change, Changes
from klamm.broker.controller.configs import ConfigUpdate
from klamm.broker.controller.features import FeatureUpdate
from klamm.broker.controller.ineffective_configs import IneffectiveConfigWarnings
from klamm.broker.controller.placement import ReplicaPlacer
from klamm.broker.controller.topics import NewPartitions, NewTopic, TopicKey, TopicPlanner, TopicResult
from klamm.broker.metadata import codec, paths
from klamm.broker.metadata.image import BrokerImage, FeaturesImage, MetadataImage
from klamm.broker.metadata.store import MetadataStore, Operation, Set
from klamm.protocol.errors import KafkaError, PolicyViolation, TopicDeletionDisabled

if TYPE_CHECKING:
    from klamm.broker.controller.acls import Removed
    from klamm.broker.controller.client_quotas import Alteration
    from klamm.broker.controller.credentials import Deletion, Upsertion
    from klamm.broker.security.authorizer.acls import Acl, AclFilter
    from klamm.config import BrokerConfig
    from klamm.storage.clock import Clock

log = logging.getLogger(__name__)

T = TypeVar("T")

PRODUCER_ID_BLOCK_SIZE = 1_000
MAX_PRODUCER_ID = 2**63 - 1

Count: TypeAlias = Callable[[int], None]
"""Called before a topic gains or loses partitions, with their number. Its error is the result (`quotas.charge`)."""


class Controller(Changes):
    """The owner of the image and the store. Create it, `start` it (blocking), add listeners, then call
    `finish_deletions`.

    ``config`` is the broker's config with the dynamic one applied; it changes before listeners receive an image.
    """

    def __init__(
        self,
        store: MetadataStore,
        config: BrokerConfig,
        *,
        clock: Clock,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        super().__init__(store)
        self.config = config
        self.node_id: int = config.node_id
        self.supported_features: Mapping[str, tuple[int, int]] = features.SUPPORTED
        self.controller_epoch = 0
        self._static_config = config
        self._clock = clock
        self._random_bytes = random_bytes
        self._placer = ReplicaPlacer(lambda below: int.from_bytes(random_bytes(4), "big") % below)
        self._deleting: frozenset[str] = frozenset()
        self._auto_creation = AutoCreation(self)
        self._effects = IneffectiveConfigWarnings()
        self._secrets = secrets.secret_box(config)

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self, *, clean: bool, cluster_id: str | None = None, broker: BrokerImage | None = None) -> None:
        """Load the image and register as controller. Blocks; before the loop serves clients.

        ``clean``: the last stop was clean; else every partition gets a new leader epoch, so clients check whether the
        log was truncated. ``cluster_id`` is used for a new cluster and must match an old one. ``broker`` is the
        registration of this broker; `register` replaces it when the real ports are known.
        Raises StoreError (StoreCorrupt) and `startup.WrongCluster`.
        """
        state = startup.start(
            self._store,
            broker or BrokerImage(self.node_id),
            clean=clean,
            cluster_id=cluster_id,
            random_bytes=self._random_bytes,
            now_ms=self._clock.wall_ms(),
        )
        self.image, self.controller_epoch, self._deleting = (state.image, state.controller_epoch, state.deleting)
        self.image = secrets.opened(self._store, self.image, self._secrets)
        self.config = configs.effective(self._static_config, self.image, self.node_id)

    async def finish_deletions(self) -> None:
        """Delete topics that were marked before a crash. Call this when the listeners are added and before clients are
        served.

        Until then the marked topics are in the image, so their logs are opened and then removed like any other. A topic
        that cannot be removed is not served, keeps its name and its mark, and does not prevent the broker from serving
        others.
        """
        for name in sorted(self._deleting):
            log.info("topic %s: finishing its deletion", name)
            try:
                await self._shielded(self._delete_marked([name]))
            except KafkaError as error:
                log.warning("topic %s: not deleted, the next start tries again: %s", name, error.message)

    async def register(self, broker: BrokerImage) -> None:
        """Replace the registration of this broker, as its ports are known now."""

        def plan(image: MetadataImage) -> Change[None]:
            value = codec.broker_value(broker, self._clock.wall_ms())
            operations = [Set(paths.broker_id(broker.node_id), value)]
            return Change(None, operations, image.with_brokers({**image.brokers, broker.node_id: broker}))

        await self._change(plan)

    async def metadata_offset(self) -> int:
        """Return the number of changes of the metadata (DescribeQuorum's log end)."""
        return await self._in_thread(self._store.revision)

    # -- topics -------------------------------------------------------------------------------------------------

    @staticmethod
    def check_topic_name(name: str) -> None:
        """Raise InvalidTopicException unless a topic may have this name."""
        topics.check_name(name)

    async def create_topics(
        self, new: Sequence[NewTopic], validate_only: bool = False, count: Count | None = None
    ) -> list[TopicResult]:
        """Create topics, each independently. Results are in the order of the request."""

        def plan(image: MetadataImage) -> Change[list[TopicResult]]:
            defaults = self._defaults()
            total = sum(_partition_count(topic, defaults) for topic in new)
            try:
                topics.check_partition_total(total)
            except PolicyViolation as error:
                kept = error.without_frames()
                return Change([TopicResult(topic.name, kept) for topic in new])
            planner = self._planner(image, defaults, count)
            results = [planner.create(topic) for topic in new]
            if validate_only:
                return Change(results)
            operations: list[Operation] = []
            for result in results:
                if result.topic is not None:
                    operations += topics.creation(result.topic, result.configs, self.controller_epoch)
            created = [result for result in results if result.topic is not None]
            if not created:
                return Change(results)
            images = [result.topic for result in created if result.topic is not None]
            overrides = {topic.name: result.configs for topic, result in zip(images, created, strict=True)}
            return Change(results, operations, image.with_topics(images, overrides))

        results = await self._change(plan)
        for result in results:
            if result.topic is not None and not validate_only:
                log.info("topic %s: created, partitions=%d", result.name, len(result.topic.partitions))
                if not result.topic.internal:  # internal topics have configs that no client has set
                    self._effects.topic_keys(result.configs)
        return results

    async def auto_create(self, names: Iterable[str]) -> dict[str, KafkaError]:
        """Create the topics that do not exist, if ``auto.create.topics.enable``. Return the errors of those that
        failed.

        Concurrent callers share the work: each name is created once, all waiting names in one transaction.
        """
        return await self._auto_creation.create(names) if self.config.flag("auto.create.topics.enable") else {}

    async def create_partitions(
        self, new: Sequence[NewPartitions], validate_only: bool = False, count: Count | None = None
    ) -> list[KafkaError | None]:
        """Add partitions to each topic independently. Return an error or None for each entry."""

        def plan(image: MetadataImage) -> Change[list[KafkaError | None]]:
            errors: list[KafkaError | None] = []
            grown = {}
            for entry in new:
                try:
                    topic = topics.grow(image, entry, self._placer)
                    if count is not None:
                        count(len(topic.partitions) - len(image.topics[entry.name].partitions))
                    grown[entry.name] = topic
                    errors.append(None)
                except KafkaError as error:
                    errors.append(error.without_frames())
            try:
                topics.check_partition_total(
                    sum(len(topic.partitions) - len(image.topics[name].partitions) for name, topic in grown.items())
                )
            except PolicyViolation as error:
                return Change([error.without_frames()] * len(new))
            if validate_only or not grown:
                return Change(errors)
            operations: list[Operation] = []
            for name, topic in grown.items():
                operations += topics.growth(image.topics[name], topic, self.controller_epoch)
            return Change(errors, operations, image.with_topics(grown.values()))

        return await self._change(plan)

    async def delete_topics(self, keys: Sequence[TopicKey], count: Count | None = None) -> list[TopicResult]:
        """Delete topics with their logs. Results are in the order of the request."""
        if not self.config["delete.topic.enable"]:
            raise TopicDeletionDisabled("delete.topic.enable is false")
        return await self._shielded(self._delete_topics(keys, count))

    async def _delete_topics(self, keys: Sequence[TopicKey], count: Count | None) -> list[TopicResult]:
        async with self._lock:
            results = topics.resolve_deletions(self.image, keys)
            if count is not None:
                results = topics.counted(results, count)
            names = [result.topic.name for result in results if result.topic is not None]
            if names:
                await self._in_thread(self._multi, [topics.deletion_mark(name) for name in names])
                self._deleting |= frozenset(names)
                await self._remove_marked(names)
        return results

    async def _delete_marked(self, names: Sequence[str]) -> None:
        async with self._lock:
            await self._remove_marked(names)

    async def _remove_marked(self, names: Sequence[str]) -> None:
        """Carry out the steps after the mark. A topic with a failed step stays marked, its name stays taken, and the
        next start tries again.
        """
        await self._publish(self.image.without_topics(name for name in names if name in self.image.topics))
        await self._in_thread(self._delete_nodes, names)
        self._deleting -= frozenset(names)
        for name in names:
            log.info("topic %s: deleted", name)

    def _delete_nodes(self, names: Sequence[str]) -> None:
        self._multi([operation for name in names for operation in topics.deletion(name, self._store.exists)])

    # -- configs, features, credentials, producer ids -----------------------------------------------------------

    async def update_configs(
        self, updates: Sequence[ConfigUpdate], validate_only: bool = False
    ) -> list[KafkaError | None]:
        """Change the configs of topics, brokers and groups, each independently. Return an error or None for each
        update.
        """

        def plan(image: MetadataImage) -> Change[list[KafkaError | None]]:
            planner = configs.ConfigPlanner(image, self._static_config, self.node_id, self._store.exists, self._secrets)
            errors = [planner.update(update) for update in updates]
            if validate_only or not planner.operations:
                return Change(errors)
            return Change(errors, planner.operations, planner.image)

        errors = await self._change(plan)
        if not validate_only:
            for update, error in zip(updates, errors, strict=True):
                if error is None:
                    self._effects.update(update)
        return errors

    def config_after(self, update: ConfigUpdate) -> BrokerConfig:
        """Return the broker's config as it would be after an update. Raises KafkaError."""
        planner = configs.ConfigPlanner(
            self.image, self._static_config, self.node_id, self._store.exists, self._secrets
        )
        error = planner.update(update)
        if error is not None:
            raise error
        return configs.effective(self._static_config, planner.image, self.node_id)

    async def create_acls(self, wanted: Sequence[Acl]) -> list[KafkaError | None]:
        """Add ACLs, each independently. Return an error or None for each."""
        from klamm.broker.controller import acls  # needed only with an authorizer

        return await self._change(
            lambda image: acls.creation(image, wanted, lambda: startup.new_uuid(self._random_bytes))
        )

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[Removed]:
        """Remove the ACLs that match. Return the result of each filter."""
        from klamm.broker.controller import acls

        return await self._change(lambda image: acls.deletion(image, filters))

    async def alter_client_quotas(
        self, alterations: Sequence[Alteration], validate_only: bool = False
    ) -> list[KafkaError | None]:
        """Change client quotas, each entity independently. Return an error or None for each entry."""
        from klamm.broker.controller import client_quotas  # needed only when a quota is set

        def plan(image: MetadataImage) -> Change[list[KafkaError | None]]:
            planned = client_quotas.plan(image, alterations)
            if validate_only or not planned.operations:
                return Change(planned.errors)
            return Change(planned.errors, planned.operations, image.with_client_quotas(planned.changed))

        return await self._change(plan)

    async def update_features(self, updates: Sequence[FeatureUpdate], validate_only: bool = False) -> None:
        """Change finalized features, all or none. Raises InvalidUpdateVersion."""

        def plan(image: MetadataImage) -> Change[None]:
            levels = features.plan(image.features.finalized, updates, self.supported_features)
            if validate_only or levels == image.features.finalized:
                return Change(None)
            operations = [Set(paths.FEATURES, codec.features_value(levels), image.features.epoch)]
            return Change(None, operations, image.with_features(FeaturesImage(levels, image.features.epoch + 1)))

        await self._change(plan)

    async def alter_scram(
        self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
    ) -> Mapping[str, KafkaError | None]:
        """Change SCRAM credentials, each user independently. Return an error or None for each user."""

        from klamm.broker.controller import credentials  # rarely needed

        def plan(image: MetadataImage) -> Change[Mapping[str, KafkaError | None]]:
            planned = credentials.plan(image, deletions, upsertions)
            return Change(planned.errors, planned.operations, planned.image if planned.operations else None)

        return await self._change(plan)

    async def change_tokens(self, plan: Callable[[MetadataImage], Change[T]]) -> T:
        """Change delegation tokens by one of the plans of `tokens`. Raises its errors."""
        return await self._change(plan)

    async def allocate_producer_ids(self) -> tuple[int, int]:
        """Return (first id, count) of a new block, which is never allocated again, even after a crash."""

        def plan(_image: MetadataImage) -> Change[tuple[int, int]]:
            first, operation = startup.next_producer_id_block(
                self._store, self.node_id, PRODUCER_ID_BLOCK_SIZE, MAX_PRODUCER_ID
            )
            return Change((first, PRODUCER_ID_BLOCK_SIZE), [operation])

        return await self._change(plan)

    # -- helpers ------------------------------------------------------------------------------------------------

    def _before_listeners(self, old: MetadataImage, new: MetadataImage) -> None:
        if new.broker_configs is not old.broker_configs:
            self.config = configs.effective(self._static_config, new, self.node_id)

    def _defaults(self) -> topics.Defaults:
        return topics.Defaults(self.config.integer("num.partitions"), self.config.integer("default.replication.factor"))

    def _planner(self, image: MetadataImage, defaults: topics.Defaults, count: Count | None) -> TopicPlanner:
        return TopicPlanner(
            image,
            defaults,
            check_config=lambda overrides: configs.check_topic(overrides, self.config),
            new_topic_id=lambda: startup.new_uuid(self._random_bytes),
            placer=self._placer,
            reserved=self._deleting,
            count=count,
        )


def _partition_count(new: NewTopic, defaults: topics.Defaults) -> int:
    if new.assignments:
        return len(new.assignments)
    return defaults.partition_count if new.partition_count == topics.UNSET else max(new.partition_count, 0)
