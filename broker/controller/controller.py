"""The controller: every change of the cluster's metadata, one at a time.

A change is planned against the current image, made durable in the store as one transaction, and then becomes the next
image; planning and storing happen in one thread, so the loop never waits for the disk. The order for listeners is::

    store.multi(...)   durable: from here on the change survives a crash
    prepare(old, new)  await: logs of new partitions are made while nobody can ask for them
    on_image(old, new) on the loop, no await: everybody sees the change at once
    settle()           await: logs of removed topics leave the disk
    return to the client

Deletion of a topic has two transactions: the first marks it in ``/admin/delete_topics``, the second, after the logs,
removes its nodes. After a crash between them `finish_deletions` goes on. A failed transaction changes nothing and is
KAFKA_STORAGE_ERROR for the client. A client that goes away does not stop a change half-way.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from klamm.broker.controller import configs, features, startup, topics
from klamm.broker.controller.configs import ConfigUpdate
from klamm.broker.controller.features import FeatureUpdate
from klamm.broker.controller.placement import Placer
from klamm.broker.controller.topics import NewPartitions, NewTopic, TopicKey, TopicPlanner, TopicResult
from klamm.broker.metadata import codec, paths
from klamm.broker.metadata.image import BrokerImage, FeaturesImage, MetadataImage
from klamm.broker.metadata.store import MetadataStore, Operation, Set, StoreError
from klamm.protocol.errors import KafkaError, KafkaStorageError, PolicyViolation, TopicDeletionDisabled

if TYPE_CHECKING:
    from klamm.config.broker_config import BrokerConfig
    from klamm.storage.clock import Clock

log = logging.getLogger(__name__)

T = TypeVar("T")
PRODUCER_ID_BLOCK_SIZE = 1_000
MAX_PRODUCER_ID = 2**63 - 1

OnImage = Callable[[MetadataImage, MetadataImage], None]
Prepare = Callable[[MetadataImage, MetadataImage], Awaitable[None]]
Settle = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Listener:
    """Who is told of a new image; the steps are in the head of the module."""

    on_image: OnImage
    prepare: Prepare | None = None
    settle: Settle | None = None


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """A plan: what the caller gets, what is to be stored, and the image that follows (None: the old one stays)."""

    result: T
    operations: Sequence[Operation] = ()
    image: MetadataImage | None = None


class Controller:
    """Owns the image and the store. Make it, `start` it (blocking), add listeners, then `finish_deletions`."""

    def __init__(
        self,
        store: MetadataStore,
        config: BrokerConfig,
        *,
        clock: Clock,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.image = MetadataImage()
        self.config = config
        self.node_id: int = config.node_id
        self.supported_features: Mapping[str, tuple[int, int]] = features.SUPPORTED
        self.controller_epoch = 0
        self._static_config = config
        self._store = store
        self._clock = clock
        self._random_bytes = random_bytes
        self._placer = Placer(lambda below: int.from_bytes(random_bytes(4), "big") % below)
        self._listeners: list[Listener] = []
        self._lock = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="klamm-metadata")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._deleting: frozenset[str] = frozenset()
        self._auto: dict[str, asyncio.Future[KafkaError | None]] = {}
        self._auto_task: asyncio.Task[None] | None = None

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self, *, clean: bool, cluster_id: str | None = None, broker: BrokerImage | None = None) -> None:
        """Load the image and take office. Blocks; before the loop serves anybody.

        ``clean``: the last stop was a clean one; else every partition gets a new leader epoch, so clients look whether
        the log was cut. ``cluster_id`` is used for a new cluster and must fit an old one. ``broker`` is the
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
        self.config = configs.effective(self._static_config, self.image, self.node_id)

    async def finish_deletions(self) -> None:
        """Delete what was marked before a crash. Call it when the listeners are there and before clients are.

        Until then the marked topics are in the image, so their logs are opened and then removed like any other.
        """
        if self._deleting:
            log.info("finishing the deletion of topics: %s", ", ".join(sorted(self._deleting)))
            await self._shielded(self._delete_marked(sorted(self._deleting)))

    def close(self) -> None:
        """Resign: the registration goes away with the session. Blocks; call it when no change is under way."""
        self._thread.shutdown(wait=True)
        self._store.close()

    def add_listener(self, on_image: OnImage, prepare: Prepare | None = None, settle: Settle | None = None) -> None:
        """Tell of every new image, in the order of the head of this module; listeners in the order they were added."""
        self._listeners.append(Listener(on_image, prepare, settle))

    async def register(self, broker: BrokerImage) -> None:
        """Replace the registration of this broker, as its ports are known now."""

        def plan(image: MetadataImage) -> Change[None]:
            value = codec.broker_value(broker, self._clock.wall_ms())
            operations = [Set(paths.broker_id(broker.node_id), value)]
            return Change(None, operations, image.with_brokers({**image.brokers, broker.node_id: broker}))

        await self._change(plan)

    async def metadata_offset(self) -> int:
        """How many changes the metadata has seen (DescribeQuorum's log end)."""
        return await self._in_thread(self._store.revision)

    # -- topics -------------------------------------------------------------------------------------------------

    @staticmethod
    def check_topic_name(name: str) -> None:
        """Raise InvalidTopicException unless a topic may have this name."""
        topics.check_name(name)

    async def create_topics(self, new: Sequence[NewTopic], validate_only: bool = False) -> list[TopicResult]:
        """Make topics, each for itself; results are in the order of the request."""

        def plan(image: MetadataImage) -> Change[list[TopicResult]]:
            defaults = self._defaults()
            total = sum(_partition_count(topic, defaults) for topic in new)
            try:
                topics.check_partition_total(total)
            except PolicyViolation as error:
                return Change([TopicResult(topic.name, error) for topic in new])
            planner = self._planner(image, defaults)
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
        return results

    async def auto_create(self, names: Iterable[str]) -> dict[str, KafkaError]:
        """Make those topics that do not exist, if ``auto.create.topics.enable``; the errors of those that failed.

        Concurrent callers share the work: each name is made once, all names that wait in one transaction.
        """
        if not self.config["auto.create.topics.enable"]:
            return {}
        loop = asyncio.get_running_loop()
        waiting = {}
        for name in names:
            if name not in self.image.topics:
                waiting[name] = self._auto.get(name) or self._auto.setdefault(name, loop.create_future())
        if not waiting:
            return {}
        if self._auto_task is None:
            self._auto_task = loop.create_task(self._auto_create_all())
        await asyncio.wait(waiting.values())
        outcomes = {name: future.result() for name, future in waiting.items()}
        return {name: error for name, error in outcomes.items() if error is not None}

    async def _auto_create_all(self) -> None:
        try:
            while self._auto:
                batch, self._auto = self._auto, {}
                try:
                    results = await self.create_topics([configs.automatic_topic(name, self.config) for name in batch])
                    errors = {result.name: result.error for result in results}
                except KafkaError as error:
                    errors = dict.fromkeys(batch, error)
                except Exception:
                    log.exception("automatic creation of %d topic(s) failed", len(batch))
                    errors = dict.fromkeys(batch, KafkaStorageError("the topic could not be created"))
                for name, future in batch.items():
                    failure = errors[name]
                    if name in self.image.topics:
                        failure = None  # somebody else was faster
                    if not future.done():
                        future.set_result(failure)
        finally:
            self._auto_task = None

    async def create_partitions(
        self, new: Sequence[NewPartitions], validate_only: bool = False
    ) -> list[KafkaError | None]:
        """Add partitions, to each topic for itself; one error or None for each entry."""

        def plan(image: MetadataImage) -> Change[list[KafkaError | None]]:
            errors: list[KafkaError | None] = []
            grown = {}
            for entry in new:
                try:
                    grown[entry.name] = topics.grow(image, entry, self._placer)
                    errors.append(None)
                except KafkaError as error:
                    errors.append(error)
            try:
                topics.check_partition_total(
                    sum(len(topic.partitions) - len(image.topics[name].partitions) for name, topic in grown.items())
                )
            except PolicyViolation as error:
                return Change([error] * len(new))
            if validate_only or not grown:
                return Change(errors)
            operations: list[Operation] = []
            for name, topic in grown.items():
                operations += topics.growth(image.topics[name], topic, self.controller_epoch)
            return Change(errors, operations, image.with_topics(grown.values()))

        return await self._change(plan)

    async def delete_topics(self, keys: Sequence[TopicKey]) -> list[TopicResult]:
        """Delete topics with their logs; results are in the order of the request."""
        if not self.config["delete.topic.enable"]:
            raise TopicDeletionDisabled("delete.topic.enable is false")
        return await self._shielded(self._delete_topics(keys))

    async def _delete_topics(self, keys: Sequence[TopicKey]) -> list[TopicResult]:
        async with self._lock:
            results = topics.resolve_deletions(self.image, keys)
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
        """The steps after the mark. What fails stays marked, its name stays taken, and the next start goes on."""
        await self._publish(self.image.without_topics(name for name in names if name in self.image.topics))
        operations = [operation for name in names for operation in topics.deletion(name)]
        await self._in_thread(self._multi, operations)
        self._deleting -= frozenset(names)
        for name in names:
            log.info("topic %s: deleted", name)

    # -- configs, features, producer ids ------------------------------------------------------------------------

    async def update_configs(
        self, updates: Sequence[ConfigUpdate], validate_only: bool = False
    ) -> list[KafkaError | None]:
        """Change the configs of topics and brokers, each for itself; one error or None for each update."""

        def plan(image: MetadataImage) -> Change[list[KafkaError | None]]:
            planner = configs.ConfigPlanner(image, self._static_config, self.node_id, self._store.exists)
            errors = [planner.update(update) for update in updates]
            if validate_only or not planner.operations:
                return Change(errors)
            return Change(errors, planner.operations, planner.image)

        return await self._change(plan)

    async def update_features(self, updates: Sequence[FeatureUpdate], validate_only: bool = False) -> None:
        """Change finalized features, all or none; raises InvalidUpdateVersion."""

        def plan(image: MetadataImage) -> Change[None]:
            levels = features.plan(image.features.finalized, updates, self.supported_features)
            if validate_only or levels == image.features.finalized:
                return Change(None)
            operations = [Set(paths.FEATURES, codec.features_value(levels), image.features.epoch)]
            return Change(None, operations, image.with_features(FeaturesImage(levels, image.features.epoch + 1)))

        await self._change(plan)

    async def allocate_producer_ids(self) -> tuple[int, int]:
        """(first id, count) of a block that nobody else gets, even after a crash."""

        def plan(_image: MetadataImage) -> Change[tuple[int, int]]:
            first, operation = startup.next_producer_id_block(
                self._store, self.node_id, PRODUCER_ID_BLOCK_SIZE, MAX_PRODUCER_ID
            )
            return Change((first, PRODUCER_ID_BLOCK_SIZE), [operation])

        return await self._change(plan)

    # -- the one way of changing --------------------------------------------------------------------------------

    async def _change(self, plan: Callable[[MetadataImage], Change[T]]) -> T:
        """Plan, store, publish. Raises what the plan raises, and KafkaStorageError."""
        return await self._shielded(self._change_now(plan))

    async def _change_now(self, plan: Callable[[MetadataImage], Change[T]]) -> T:
        async with self._lock:
            change: Change[T] = await self._in_thread(self._plan_and_store, plan)
            if change.image is not None:
                await self._publish(change.image)
            return change.result

    def _plan_and_store(self, plan: Callable[[MetadataImage], Change[T]]) -> Change[T]:
        change = plan(self.image)  # only changes under the lock, which the caller holds
        if change.operations:
            self._multi(change.operations)
        return change

    def _multi(self, operations: Sequence[Operation]) -> None:
        try:
            self._store.multi(operations)
        except StoreError as error:
            log.error("a change of the metadata was not stored: %s", error)
            raise KafkaStorageError(str(error)) from None

    async def _publish(self, new: MetadataImage) -> None:
        """Show the image to everybody; a listener that fails does not keep it from the others."""
        old = self.image
        for listener in self._listeners:
            if listener.prepare is not None:
                try:
                    await listener.prepare(old, new)
                except Exception:
                    log.exception("preparing a change of the metadata failed")
        self.image = new
        if new.broker_configs is not old.broker_configs:
            self.config = configs.effective(self._static_config, new, self.node_id)
        for listener in self._listeners:
            try:
                listener.on_image(old, new)
            except Exception:
                log.exception("a listener failed on a change of the metadata")
        for listener in self._listeners:
            if listener.settle is not None:
                await listener.settle()

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        result: T = await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)
        return result

    async def _shielded(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end even if the caller is cancelled: store and image must not part."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    # -- helpers ------------------------------------------------------------------------------------------------

    def _defaults(self) -> topics.Defaults:
        return topics.Defaults(self.config.integer("num.partitions"), self.config.integer("default.replication.factor"))

    def _planner(self, image: MetadataImage, defaults: topics.Defaults) -> TopicPlanner:
        return TopicPlanner(
            image,
            defaults,
            check_config=lambda overrides: configs.check_topic(overrides, self.config),
            new_topic_id=lambda: startup.new_uuid(self._random_bytes),
            placer=self._placer,
            reserved=self._deleting,
        )


def _partition_count(new: NewTopic, defaults: topics.Defaults) -> int:
    if new.assignments:
        return len(new.assignments)
    return defaults.partition_count if new.partition_count == topics.UNSET else max(new.partition_count, 0)
