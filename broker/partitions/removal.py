"""Deletion of the logs of deleted partitions: started on the loop, carried out in the disk thread."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from klamm.broker.partitions.partition import FileWork, end_file_work

if TYPE_CHECKING:
    from klamm.storage.log_manager import LogManager, Removed


class LogRemovals:
    """Verbs: `begin` to delete, `wait` until all those logs are gone from the disk."""

    def __init__(self, logs: LogManager, executor: Executor) -> None:
        self._logs = logs
        self._executor = executor
        self._under_way: list[asyncio.Task[None]] = []

    def begin(self, removed: Removed, work: Iterable[FileWork] = ()) -> None:
        """Delete the logs, as soon as the `work` no longer uses their files."""
        self._under_way.append(asyncio.get_running_loop().create_task(self._delete_after(removed, work)))

    async def _delete_after(self, removed: Removed, work: Iterable[FileWork]) -> None:
        """Delete the logs after the `work` has ended: it uses paths, and a topic that is created again has the same
        paths.
        """
        await end_file_work(work)
        await asyncio.get_running_loop().run_in_executor(self._executor, self._logs.delete, removed)

    async def wait(self) -> None:
        """Wait until all of it is deleted. Raises KafkaStorageError if some logs stay."""
        while self._under_way:
            under_way, self._under_way = self._under_way, []
            for result in await asyncio.gather(*under_way, return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result
