"""A broker process that dies, stops for a while and comes back, as the node of a workload.

Each request has a connection for itself while it waits, as JoinGroup may do for long; an idle one is used again. A
connection may break once its request is sent: the client does not know whether it was carried out.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

from klamm.client.asynchronous import AsyncNodeClient
from klamm.client.errors import ClientError
from tests.faults.history.simulated import BREAKS, SMALL
from tests.faults.history.workload import Gone
from tests.support.broker_process import BrokerProcess

TIMEOUT_S = 10.0
MAX_PAUSE_S = 1.0


class RealBroker:
    """The broker that the processes of a workload talk to, and its faults."""

    def __init__(self, path: Path, rng: random.Random) -> None:
        self._rng = rng
        self._idle: list[AsyncNodeClient] = []
        self.process = BrokerProcess(path, SMALL)
        self.faults: Counter[str] = Counter()

    async def start(self) -> None:
        """Start, or start again."""
        await asyncio.to_thread(self.process.start)

    async def kill(self) -> None:
        """kill -9."""
        await asyncio.to_thread(self.process.kill)

    async def fault(self) -> None:
        """Inject one of the faults of a process."""
        what = self._rng.choice(("kill", "kill", "pause", "restart"))
        self.faults[what] += 1
        if what == "pause":
            self.process.signal(signal.SIGSTOP)
            await asyncio.sleep(self._rng.random() * MAX_PAUSE_S)
            self.process.signal(signal.SIGCONT)
            return
        if what == "restart":
            assert await asyncio.to_thread(self.process.terminate) == 0
        else:
            await self.kill()
        await self.start()

    async def request(self, request: Any, version: int) -> Any:
        """The answer; Gone when the connection broke: the request may have been carried out or not."""
        client = await self._connection()
        try:
            if self._rng.random() < BREAKS:
                client.send(request, version)
                await asyncio.sleep(self._rng.random() * 0.002)
                raise Gone
            answer = await client.request(request, version)
        except ClientError as error:
            raise Gone from error
        except BaseException:
            client.close()
            raise
        self._idle.append(client)
        return answer

    async def _connection(self) -> AsyncNodeClient:
        if self._idle:
            return self._idle.pop()
        client = AsyncNodeClient(self.process.host, self.process.port, timeout_s=TIMEOUT_S, negotiate=False)
        try:
            await client.connect()
        except ClientError as error:
            raise Gone from error
        return client

    async def close(self) -> None:
        """End the remaining processes and connections."""
        for client in self._idle:
            client.close()
        if self.process._process is not None:
            await self.kill()
