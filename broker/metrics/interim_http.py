"""Metrics and health while logs are being recovered, before the event loop runs.

A thread serves the address of `klamm.metrics.listener` while the block lasts: `/metrics` shows the progress of the
recovery, `/healthz` that the process lives, `/readyz` that it does not serve yet. The recovery runs in worker
processes, so the thread does not slow it down. If the address is not available, the broker reports that later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

from klamm.broker.metrics.http import HttpServer, parse_listener

if TYPE_CHECKING:
    from klamm.broker.metrics import Metrics
    from klamm.broker.metrics.access import Access

log = logging.getLogger(__name__)


class InterimHttp:
    """A context manager; `address` is None when nothing is served."""

    def __init__(self, metrics: Metrics, listener: str, state: str, *, access: Access | None = None) -> None:
        self._server = HttpServer(metrics, healthy=lambda: None, ready=lambda: state, access=access)
        self._listener = listener
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="klamm-interim-http")
        self.address: tuple[str, int] | None = None

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            wanted = parse_listener(self._listener)
            if wanted is None:
                return
            self.address = await self._server.start(*wanted)
        except (OSError, ValueError) as error:
            log.debug("no metrics while logs are recovered: %s", error)
            return
        log.info("metrics while logs are recovered: http://%s:%d/metrics", *self.address)
        self._started.set()
        await self._stop.wait()
        await self._server.close()

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._loop is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
