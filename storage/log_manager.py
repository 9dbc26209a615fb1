"""The logs of all partitions in all log directories: where each one is, and whether it can be served.

Each partition has one `LogState`. Its log is found at the start (`load_logs`) or created (`create`). A log that cannot
be opened, is lost, or is found twice becomes an error state: no log of ours ever restarts empty. A partition that could
not be created in any directory is pending, and is created when there is space again (`make`). A move leaves its old
files in the previous directory until they are deleted.

Threads: `load_logs`, `create`, `make`, `delete`, `checkpoint`, `renew_reserves` and `close` block, and run in a disk
thread (at the start in any thread); the others run on the loop. A state is never changed, only replaced as a whole.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import dataclass, replace
from typing import Protocol

from klamm.protocol.errors import KafkaError, KafkaStorageError
from klamm.storage.copies.future_log import settle
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log_creation import CreationLeftOver, NewLog, create_logs, name_topic
from klamm.storage.log_deletion import delete_logs, set_aside
from klamm.storage.log_dir import LogDir
from klamm.storage.log_loading import LogLoading
from klamm.storage.paths import TopicPartition

logger = logging.getLogger(__name__)

MOST_NAMES = 10
"""How many partitions one log line names."""

Removed = list[tuple[LogDir, TopicPartition]]


class KnownTopic(Protocol):
    """A topic in the metadata."""

    @property
    def topic_id(self) -> bytes: ...

    @property
    def partitions(self) -> Sequence[object]: ...


@dataclass(frozen=True, slots=True)
class LogState:
    """Where the log of a partition is: `log`, or the `error` that requests get instead.

    With an error there may be no `directory`: it is missing, or the log was never created. `previous_directory` holds
    files that a move has left. `pending` is a log that is still to be created, in `directory` if a part of it is left
    there.
    """

    log: Log | None
    error: KafkaError | None = None
    directory: LogDir | None = None
    previous_directory: LogDir | None = None
    pending: NewLog | None = None


class LogManager:
    """The owner of all logs in `log_dirs`."""

    def __init__(self, log_dirs: Sequence[LogDir]) -> None:
        self.log_dirs = log_dirs
        self._states: dict[TopicPartition, LogState] = {}
        self._may_be_pending = False

    # -- lookup -------------------------------------------------------------------------------------------------

    def get(self, key: TopicPartition) -> LogState | None:
        return self._states.get(key)

    def state(self, key: TopicPartition) -> LogState:
        """Return the state of a known partition. Raises KeyError."""
        return self._states[key]

    def directory_of(self, key: TopicPartition) -> LogDir:
        """Return the directory of the log. Raises KeyError for a partition that is in none."""
        directory = self._states[key].directory
        if directory is None:
            raise KeyError(key)
        return directory

    def directory_id_of(self, key: TopicPartition) -> str:
        """Return the id of the directory that a partition was created in; empty while it is in none."""
        state = self._states.get(key)
        if state is None or state.directory is None or state.pending is not None:
            return ""
        return state.directory.directory_id

    # -- loading ------------------------------------------------------------------------------------------------

    def load_logs(
        self,
        topics: Mapping[str, KnownTopic],
        config_for: Callable[[str], LogConfig],
        *,
        recorded: Mapping[str, Mapping[int, str]],
        workers: int,
        while_recovering: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Open (and, after a crash, recover) the logs on disk. Raises LogDirError.

        `topics` is the metadata; `recorded` says in which directory each partition was created. Long checks run inside
        `while_recovering`, in up to `workers` processes for each log directory.
        """
        on_disk: dict[TopicPartition, list[LogDir]] = {}
        for log_dir in self.log_dirs:
            for key in log_dir.partitions_on_disk():
                on_disk.setdefault(key, []).append(log_dir)
        with ExitStack() as stack:
            loadings = [stack.enter_context(closing(LogLoading(each, config_for))) for each in self.log_dirs]
            long = [loading for loading in loadings if loading.begin(workers)]
            if long:
                stack.enter_context(while_recovering())
            for loading in loadings:
                loading.load(lambda key: key not in on_disk and _is_known(key, topics))
        _withdraw_doubles(on_disk, topics)
        self._take_loaded(topics)
        self._note_lost(topics, recorded)
        for key in sorted(self._states):
            if not _is_known(key, topics):
                logger.warning("%s: on disk but not in the metadata; it is kept and not served", key)

    def _take_loaded(self, topics: Mapping[str, KnownTopic]) -> None:
        for log_dir in self.log_dirs:
            for key, log in log_dir.logs.items():
                error = _problem(log_dir, key, log, topics)
                self._states[key] = LogState(log if error is None else None, error, log_dir)
            for key, offline in log_dir.offline.items():
                self._states[key] = LogState(None, KafkaStorageError(offline.reason), log_dir)

    def _note_lost(self, topics: Mapping[str, KnownTopic], recorded: Mapping[str, Mapping[int, str]]) -> None:
        """Mark partitions offline that were created once and are not there."""
        known = {log_dir.directory_id: log_dir for log_dir in self.log_dirs}
        lost: dict[str, list[TopicPartition]] = {}
        for topic, directories in recorded.items():
            for index, directory_id in directories.items():
                key = TopicPartition(topic, index)
                if key not in self._states and _is_known(key, topics):
                    lost.setdefault(directory_id, []).append(key)
        for directory_id, keys in lost.items():
            log_dir = known.get(directory_id)
            if log_dir is None:
                reason = f"the log directory it is in is missing: directory.id={directory_id}"
            else:
                reason = f"its directory is missing in {log_dir.path}"
            for key in keys:
                self._states[key] = LogState(None, KafkaStorageError(reason), log_dir)
            names = ", ".join(map(str, sorted(keys)[:MOST_NAMES]))
            more = ", ..." if len(keys) > MOST_NAMES else ""
            logger.error("%d partition(s) offline: %s: %s%s", len(keys), reason, names, more)

    # -- creating -----------------------------------------------------------------------------------------------

    def create(self, wanted: Iterable[NewLog], served: Container[str]) -> None:
        """Create the logs that do not exist yet.

        If a new topic, not `served` yet, has the name of a lost one, the files of the lost topic are set aside first. A
        pending log is dropped if its topic was deleted while `make` ran.
        """
        new = []
        for item in wanted:
            if item.topic not in served:
                self._set_foreign_aside(item)
            state = self._states.get(item.key)
            if state is None or (state.pending is not None and state.pending.topic_id != item.topic_id):
                new.append(item)
        self.make(new)

    def pending(self) -> list[NewLog]:
        """Return the logs that could not be created before."""
        if not self._may_be_pending:  # the usual case, and there may be many states
            return []
        self._may_be_pending = False  # before the search: a thread sets a state first and this flag after it
        found = [state.pending for state in list(self._states.values()) if state.pending is not None]
        if found:
            self._may_be_pending = True
        return found

    def make(self, new: Sequence[NewLog]) -> list[tuple[NewLog, Log]]:
        """Create each log in the directory with the fewest partitions, else in another one. Return the new logs."""
        placement = _Placement(self.log_dirs, list(self._states.values()))
        made: list[tuple[NewLog, Log]] = []
        waiting = list(new)
        while waiting:
            placed: dict[LogDir, list[NewLog]] = {}
            for item in waiting:
                placed.setdefault(placement.place(item, self._states.get(item.key)), []).append(item)
            waiting = []
            for log_dir, items in placed.items():
                for item, opened in zip(items, self._made_in(log_dir, items), strict=True):
                    if isinstance(opened, Log):
                        made.append((item, opened))
                        self._states[item.key] = LogState(opened, directory=log_dir)
                    elif placement.has_another(item, log_dir) and not self._is_left_over(item.key, opened):
                        waiting.append(item)
                    else:
                        self._set_pending(item, opened, log_dir)
        return made

    def _is_left_over(self, key: TopicPartition, error: KafkaError) -> bool:
        """Return whether a directory holds a part of the partition, so that no other directory may."""
        state = self._states.get(key)
        return isinstance(error, CreationLeftOver) or (state is not None and state.directory is not None)

    def _set_pending(self, item: NewLog, error: KafkaError, log_dir: LogDir) -> None:
        before = self._states.get(item.key)
        directory = before.directory if before is not None else None
        if isinstance(error, CreationLeftOver):
            directory = log_dir
        self._states[item.key] = LogState(None, error, directory, pending=item)
        self._may_be_pending = True

    def _made_in(self, log_dir: LogDir, items: list[NewLog]) -> Sequence[Log | KafkaError]:
        try:
            created: Sequence[Log | KafkaError] = create_logs(log_dir, items)
        except KafkaError as error:
            created = [error.with_traceback(None)] * len(items)
        failed = [(item, opened) for item, opened in zip(items, created, strict=True) if isinstance(opened, KafkaError)]
        if any(not self._is_pending(item.key) for item, _ in failed):  # otherwise it was logged before
            logger.error("%s: %d partition(s) cannot be made: %s", log_dir.path, len(failed), failed[0][1].message)
        return created

    def _is_pending(self, key: TopicPartition) -> bool:
        state = self._states.get(key)
        return state is not None and state.pending is not None

    def _set_foreign_aside(self, item: NewLog) -> None:
        """Set aside, and keep, the files of a lost topic of the same name, so that a new partition can be created."""
        key, state = item.key, self._states.get(item.key)
        if state is None or state.log is None or state.log.topic_id in (None, item.topic_id):
            return
        for log_dir in self._holders(key):
            try:
                kept = set_aside(log_dir, key)
            except KafkaError as error:
                logger.error("%s: %s", key, error.message)
                self._states[key] = replace(state, log=None, error=error)
                return
            logger.warning("%s: the files of another topic of this name are kept in %s", key, kept)
        del self._states[key]

    # -- moving and deleting ------------------------------------------------------------------------------------

    def on_log_moved(self, key: TopicPartition, log: Log, source: LogDir, target: LogDir) -> None:
        """Record that the log of a partition has moved to `target`; files of it are still in `source`."""
        self._states[key] = LogState(log, directory=target, previous_directory=source)

    def on_move_ended(self, key: TopicPartition) -> None:
        """Record that the files of a moved partition are gone from its previous directory."""
        state = self._states.get(key)
        if state is not None:
            self._states[key] = replace(state, previous_directory=None)

    def forget(self, key: TopicPartition) -> Removed:
        """Forget a partition; return the files that `delete` must remove."""
        holders = self._holders(key)
        self._states.pop(key, None)
        return [(log_dir, key) for log_dir in holders]

    def _holders(self, key: TopicPartition) -> list[LogDir]:
        """Return the log directories that hold a part of the partition."""
        state = self._states.get(key)
        own = (state.directory, state.previous_directory) if state is not None else ()
        return [each for each in self.log_dirs if each in own or key in each.logs or key in each.offline]

    def delete(self, removed: Removed) -> None:
        """Delete everything that can be deleted; then raise the first error."""
        by_directory: dict[LogDir, list[TopicPartition]] = {}
        for log_dir, key in removed:
            by_directory.setdefault(log_dir, []).append(key)
        failures: dict[TopicPartition, KafkaStorageError] = {}
        for log_dir, keys in by_directory.items():
            failures |= delete_logs(log_dir, keys)
        for key, error in failures.items():
            logger.error("%s: cannot be deleted: %s", key, error.message)
        for error in failures.values():
            raise error

    # -- scheduler and shutdown ------------------------------------------------------------------------------------

    def set_producer_expiration(self, expiration_ms: int) -> None:
        """Set for how long all logs remember an idle producer."""
        for log_dir in self.log_dirs:
            log_dir.producer_expiration_ms = expiration_ms

    def rolled(self) -> Iterator[tuple[LogDir, Log]]:
        """Return the logs that may have started a new segment before everything below it was durable."""
        for log_dir in self.log_dirs:
            for log in list(log_dir.rolled):
                yield log_dir, log

    def checkpoint(self) -> None:
        """Write the checkpoints of all log directories."""
        for log_dir in self.log_dirs:
            log_dir.checkpoint()

    def renew_reserves(self) -> None:
        """Make the reserves that were released or never had room."""
        for log_dir in self.log_dirs:
            log_dir.reserve.renew()

    def lacks_reserves(self) -> bool:
        return any(log_dir.reserve.is_missing for log_dir in self.log_dirs)

    def close(self, *, marked: bool = True) -> None:
        """Flush and close every log; with `marked`, write the clean-shutdown markers."""
        for log_dir in self.log_dirs:
            log_dir.close(marked=marked)


