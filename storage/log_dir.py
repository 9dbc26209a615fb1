"""One log directory: its lock, identity and checkpoints, and the logs of its partitions.

Life: `open` takes the lock (before anything is written), checks `meta.properties` and takes the clean-shutdown marker
away; `load_logs` opens what is there; `create_log` and `delete_log` in between; `checkpoint` from time to time;
`close` makes all durable and writes the marker, if every log closed well.

After a crash: the marker is missing, so logs are checked from their recovery points on. `klamm.boot` holds the boot
id of the machine when the directory was last loaded: when it differs now, the machine went down, and not only the
process (`loader.py` makes a difference). A deletion that was under way is finished. A partition that cannot be opened
is offline with its reason, keeps its files and checkpoints, and stops nobody else.

On a full disk what deletes has a reserve (`reserve.py`): while that is let go, nothing is appended or made here.

Blocking: all of it; `checkpoint` and `delete_log` may run in a thread beside appends.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from klamm.protocol.errors import KafkaStorageError
from klamm.protocol.wire import uuid_to_text
from klamm.storage import checkpoints, paths
from klamm.storage.checkpoints import CheckpointError, MetaProperties
from klamm.storage.clock import Clock, SystemClock
from klamm.storage.filesystem import (
    NO_SPACE,
    Filesystem,
    Lock,
    LockedByUs,
    NoSpace,
    OsFilesystem,
    describe,
    make_durable_directory,
    replace_file,
    storage_errors,
    unlink_if_exists,
)
from klamm.storage.identity import WrongOwner, identify
from klamm.storage.known_offsets import KnownOffsets
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.paths import TopicPartition
from klamm.storage.recovery.loader import LogDamaged
from klamm.storage.recovery.recovery_pool import LARGE_BYTES, WORKER_BYTES, Outcome, Progress, RecoveryPool, unchecked
from klamm.storage.recovery.recovery_worker import Task
from klamm.storage.reserve import Reserve
from klamm.storage.scrub import scrub_state
from klamm.storage.scrub.scrub_state import KnownDamage, ScrubState

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

MANY = 32
SYNC_THREADS = 16

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class LogDirError(Exception):
    """The directory cannot be used; one line for the operator. Nothing in it was changed."""


class LogDirLocked(LogDirError):
    """Another process uses the directory, or we do already under another name."""


class CreationLeftOver(KafkaStorageError):
    """A partition could not be made, and something of it stays in the directory: it must not be made in another."""


@dataclass(frozen=True, slots=True)
class OfflineLog:
    """A partition that could not be opened."""

    partition: TopicPartition
    topic_id: bytes | None
    reason: str


@dataclass(frozen=True, slots=True)
class LoadedLogs:
    """What `load_logs` found."""

    logs: dict[TopicPartition, Log]
    offline: dict[TopicPartition, OfflineLog]


@dataclass(frozen=True, slots=True)
class NewLog:
    """A log to be created."""

    topic: str
    partition: int
    topic_id: bytes
    config: LogConfig


class _Found(NamedTuple):
    """What a log dir is found to be before its logs are opened."""

    directories: list[str]
    clean: bool
    power_loss: bool


class LogDir:
    """An open, locked log directory."""

    def __init__(
        self,
        path: Path,
        meta: MetaProperties,
        lock: Lock,
        *,
        clean: bool,
        clock: Clock,
        filesystem: Filesystem,
        quarantine: Path | None = None,
        producer_expiration_ms: int = 86_400_000,
        reserve_bytes: int = 0,
    ) -> None:
        self.path = path
        self.meta = meta
        self.was_clean = clean
        self.offline_reason: str | None = None
        self.logs: dict[TopicPartition, Log] = {}
        self.offline: dict[TopicPartition, OfflineLog] = {}
        self.futures: list[tuple[TopicPartition, Path]] = []  # moves into this directory that were interrupted
        self.rolled: set[Log] = set()  # that may have complete segments that are not durable
        self._leaving: set[TopicPartition] = set()
        self._lock = lock
        self._clock = clock
        self._filesystem = filesystem
        self._quarantine = quarantine if quarantine is not None else path.with_name(path.name + ".cut")
        self._producer_expiration_ms = producer_expiration_ms
        self._marker = checkpoints.format_clean_shutdown(-1)
        self._known = KnownOffsets(filesystem, path)
        self._rising: dict[Log, int] = {}  # log starts that are durable before they move in memory
        self.reserve = Reserve(filesystem, path, reserve_bytes)
        self.recovery = Progress(str(path), clock)
        self.scrub = ScrubState()
        self._found: _Found | None = None
        self._pool: RecoveryPool | None = None

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        node_id: int,
        cluster_id: str | None = None,
        clock: Clock | None = None,
        filesystem: Filesystem | None = None,
        quarantine: Path | None = None,
        producer_expiration_ms: int = 86_400_000,
        reserve_bytes: int = 0,
    ) -> LogDir:
        """Create or take over a directory. Raises LogDirLocked or LogDirError.

        Without a `cluster_id`, that of `meta.properties` is taken, or a new one made. `quarantine` (default: beside the
        directory, with `.cut` at the end) is where bytes go that have to be cut out of a log after a power cut. The
        reserve for a full disk has `reserve_bytes` (`reserve.py`), once `open_reserve` was called.
        """
        clock = clock if clock is not None else SystemClock()
        filesystem = filesystem if filesystem is not None else OsFilesystem()
        try:
            make_durable_directory(filesystem, path)
            lock = filesystem.lock(path / paths.LOCK)
        except LockedByUs as error:
            raise LogDirLocked(f"{path} is the same directory as {error.path.parent}: name it once") from error
        except BlockingIOError as error:
            raise LogDirLocked(f"{path}: another process holds {paths.LOCK}") from error
        except OSError as error:
            raise LogDirError(f"{path}: {describe(error)}") from error
        try:
            meta = identify(filesystem, path, node_id, cluster_id)
            clean = filesystem.exists(path / paths.CLEAN_SHUTDOWN)
            marker = b""
            if clean:
                marker = filesystem.read_bytes(path / paths.CLEAN_SHUTDOWN)
                filesystem.unlink(path / paths.CLEAN_SHUTDOWN)
                filesystem.sync_directory(path)
        except OSError as error:
            lock.release()
            raise LogDirError(f"{path}: {describe(error)}") from error
        except WrongOwner as error:
            lock.release()
            raise LogDirError(str(error)) from error
        log_dir = cls(
            path,
            meta,
            lock,
            clean=clean,
            clock=clock,
            filesystem=filesystem,
            quarantine=quarantine,
            producer_expiration_ms=producer_expiration_ms,
            reserve_bytes=reserve_bytes,
        )
        log_dir._marker = marker
        return log_dir

    @property
    def filesystem(self) -> Filesystem:
        return self._filesystem

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def directory_id(self) -> str:
        """What tells this directory from every other, whatever its path."""
        return self.meta.directory_id

    @property
    def producer_expiration_ms(self) -> int:
        """How long logs remember a silent producer; it may change while they are open."""
        return self._producer_expiration_ms

    @producer_expiration_ms.setter
    def producer_expiration_ms(self, value: int) -> None:
        self._producer_expiration_ms = value
        for log in list(self.logs.values()):
            log.producers.expiration_ms = value

    # Loading

    def partitions_on_disk(self) -> set[TopicPartition]:
        """The partitions that have a directory here, opened or not. Raises LogDirError."""
        try:
            entries = self._filesystem.list(self.path)
        except OSError as error:
            raise LogDirError(f"{self.path}: {describe(error)}") from error
        found = (paths.parse_partition_directory(entry.name) for entry in entries if entry.is_directory)
        return {partition for partition in found if partition is not None}

    def load_logs(
        self,
        config_for: Callable[[str], LogConfig],
        *,
        expected: Callable[[TopicPartition], bool] = lambda _: False,
    ) -> LoadedLogs:
        """Open every partition in the directory; `config_for` gives a topic's settings. Raises LogDirError.

        A partition that is `expected` and has lost its directory is offline when a checkpoint knows of data in it.
        """
        try:
            found = self._found or self._look()
            pool = self._pool
            for name in found.directories:
                if pool is None or name not in pool:
                    self._load_directory(name, config_for, found)
                    if pool is not None:
                        self.recovery.log_done()
            if pool is not None:
                for outcome in pool.outcomes():
                    self._take_over(outcome, config_for, found)
                self.recovery.end()
            self._load_scrub()
            self._note_lost(expected)
            self._flush_recovered()
            if found.power_loss:  # the next start may follow a crash that loses nothing, and takes them at their word
                self._with_reserve(self._write_checkpoints)
            self._with_reserve(self._forget_missing)
            self._with_reserve(lambda: replace_file(self._filesystem, self.path / paths.BOOT, self._boot_id()))
        except OSError as error:
            raise LogDirError(f"{self.path}: {describe(error)}") from error
        finally:
            if self._pool is not None:
                self._pool.close()
                self._pool = None
        return LoadedLogs(self.logs, self.offline)

    def begin_recovery(self, config_for: Callable[[str], LogConfig], workers: int) -> bool:
        """Let worker processes check the logs, if that is much work, until `load_logs` waits for them; whether it is.

        Raises LogDirError. Where the logs can only be reached by this process, `load_logs` does it all.
        """
        try:
            found = self._found = self._look()
            if found.clean or not isinstance(self._filesystem, OsFilesystem):
                return False
            tasks = self._recovery_tasks(found, config_for)
        except OSError as error:
            raise LogDirError(f"{self.path}: {describe(error)}") from error
        size_bytes = sum(task.size_bytes for _, task in tasks)
        if size_bytes < WORKER_BYTES:
            return False
        self.recovery.begin(len(found.directories), size_bytes)
        self._pool = RecoveryPool(tasks, workers, self.recovery)
        return True

    def _look(self) -> _Found:
        entries = self._filesystem.list(self.path)
        clean = self._known.read() and self.was_clean
        power_loss = not clean and self._machine_went_down()
        directories = sorted(entry.name for entry in entries if entry.is_directory)
        if not clean and directories:
            logger.info("%s: not closed cleanly, power_loss=%s: checking the logs", self.path, power_loss)
        return _Found(directories, clean, power_loss)

    def _recovery_tasks(
        self, found: _Found, config_for: Callable[[str], LogConfig]
    ) -> list[tuple[TopicPartition, Task]]:
        """The large ones."""
        tasks = []
        for name in found.directories:
            partition = paths.parse_partition_directory(name)
            if partition is None or paths.is_delete_directory(name) or name == paths.METADATA_LOG_DIRECTORY:
                continue
            recovery_point = self._known.of(paths.RECOVERY_POINT_CHECKPOINT, partition)
            segments, size_bytes = unchecked(self._filesystem, self.path / name, recovery_point)
            if size_bytes >= LARGE_BYTES:
                task = Task(
                    str(self.path / name),
                    config_for(partition.topic),
                    self._known.of(paths.LOG_START_CHECKPOINT, partition),
                    recovery_point,
                    self._known.of(paths.HIGH_WATERMARK_CHECKPOINT, partition),
                    found.power_loss,
                    str(self._quarantine),
                    self._producer_expiration_ms,
                    segments,
                    size_bytes,
                )
                tasks.append((partition, task))
        return tasks

    def _take_over(self, outcome: Outcome, config_for: Callable[[str], LogConfig], found: _Found) -> None:
        name = str(outcome.partition)
        if outcome.reason is None:
            self._load_directory(name, config_for, found, recovered=outcome.recovered)
            return
        try:
            topic_id = self._read_topic_id(self.path / name)
        except (CheckpointError, OSError):
            topic_id = None
        self._set_offline(outcome.partition, topic_id, outcome.reason)

    def _load_directory(
        self, name: str, config_for: Callable[[str], LogConfig], found: _Found, *, recovered: bool = False
    ) -> None:
        if paths.is_delete_directory(name):
            self._finish_deletion(name)
            return
        future = paths.future_partition(name)
        if future is not None:
            self.futures.append((future, self.path / name))
            return
        partition = paths.parse_partition_directory(name)
        if partition is None or name == paths.METADATA_LOG_DIRECTORY:
            logger.warning("%s: %s is not a partition, left alone", self.path, name)
            return
        topic_id = None
        try:
            topic_id = self._read_topic_id(self.path / name)
            log = Log.open(
                self.path / name,
                config_for(partition.topic),
                clock=self._clock,
                filesystem=self._filesystem,
                log_start_offset=self._known.of(paths.LOG_START_CHECKPOINT, partition),
                recovery_point=self._known.of(paths.RECOVERY_POINT_CHECKPOINT, partition),
                high_watermark=self._known.of(paths.HIGH_WATERMARK_CHECKPOINT, partition),
                clean=found.clean,
                power_loss=found.power_loss,
                quarantine=self._quarantine,
                producer_expiration_ms=self._producer_expiration_ms,
                recovered=recovered,
            )
        except (LogDamaged, CheckpointError, KafkaStorageError, OSError) as error:
            self._set_offline(partition, topic_id, describe(error) if isinstance(error, OSError) else str(error))
        except Exception as error:  # a partition that we do not understand must not stop the others
            logger.exception("%s: cannot be opened", partition)
            self._set_offline(partition, topic_id, repr(error))
        else:
            self._adopt(partition, log, topic_id)

    def _finish_deletion(self, name: str) -> None:
        logger.info("%s: finishing the deletion of %s", self.path, name)
        try:
            self.remove(self.path / name)
        except OSError as error:  # it is in nobody's way
            logger.warning("%s: %s stays until the next start: %s", self.path, name, describe(error))

    def _note_lost(self, expected: Callable[[TopicPartition], bool]) -> None:
        """A partition that had data must not begin anew because its directory is gone."""
        for name, partition, offset in self._known:
            known = partition in self.logs or partition in self.offline
            if offset > 0 and not known and expected(partition):
                self._set_offline(partition, None, f"its directory is missing, {name} knows offset {offset}")

    def _flush_recovered(self) -> None:
        """What a crash left in the page cache is served from now on: on to the disk with it, where that is promised."""
        due = [log for log in self.logs.values() if log.unflushed_messages >= log.config.flush_messages]

        def flush(log: Log) -> None:
            with suppress(KafkaStorageError):  # logged, and the directory is offline
                log.flush()

        _each(flush, due)

    def _set_offline(self, partition: TopicPartition, topic_id: bytes | None, reason: str) -> None:
        logger.error("%s: offline: %s", partition, reason)
        self.offline[partition] = OfflineLog(partition, topic_id, reason)

    def withdraw(self, partition: TopicPartition, reason: str) -> None:
        """Take a partition that was loaded offline; its files stay as they are."""
        log = self.logs.pop(partition, None)
        if log is not None:
            log.abandon(reason)
        self._set_offline(partition, log.topic_id if log is not None else None, reason)

    def _adopt(self, partition: TopicPartition, log: Log, topic_id: bytes | None) -> None:
        log.topic_id = topic_id
        log.on_sync_failure = self.fail
        log.on_roll = self.rolled.add
        if log.unflushed_segments_end is not None:
            self.rolled.add(log)
        log.before_truncate = self._before_truncate
        log.no_room = self.reserve.is_lent
        self.logs[partition] = log

    def _read_topic_id(self, directory: Path) -> bytes | None:
        try:
            content = self._filesystem.read_bytes(directory / paths.PARTITION_METADATA)
        except FileNotFoundError:
            return None
        return checkpoints.parse_partition_metadata(content)

    def name_topic(self, partition: TopicPartition, topic_id: bytes) -> None:
        """Write the `partition.metadata` of a partition whose creation was cut short before it. KafkaStorageError."""
        directory = paths.partition_directory(self.path, partition.topic, partition.partition)
        with storage_errors(str(partition)):
            metadata = checkpoints.format_partition_metadata(topic_id)
            replace_file(self._filesystem, directory / paths.PARTITION_METADATA, metadata)
        self.logs[partition].topic_id = topic_id

    def _boot_id(self) -> bytes:
        try:
            return self._filesystem.read_bytes(BOOT_ID).strip() + b"\n"
        except OSError:  # not Linux: any stop is taken for the death of the process
            return b"unknown\n"

    def _machine_went_down(self) -> bool:
        try:
            before = self._filesystem.read_bytes(self.path / paths.BOOT)
        except FileNotFoundError:
            return False
        return before != self._boot_id()

    # Partitions

    def create_log(self, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> Log:
        """Make the directory of a partition, durable with its topic id before the first data. KafkaStorageError."""
        (created,) = self.create_logs([NewLog(topic, partition, topic_id, config)])
        if isinstance(created, KafkaStorageError):
            raise created
        return created

    def create_logs(self, new: Iterable[NewLog]) -> list[Log | KafkaStorageError]:
        """The same for many, with one sync of the log directory; an error for each that could not be made.

        Nothing is left of such a one, unless its error is CreationLeftOver. Raises KafkaStorageError when the log
        directory is offline.
        """
        if self.offline_reason is not None:
            raise KafkaStorageError(f"{self.path}: offline: {self.offline_reason}")
        if self.reserve.is_lent:
            raise NoSpace(f"{self.path}: the disk is full, and its reserve is let go")
        items = list(new)
        created = _each(self._try_to_create, items)
        try:
            self._filesystem.sync_directory(self.path)
        except OSError as error:
            for log in created:
                if isinstance(log, Log):
                    log.abandon("the log directory was not synced")
            return [CreationLeftOver(f"{self.path}: {describe(error)}") for _ in items]
        for item, log in zip(items, created, strict=True):
            if isinstance(log, Log):
                self._adopt(TopicPartition(item.topic, item.partition), log, item.topic_id)
        return created

    def _try_to_create(self, item: NewLog) -> Log | KafkaStorageError:
        directory = paths.partition_directory(self.path, item.topic, item.partition)
        try:
            with storage_errors(str(directory)):
                return self._create(item)
        except KafkaStorageError as error:
            failure = error.with_traceback(None)  # its cause, too, would keep frames and what is in them
            failure.__cause__ = failure.__context__ = None
        try:
            if self._filesystem.exists(directory):
                self.remove(directory)
        except OSError as error:
            return CreationLeftOver(f"{failure.message}; {describe(error)}")
        return failure

    def _create(self, item: NewLog) -> Log:
        partition = TopicPartition(item.topic, item.partition)
        assert partition not in self.logs, f"{partition} exists"
        directory = paths.partition_directory(self.path, item.topic, item.partition)
        self._filesystem.make_directories(directory)
        metadata = checkpoints.format_partition_metadata(item.topic_id)
        replace_file(self._filesystem, directory / paths.PARTITION_METADATA, metadata)
        return Log.open(
            directory,
            item.config,
            clock=self._clock,
            filesystem=self._filesystem,
            clean=True,
            producer_expiration_ms=self._producer_expiration_ms,
        )

    def delete_log(self, topic: str, partition: int, *, remove: bool = True) -> Path:
        """Delete a partition, offline ones too: rename its directory, durably, then remove it.

        With `remove=False` the renamed directory stays for a later `remove`. A crash in between is made good at the
        next start. Responses under way keep their files.
        """
        renamed = self._rename(TopicPartition(topic, partition), paths.delete_directory, "deleted")
        with storage_errors(f"{topic}-{partition}"):
            try:
                if remove and self._filesystem.exists(renamed):
                    self.remove(renamed)
            finally:  # after what gives space to a full disk
                self._with_reserve(self._forget_missing)
        return renamed

    def delete_logs(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, KafkaStorageError]:
        """The same for many, with one sync of the log directory and of each checkpoint; an error for each that is not
        deleted, or not durably."""
        renamed: dict[TopicPartition, Path] = {}
        failures: dict[TopicPartition, KafkaStorageError] = {}
        for partition in partitions:
            try:
                renamed[partition] = self._rename(partition, paths.delete_directory, "deleted", sync=False)
            except KafkaStorageError as error:
                failures[partition] = error
        try:
            with storage_errors(str(self.path)):
                self._filesystem.sync_directory(self.path)
        except KafkaStorageError as error:
            return {**dict.fromkeys(renamed, error), **failures}
        for partition, directory in renamed.items():
            try:
                with storage_errors(str(partition)):
                    if self._filesystem.exists(directory):
                        self.remove(directory)
            except KafkaStorageError as error:
                failures[partition] = error
        try:
            with storage_errors(str(self.path)):  # after what gives space to a full disk
                self._with_reserve(self._forget_missing)
        except KafkaStorageError as error:
            return {**dict.fromkeys(renamed, error), **failures}
        return failures

    def hand_over(self, partition: TopicPartition) -> None:
        """A partition that another log directory takes in. Its files are here until `delete_log`, and after a crash
        they count: so the checkpoints keep what they know of it."""
        self._leaving.add(partition)  # first: a checkpoint that is being written finds it in one of them
        del self.logs[partition]

    def take_in(self, partition: TopicPartition, log: Log) -> None:
        """A partition that has come from another log directory; its files are here."""
        self._adopt(partition, log, log.topic_id)

    def set_aside(self, topic: str, partition: int) -> Path:
        """Keep the files of a partition that belongs to no topic of ours under another name, durably."""
        renamed = self._rename(TopicPartition(topic, partition), paths.stray_directory, "set aside")
        with storage_errors(f"{topic}-{partition}"):
            self._with_reserve(self._forget_missing)
        return renamed

    def _rename(
        self, key: TopicPartition, renaming: Callable[[Path, uuid.UUID], Path], reason: str, *, sync: bool = True
    ) -> Path:
        """Close a partition and rename its directory, durably with `sync`. Raises KafkaStorageError."""
        with storage_errors(str(key)):
            if (log := self.logs.pop(key, None)) is not None:
                log.abandon(reason)
            self.offline.pop(key, None)
            self._leaving.discard(key)
            directory = paths.partition_directory(self.path, key.topic, key.partition)
            renamed = renaming(directory, uuid.uuid4())
            try:
                self._filesystem.rename(directory, renamed)
                if sync:
                    self._filesystem.sync_directory(self.path)
            except FileNotFoundError:
                logger.warning("%s: its directory was gone already", key)
        return renamed

    def remove(self, directory: Path) -> None:
        """Remove a directory with the files in it."""
        for entry in self._filesystem.list(directory):
            if entry.is_directory:
                self.remove(directory / entry.name)
            else:
                self._filesystem.unlink(directory / entry.name)
        self._filesystem.remove_directory(directory)

    # Checkpoints

    def checkpoint(self) -> None:
        """Write recovery points, log starts and high watermarks, those that changed. Raises KafkaStorageError."""
        with storage_errors(str(self.path)):
            self._flush_below_log_starts()
            self._write_checkpoints()

    def raise_log_starts(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Make these log starts durable; the caller then moves them in memory (`Log.advance_log_start`).

        Uses the reserve on a full disk. Raises NoSpace, when that was not enough, or KafkaStorageError: nothing moves.
        """
        with storage_errors(str(self.path)):
            before = {log: offset for log, offset in self._rising.items() if log.log_start_offset < offset}
            wanted = {log: offset for key, offset in offsets.items() if (log := self.logs.get(key)) is not None}
            self._rising = before | {log: max(offset, before.get(log, 0)) for log, offset in wanted.items()}
            try:
                self._flush_below_log_starts()
                self._with_reserve(self._write_checkpoints)
            except (OSError, KafkaStorageError):
                self._rising = before
                raise

    def _flush_below_log_starts(self) -> None:
        """A log start above what is durable is not written: after a power cut it would be above the log end."""
        for log in list(self.logs.values()):
            log_start_offset = max(log.log_start_offset, self._rising.get(log, 0))
            if log_start_offset > log.flushed_offset and log.offline_reason is None:
                log.flush()

    def _write_checkpoints(self, lowered: Mapping[TopicPartition, int] | None = None) -> None:
        self._known.write(self.logs, lambda: self.offline.keys() | self._leaving, lowered, self._rising)

    # A full disk

    def _with_reserve(self, work: Callable[[], T]) -> T:
        """Do what must not fail for want of space: if it does, let the reserve go and do it again. OSError."""
        try:
            return work()
        except OSError as error:
            if error.errno not in NO_SPACE or not self.let_reserve_go():
                raise
        return work()

    def open_reserve(self) -> None:
        """Take over the reserve, or make it; on a full disk, let it go for the start. Raises LogDirError."""
        try:
            self.reserve.open()
            if self.reserve.is_scarce():
                self.let_reserve_go()
        except OSError as error:
            raise LogDirError(f"{self.path}: {describe(error)}") from error

    def let_reserve_go(self) -> bool:
        """Give the reserve to what has to be written on a full disk; False when there is none.

        From then on nothing is appended here until `renew_reserve` succeeds. Any thread may call it.
        """
        if not self.reserve.let_go():
            return False
        self._note_room()
        return True

    def renew_reserve(self) -> None:
        """Make the reserve again if there is room for it. Blocks."""
        was_lent = self.reserve.is_lent
        if self.reserve.make() and was_lent:
            logger.info("%s: there is room again, and the reserve is made", self.path)
            self._note_room()

    def _note_room(self) -> None:
        for log in list(self.logs.values()):
            log.no_room = self.reserve.is_lent

    def cleaner_offset(self, partition: TopicPartition) -> int:
        """Up to where the log was compacted, 0 when it never was."""
        return self._known.of(paths.CLEANER_CHECKPOINT, partition)

    def note_cleaned(self, partition: TopicPartition, log: Log, offset: int) -> None:
        """Remember that `log` was compacted up to `offset`. Raises KafkaStorageError."""
        with storage_errors(str(self.path)):
            self._known.note_cleaned(self.logs, partition, log, offset)

    def discard_cleaned(self, partition: TopicPartition, log: Log) -> None:
        """Remove what a compaction of `log` left that failed: it may be large. Raises KafkaStorageError.

        Nothing, if the partition has another log now: what is there is not of this one.
        """
        if self.logs.get(partition) is not log:
            return
        with storage_errors(log.name), suppress(FileNotFoundError):
            for entry in self._filesystem.list(log.directory):
                if entry.name.endswith(paths.CLEANED_SUFFIX):
                    unlink_if_exists(self._filesystem, log.directory / entry.name)

    def _before_truncate(self, log: Log, offset: int) -> None:
        """No checkpoint may be above the end of a log: lower them before it is cut."""
        partition = next(key for key, known in self.logs.items() if known is log)
        self._rising.pop(log, None)
        with storage_errors(log.name):
            self._write_checkpoints({partition: offset})

    def _forget_missing(self) -> None:
        """Take partitions that are gone out of the checkpoints."""
        self._known.forget_all_but(lambda: self.logs.keys() | self.offline.keys() | self._leaving)

    # Scrubbing

    def _load_scrub(self) -> None:
        """Where the scrubber was, and which segments are known to be damaged."""
        self.scrub = scrub_state.load(self._filesystem, self.path)
        for known in self.scrub.damage:
            log = self.logs.get(known.partition)
            if log is None or _id_text(log.topic_id) != known.topic_id:
                continue
            for segment in log.segments:
                segment.damage = tuple(each for each in known.ranges if each.segment == segment.base_offset)
                for each in segment.damage:
                    logger.warning(
                        "%s: known to be damaged, not served: segment=%d offsets=[%d, %d)",
                        known.partition, each.segment, each.first_offset, each.next_offset,
                    )  # fmt: skip

    @property
    def damaged_count(self) -> int:
        """Ranges of bytes that were known to be damaged when `save_scrub` last looked."""
        return sum(len(known.ranges) for known in self.scrub.damage)

    def save_scrub(self) -> None:
        """Write where the scrubber is and what it has found. Raises OSError."""
        kept = [known for known in self.scrub.damage if known.partition in self.offline]
        for partition, log in list(self.logs.items()):
            ranges = tuple(each for segment in log.segments for each in segment.damage)
            if ranges:
                kept.append(KnownDamage(partition, _id_text(log.topic_id), ranges))
        self.scrub.damage = kept
        scrub_state.save(self._filesystem, self.path, self.scrub)

    # The end

    def fail(self, reason: str) -> None:
        """An fsync failed: take every log of this directory offline. Nothing is synced again before a restart."""
        self.offline_reason = reason
        logger.error("%s: log directory is offline: %s", self.path, reason)
        for log in list(self.logs.values()):
            if log.offline_reason is None:
                log.offline_reason = f"log directory: {reason}"

    def leave(self) -> None:
        """Let go of a directory whose logs were opened at most; the mark of a clean shutdown, if any, returns."""
        if self._pool is not None:
            self._pool.close()
        for log in self.logs.values():
            log.abandon("closed")
        try:
            if self.was_clean:
                replace_file(self._filesystem, self.path / paths.CLEAN_SHUTDOWN, self._marker)
        except OSError as error:
            logger.error("%s: the next start checks the logs: %s", self.path, describe(error))
        self._lock.release()

    def close(self, *, clean: bool = True, marked: bool = True, broker_epoch: int = -1) -> bool:
        """Close all logs and let go of the lock; whether the close was clean, so that the next start need not check.

        Without `clean` nothing is written any more. Without `marked` all is flushed, and the next start checks it.
        """

        def close_log(log: Log) -> bool:
            if not clean or log.offline_reason is not None:
                log.abandon(log.offline_reason or "closed")
                return False
            try:
                log.close()
            except KafkaStorageError as error:
                logger.error("%s", error)
                return False
            return True

        if clean and self.reserve.is_scarce():
            self.let_reserve_go()
        closed_well = all(_each(close_log, self.logs.values()))
        well = closed_well and clean and marked and self.offline_reason is None and not self.offline
        try:
            if clean and self.offline_reason is None:
                self._with_reserve(self._write_checkpoints)
            if well:
                marker = checkpoints.format_clean_shutdown(broker_epoch)
                replace_file(self._filesystem, self.path / paths.CLEAN_SHUTDOWN, marker)
        except OSError as error:
            logger.error("%s: not a clean close: %s", self.path, describe(error))
            unlink_if_exists(self._filesystem, self.path / paths.CLEAN_SHUTDOWN)
            well = False
        self._lock.release()
        return well


def _id_text(topic_id: bytes | None) -> str:
    return uuid_to_text(topic_id) if topic_id is not None else ""


def _each(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """The work for each item; for many in threads, as it mostly waits for syncs and the kernel joins those."""
    known = list(items)
    if len(known) < MANY:
        return [work(item) for item in known]
    with ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="klamm-sync") as threads:
        return list(threads.map(work, known))
