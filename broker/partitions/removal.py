"""The end of the logs of deleted partitions: begun on the loop, carried out in the disk thread."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from klamm.broker.partitions.partition import FileWork, end_file_work

if TYPE_CHECKING:
    from klamm.storage.log_manager import LogManager, Removed


class LogRemovals:
    """Verbs: `begin` to delete, `wait` until all that was begun is gone from the disk."""

    def __init__(self, logs: LogManager, executor: Executor) -> None:
        self._logs = logs
        self._executor = executor
        self._under_way: list[asyncio.Task[None]] = []

    def begin(self, removed: Removed, work: Iterable[FileWork] = ()) -> None:
        """Delete the logs, as soon as the `work` is not at their files any more."""
        self._under_way.append(asyncio.get_running_loop().create_task(self._delete_after(removed, work)))

    async def _delete_after(self, removed: Removed, work: Iterable[FileWork]) -> None:
        """What works on the files goes by their names, which a topic that is made again has, too: it ends first."""
        await end_file_work(work)
        await asyncio.get_running_loop().run_in_executor(self._executor, self._logs.delete, removed)

    async def wait(self) -> None:
        """Return when all of it is deleted; raises KafkaStorageError for those that stay."""
        while self._under_way:
            under_way, self._under_way = self._under_way, []
            for result in await asyncio.gather(*under_way, return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result