class _Placement:
    """The choice of a log directory for each new partition: the one with the fewest that has not refused it."""

    def __init__(self, log_dirs: Sequence[LogDir], states: Iterable[LogState]) -> None:
        self._counts = dict.fromkeys(log_dirs, 0)
        self._refused: dict[TopicPartition, set[LogDir]] = {}
        for state in states:
            if state.directory is not None:
                self._counts[state.directory] += 1

    def place(self, item: NewLog, state: LogState | None) -> LogDir:
        """Return the directory that already holds a part of the log, or the best one, and count the log in it."""
        log_dir = state.directory if state is not None else None
        if log_dir is None:
            refused = self._refused.get(item.key, ())
            candidates = [each for each in self._counts if each not in refused]
            usable = [each for each in candidates if each.offline_reason is None] or candidates
            log_dir = min(usable, key=lambda each: self._counts[each])
        self._counts[log_dir] += 1
        return log_dir

    def has_another(self, item: NewLog, refusing: LogDir) -> bool:
        """Record that a directory has refused the log; return whether there is another to try."""
        self._counts[refusing] -= 1
        refused = self._refused.setdefault(item.key, set())
        refused.add(refusing)
        return len(refused) < len(self._counts)


def _is_known(key: TopicPartition, topics: Mapping[str, KnownTopic]) -> bool:
    """Return whether the partition is in the metadata."""
    topic = topics.get(key.topic)
    return topic is not None and key.partition < len(topic.partitions)


