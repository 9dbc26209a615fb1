"""Open the logs of a log directory at the start; after a crash, check them.

After a crash the clean-shutdown marker is missing, so logs are checked from their recovery points on. `klamm.boot`
holds the boot id of the machine when the directory was last loaded. If it differs now, the whole machine went down, not
only the process; `recovery/loader.py` treats the two differently. A deletion that the crash interrupted is finished. A
partition that cannot be opened is offline with its reason; it keeps its files and checkpoints, and the others start.

All of it blocks. If there is much to check, worker processes do it (`recovery/recovery_pool.py`), for all log
directories at once: so `LogLoading` begins for each directory before the first one is loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from klamm.protocol.errors import KafkaStorageError
from klamm.storage import checkpoints, known_damage, paths
from klamm.storage.checkpoints import CheckpointError
from klamm.storage.filesystem import OsFilesystem, describe, remove_tree, replace_file
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log_dir import LogDir, LogDirError
from klamm.storage.paths import TopicPartition
from klamm.storage.recovery.loader import LogDamaged, LogSource, open_log
from klamm.storage.recovery.recovery_pool import LARGE_BYTES, WORKER_BYTES, Outcome, RecoveryPool, unchecked
from klamm.storage.recovery.recovery_worker import Task
from klamm.storage.sync_threads import for_each

logger = logging.getLogger(__name__)

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class _Found(NamedTuple):
    """The state of a log directory before its logs are opened."""

    directories: list[str]
    clean: bool
    power_loss: bool


def load_logs(
    log_dir: LogDir,
    config_for: Callable[[str], LogConfig],
    *,
    expected: Callable[[TopicPartition], bool] = lambda _: False,
) -> LogDir:
    """Open every partition of one log directory, and return it. Raises LogDirError."""
    with closing(LogLoading(log_dir, config_for)) as loading:
        loading.load(expected)
    return log_dir


class LogLoading:
    """The steps that take one log directory from locked to loaded; `config_for` returns a topic's settings."""

    def __init__(self, log_dir: LogDir, config_for: Callable[[str], LogConfig]) -> None:
        self._log_dir = log_dir
        self._config_for = config_for
        self._path = log_dir.path
        self._filesystem = log_dir.filesystem
        self._found: _Found | None = None
        self._pool: RecoveryPool | None = None

    def begin(self, workers: int) -> bool:
        """Start worker processes that check the logs, if that is much work; return whether they were started.

        `load` waits for them. Where only this process can reach the logs, `load` does all the work. Raises LogDirError.
        """
        try:
            found = self._found = self._look()
            if found.clean or not isinstance(self._filesystem, OsFilesystem):
                return False
            tasks = self._recovery_tasks(found)
        except OSError as error:
            raise LogDirError(f"{self._path}: {describe(error)}") from error
        size_bytes = sum(task.size_bytes for _, task in tasks)
        if size_bytes < WORKER_BYTES:
            return False
        progress = self._log_dir.recovery
        progress.begin(len(found.directories), size_bytes)
        self._pool = RecoveryPool(tasks, workers, progress)
        return True

    def load(self, expected: Callable[[TopicPartition], bool]) -> None:
        """Open every partition in the directory. Raises LogDirError.

        An `expected` partition that has lost its directory is offline if a checkpoint holds an offset of it.
        """
        log_dir = self._log_dir
        try:
            found = self._found or self._look()
            self._open_logs(found)
            known_damage.load(log_dir)
            self._note_lost(expected)
            self._flush_recovered()
            if found.power_loss:  # so that the next start, after a crash that loses nothing, may trust them
                log_dir.reserve.lend_to(log_dir.write_checkpoints)
            log_dir.reserve.lend_to(log_dir.forget_missing)
            log_dir.reserve.lend_to(lambda: replace_file(self._filesystem, self._path / paths.BOOT, self._boot_id()))
        except OSError as error:
            raise LogDirError(f"{self._path}: {describe(error)}") from error
        finally:
            self.close()

    def close(self) -> None:
        """End the workers, whether or not they are done."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _open_logs(self, found: _Found) -> None:
        pool = self._pool
        for name in found.directories:
            if pool is None or name not in pool:
                self._load_directory(name, found)
                if pool is not None:
                    self._log_dir.recovery.log_done()
        if pool is not None:
            for outcome in pool.outcomes():
                self._import_kafka(outcome, found)
            self._log_dir.recovery.end()

    def _look(self) -> _Found:
        entries = self._filesystem.list_directory(self._path)
        clean = self._log_dir.offset_checkpoints.read() and self._log_dir.was_clean
        power_loss = not clean and self._machine_went_down()
        directories = sorted(entry.name for entry in entries if entry.is_directory)
        if not clean and directories:
            logger.info("%s: not closed cleanly, power_loss=%s: checking the logs", self._path, power_loss)
        return _Found(directories, clean, power_loss)

    def _recovery_tasks(self, found: _Found) -> list[tuple[TopicPartition, Task]]:
        """Return a task for each large log."""
        tasks = []
        for name in found.directories:
            partition = paths.parse_partition_directory(name)
            if partition is None or paths.is_delete_directory(name) or name == paths.METADATA_LOG_DIRECTORY:
                continue
            recovery_point = self._log_dir.offset_checkpoints.offset_of(paths.RECOVERY_POINT_CHECKPOINT, partition)
            segments, size_bytes = unchecked(self._filesystem, self._path / name, recovery_point)
            if size_bytes >= LARGE_BYTES:
                task = Task(
                    str(self._path / name),
                    self._config_for(partition.topic),
                    self._log_dir.offset_checkpoints.offset_of(paths.LOG_START_CHECKPOINT, partition),
                    recovery_point,
                    self._log_dir.offset_checkpoints.offset_of(paths.HIGH_WATERMARK_CHECKPOINT, partition),
                    found.power_loss,
                    str(self._log_dir.quarantine),
                    self._log_dir.producer_expiration_ms,
                    segments,
                    size_bytes,
                )
                tasks.append((partition, task))
        return tasks

    def _import_kafka(self, outcome: Outcome, found: _Found) -> None:
        name = str(outcome.partition)
        if outcome.reason is None:
            self._load_directory(name, found, recovered=outcome.recovered)
            return
        try:
            topic_id = self._read_topic_id(self._path / name)
        except (CheckpointError, OSError):
            topic_id = None
        self._log_dir.set_offline(outcome.partition, topic_id, outcome.reason)

    def _load_directory(self, name: str, found: _Found, *, recovered: bool = False) -> None:
        if paths.is_delete_directory(name):
            self._finish_deletion(name)
            return
        future = paths.future_partition(name)
        if future is not None:
            self._log_dir.futures.append((future, self._path / name))
            return
        partition = paths.parse_partition_directory(name)
        if partition is None or name == paths.METADATA_LOG_DIRECTORY:
            logger.warning("%s: %s is not a partition, left alone", self._path, name)
            return
        topic_id = None
        try:
            topic_id = self._read_topic_id(self._path / name)
            log = open_log(
                LogSource(
                    self._path / name,
                    self._config_for(partition.topic),
                    clock=self._log_dir.clock,
                    filesystem=self._filesystem,
                    log_start_offset=self._log_dir.offset_checkpoints.offset_of(paths.LOG_START_CHECKPOINT, partition),
                    recovery_point=self._log_dir.offset_checkpoints.offset_of(
                        paths.RECOVERY_POINT_CHECKPOINT, partition
                    ),
                    high_watermark=self._log_dir.offset_checkpoints.offset_of(
                        paths.HIGH_WATERMARK_CHECKPOINT, partition
                    ),
                    clean=found.clean,
                    power_loss=found.power_loss,
                    quarantine=self._log_dir.quarantine,
                    producer_expiration_ms=self._log_dir.producer_expiration_ms,
                    recovered=recovered,
                )
            )
        except (LogDamaged, CheckpointError, KafkaStorageError, OSError) as error:
            self._log_dir.set_offline(
                partition, topic_id, describe(error) if isinstance(error, OSError) else str(error)
            )
        except Exception as error:  # one bad partition must not stop the others
            logger.exception("%s: cannot be opened", partition)
            self._log_dir.set_offline(partition, topic_id, repr(error))
        else:
            log.topic_id = topic_id
            self._log_dir.take_in(partition, log)

    def _finish_deletion(self, name: str) -> None:
        logger.info("%s: finishing the deletion of %s", self._path, name)
        try:
            remove_tree(self._filesystem, self._path / name)
        except OSError as error:  # harmless: the directory is not in use
            logger.warning("%s: %s stays until the next start: %s", self._path, name, describe(error))

    def _note_lost(self, expected: Callable[[TopicPartition], bool]) -> None:
        """Mark partitions offline that had data and have lost their directory: they must not start empty."""
        log_dir = self._log_dir
        for name, partition, offset in log_dir.offset_checkpoints:
            known = partition in log_dir.logs or partition in log_dir.offline
            if offset > 0 and not known and expected(partition):
                log_dir.set_offline(partition, None, f"its directory is missing, {name} knows offset {offset}")

    def _flush_recovered(self) -> None:
        """Flush recovered logs that promise it (`flush.messages`): data in the page cache is served from now on."""
        logs = self._log_dir.logs.values()
        due = [log for log in logs if log.local.unflushed_messages >= log.local.config.flush_messages]

        def flush(log: Log) -> None:
            with suppress(KafkaStorageError):  # logged, and the directory is offline
                log.local.flush()

        for_each(flush, due)

    def _read_topic_id(self, directory: Path) -> bytes | None:
        try:
            content = self._filesystem.read_bytes(directory / paths.PARTITION_METADATA)
        except FileNotFoundError:
            return None
        return checkpoints.parse_partition_metadata(content)

    def _boot_id(self) -> bytes:
        try:
            return self._filesystem.read_bytes(BOOT_ID).strip() + b"\n"
        except OSError:  # not Linux: assume that only the process died
            return b"unknown\n"

    def _machine_went_down(self) -> bool:
        try:
            before = self._filesystem.read_bytes(self._path / paths.BOOT)
        except FileNotFoundError:
            return False
        return before != self._boot_id()
