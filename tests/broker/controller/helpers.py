"""A controller over a real store in a temporary directory, with a manual clock and foreseeable randomness."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from klamm.broker.controller.controller import Controller
from klamm.broker.metadata.image import BrokerImage, Endpoint, MetadataImage
from klamm.broker.metadata.sqlite_store import FILE_NAME, SqliteStore
from klamm.broker.metadata.store import MetadataStore, Operation, StoreUnavailable
from klamm.config import BrokerConfig
from tests.support.manual_clock import ManualClock

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


class FailingStore(SqliteStore):
    """A store that refuses the transactions with a number (from 0, since `arm`) in `failing`."""

    failing: frozenset[int] = frozenset()
    count = 0

    def arm(self, *failing: int) -> None:
        self.failing, self.count = frozenset(failing), 0

    def multi(self, operations: Sequence[Operation]) -> None:
        number, self.count = self.count, self.count + 1
        if number in self.failing:
            raise StoreUnavailable("no space")
        super().multi(operations)


@contextmanager
def controller(
    directory: Path,
    settings: dict[str, str] | None = None,
    *,
    clean: bool = True,
    others: Sequence[BrokerImage] = (),
    open_store: Callable[[Path], MetadataStore] = FailingStore,
    cluster_id: str | None = None,
) -> Iterator[Controller]:
    """A started controller of node 1; ``others`` are further live brokers."""
    store = open_store(directory / FILE_NAME)
    made = Controller(store, BrokerConfig(settings or {}), clock=ManualClock(), random_bytes=random.Random(7).randbytes)
    broker = BrokerImage(1, (Endpoint("PLAINTEXT", "127.0.0.1", 9092),))
    made.start(clean=clean, broker=broker, cluster_id=cluster_id)
    if others:
        made.image = made.image.with_brokers({1: broker, **{other.node_id: other for other in others}})
    try:
        yield made
    finally:
        made.close()


def store_of(made: Controller) -> FailingStore:
    assert isinstance(made._store, FailingStore)
    return made._store


def stored(directory: Path) -> MetadataImage:
    """What the next process would load."""
    with controller(directory) as made:
        return made.image
