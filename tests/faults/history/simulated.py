"""A broker in this process over a disk in memory, which can die, and lose its power, between any two steps.

Requests go through the codecs and the dispatcher. A connection may break before the broker has the request, or after it
has answered: the client does not know which. `kill` is the death of the process, `power_cut` that of the machine, after
which only synced data is certain to be there.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from klamm.broker.apis.dispatcher import Dispatcher
from klamm.broker.broker import Broker
from klamm.broker.network.response import PendingResponse
from klamm.broker.server import Server
from klamm.config.broker_config import BrokerConfig
from klamm.storage.clock import SystemClock
from tests.faults.history.workload import Gone
from tests.support.embedded import FakeConnection, decode_reply, encode_frame
from tests.support.memory_filesystem import MemoryFilesystem

BREAKS = 0.02
"""How often a connection breaks before, and how often after a request."""


SMALL = {
    "node.id": "1",
    "klamm.scrub.bytes.per.second": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "log.roll.ms": "300",
}
"""Little to wait for and to read back, and many segments."""


class SimulatedBroker:
    """The broker that the processes of a workload talk to."""

    def __init__(self, path: Path, rng: random.Random, config: Mapping[str, object] | None = None) -> None:
        self._rng = rng
        self._clock = SystemClock()
        self._filesystem = MemoryFilesystem(self._clock.wall_ms)
        self._filesystem.make_directories(path.resolve())
        for parent in path.resolve().parents:
            self._filesystem.sync_directory(parent)
        originals = SMALL | {"log.dirs": str(path.resolve())}
        self._config = BrokerConfig(originals | {name: str(value) for name, value in (config or {}).items()})
        path.mkdir(parents=True, exist_ok=True)
        self._connection: FakeConnection
        self._death: asyncio.Future[None] | None = None
        self._server: Server
        self._dispatcher: Dispatcher
        self.broker: Broker

    async def start(self) -> None:
        """Start, or start again."""
        self._server = Server(self._config, clock=self._clock, filesystem=self._filesystem)
        self._server.open()
        self.broker = self._server.wire()
        self._dispatcher = Dispatcher(self.broker)
        self._connection = FakeConnection()  # the state of the old one died with it
        await self.broker.controller.finish_deletions()
        self.broker.groups.start()
        self.broker.transactions.start()
        self._death = asyncio.get_running_loop().create_future()

    def kill(self) -> None:
        """The process dies."""
        self._die()
        self._filesystem.kill()

    def power_cut(self) -> None:
        """The machine dies."""
        self._die()
        self._filesystem.crash(self._rng)

    def _die(self) -> None:
        assert self._death is not None
        self._death.set_result(None)
        self._filesystem.generation += 1  # nothing that still runs writes any more
        self.broker.groups.close()
        self.broker.transactions.close()
        if self.broker.flusher._task is not None:
            self.broker.flusher._task.cancel()
        with contextlib.suppress(Exception):
            self._server.crash()

    async def request(self, request: Any, version: int) -> Any:
        """The answer; Gone when the connection broke: the request may have been carried out or not."""
        await asyncio.sleep(0)
        death = self._death
        if death is None or death.done() or self._rng.random() < BREAKS:
            raise Gone
        frame = encode_frame(request, version, "history")
        answer = self._dispatcher(self._connection, frame)  # type: ignore[arg-type]
        if isinstance(answer, PendingResponse):
            future = answer.future
            await asyncio.wait((future, death), return_when=asyncio.FIRST_COMPLETED)
            answer = future.result() if future.done() else None
        if death.done() or self._rng.random() < BREAKS:
            raise Gone
        return decode_reply(answer, request.api_key, version)