def _withdraw_doubles(on_disk: Mapping[TopicPartition, list[LogDir]], topics: Mapping[str, KnownTopic]) -> None:
    """Withdraw a partition that is in several log directories, unless an interrupted move explains it and can end."""
    for key, log_dirs in on_disk.items():
        if len(log_dirs) > 1 and _is_known(key, topics) and not _settled(key, log_dirs):
            places = " and in ".join(str(log_dir.path) for log_dir in log_dirs)
            for log_dir in log_dirs:
                log_dir.withdraw(key, f"it is in {places}; keep one, and move the others away")


def _settled(key: TopicPartition, log_dirs: list[LogDir]) -> bool:
    """Return whether an interrupted move of the partition could be ended, so that it is in one place now."""
    try:
        return settle(key, log_dirs)
    except KafkaError as error:
        logger.error("%s: %s", key, error.message)
        return False


def _problem(log_dir: LogDir, key: TopicPartition, found: Log, topics: Mapping[str, KnownTopic]) -> KafkaError | None:
    """Return the error of a log that belongs to another topic of the same name.

    A log without a topic id is given one: a crash cut its creation short, before any data.
    """
    topic = topics.get(key.topic)
    if topic is None:
        return None
    if found.topic_id is None:
        try:
            name_topic(log_dir, key, topic.topic_id)
        except KafkaError as error:
            logger.error("%s: offline: %s", key, error.message)
            return error
    if found.topic_id == topic.topic_id:
        return None
    reason = f"partition.metadata names another topic id than the metadata of {key.topic}"
    logger.error("%s: offline: %s", key, reason)
    return KafkaStorageError(reason)
