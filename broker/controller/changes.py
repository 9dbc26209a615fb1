"""Metadata changes: how they become durable, then visible.

A change is planned against the current image, made durable in the store as one transaction, and then becomes the next
image. Planning and storing happen in one thread, so the loop never waits for the disk. Changes are made one at a time.
The order for listeners is::

    store.multi(...)   durable: from here on the change survives a crash
    prepare(old, new)  await: logs of new partitions are created while no request can reach them
    on_image(old, new) on the loop, no await: the change becomes visible at once
    settle()           await: logs of removed topics leave the disk
    return to the client

A failed transaction changes nothing and is KAFKA_STORAGE_ERROR for the client. A client that disconnects does not stop
a change half-way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from klamm.broker.metadata.image import MetadataImage
from klamm.broker.metadata.store import MetadataStore, Operation, StoreError
from klamm.protocol.errors import KafkaStorageError

log = logging.getLogger(__name__)

T = TypeVar("T")
OnImage = Callable[[MetadataImage, MetadataImage], None]
Prepare = Callable[[MetadataImage, MetadataImage], Awaitable[None]]
Settle = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Listener:
    """The callbacks for a new image; the head of the module has the steps."""

    on_image: OnImage
    prepare: Prepare | None = None
    settle: Settle | None = None


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """A plan: the result for the caller, the operations to store, and the next image (None: the old one stays)."""

    result: T
    operations: Sequence[Operation] = ()
    image: MetadataImage | None = None


class Changes:
    """The store and the image; the controller adds the kinds of changes."""

    def __init__(self, store: MetadataStore) -> None:
        self.image = MetadataImage()
        self._store = store
        self._listeners: list[Listener] = []
        self._lock = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="klamm-metadata")
        self._tasks: set[asyncio.Task[Any]] = set()

    def add_listener(self, on_image: OnImage, prepare: Prepare | None = None, settle: Settle | None = None) -> None:
        """Subscribe to new images, with the steps in the head of this module; listeners are called in the order they
        were added.
        """
        self._listeners.append(Listener(on_image, prepare, settle))

    def close(self) -> None:
        """End the session, which removes the registration. Blocks; call it when no change is in progress."""
        self._thread.shutdown(wait=True)
        self._store.close()

    async def _change(self, plan: Callable[[MetadataImage], Change[T]]) -> T:
        """Plan, store, publish. Raises the errors of the plan, and KafkaStorageError."""
        return await self._shielded(self._change_now(plan))

    async def _change_now(self, plan: Callable[[MetadataImage], Change[T]]) -> T:
        async with self._lock:
            change: Change[T] = await self._in_thread(self._plan_and_store, plan)
            if change.image is not None:
                await self._publish(change.image)
            return change.result

    async def with_store(self, work: Callable[[MetadataStore], T]) -> T:
        """Let ``work`` read and write nodes outside of the image, in the metadata thread. Raises KafkaStorageError."""

        return await self._in_thread(self.with_store_now, work)

    def with_store_now(self, work: Callable[[MetadataStore], T]) -> T:
        """Do the same in the caller's thread, which blocks: before the loop runs."""
        try:
            return work(self._store)
        except StoreError as error:
            raise KafkaStorageError(str(error)) from None

    def _plan_and_store(self, plan: Callable[[MetadataImage], Change[T]]) -> Change[T]:
        try:
            change = plan(self.image)  # changes only under the lock, which the caller holds
        except StoreError as error:
            raise KafkaStorageError(str(error)) from None
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
        """Publish the image to all listeners; if one fails, the others still get it.

        Errors of `settle` reach the caller: the logs of removed topics may still be there.
        """
        old = self.image
        for listener in self._listeners:
            if listener.prepare is not None:
                try:
                    await listener.prepare(old, new)
                except Exception:
                    log.exception("preparing a change of the metadata failed")
        self.image = new
        self._before_listeners(old, new)
        for listener in self._listeners:
            try:
                listener.on_image(old, new)
            except Exception:
                log.exception("a listener failed on a change of the metadata")
        for listener in self._listeners:
            if listener.settle is not None:
                await listener.settle()

    def _before_listeners(self, old: MetadataImage, new: MetadataImage) -> None:
        """Update state that follows from the image and that listeners read."""

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        result: T = await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)
        return result

    async def _shielded(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end even if the caller is cancelled: store and image must stay in step."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)
