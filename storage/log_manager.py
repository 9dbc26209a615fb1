"""The logs of all partitions over all log directories: where each is, and whether it can be served.

A partition has one `LogState`. Its log is found at the start (`load`) or made (`create`); what cannot be opened, is
lost, or is found twice is an error in place of the log: none of ours begins again, empty. A partition that could not be
made in any directory is pending, and made when there is space again (`make`). A move leaves its old files in
the previous directory until they are deleted.

Threads: `load`, `create`, `make`, `delete`, `checkpoint`, `renew_reserves` and `close` block, and run in a
disk thread (at the start in any); the others run on the loop. A state is never changed, but replaced as a whole.
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
"""How many partitions a line of the log names."""

Removed = list[tuple[LogDir, TopicPartition]]


class KnownTopic(Protocol):
    """What the metadata says of a topic."""

    @property
    def topic_id(self) -> bytes: ...

    @property
    def partitions(self) -> Sequence[object]: ...


@dataclass(frozen=True, slots=True)
class LogState:
    """Where the log of a partition is: `log`, or the `error` that it answers instead.

    With an error there may be no directory: the one it is in is missing, or it was never made. In `previous_directory`
    are files that a move has left. `pending` is what is still to be made, in `directory` if something is left there.
    """

    log: Log | None
    error: KafkaError | None = None
    directory: LogDir | None = None
    previous_directory: LogDir | None = None
    pending: NewLog | None = None


class LogManager:
    """Owns the logs in `log_dirs`; see the head of the module."""

    def __init__(self, log_dirs: Sequence[LogDir]) -> None:
        self.log_dirs = log_dirs
        self._states: dict[TopicPartition, LogState] = {}
        self._may_be_pending = False

    # -- looking up ---------------------------------------------------------------------------------------------

    def get(self, key: TopicPartition) -> LogState | None:
        return self._states.get(key)

    def state(self, key: TopicPartition) -> LogState:
        """The state of a partition that is known. KeyError."""
        return self._states[key]

    def directory_of(self, key: TopicPartition) -> LogDir:
        """Where the log is; a partition without a log may have none (KeyError)."""
        directory = self._states[key].directory
        if directory is None:
            raise KeyError(key)
        return directory

    def directory_id_of(self, key: TopicPartition) -> str:
        """The directory that a partition was made in; empty while it is in none."""
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

        `topics` is the metadata, `recorded` in which directory each partition was made. What takes long goes on inside
        of `while_recovering`, in as many `workers` for each log directory.
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
        """Those that were made once, and are not there, are offline."""
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

    # -- making -------------------------------------------------------------------------------------------------

    def create(self, wanted: Iterable[NewLog], served: Container[str]) -> None:
        """Make the logs that are not there yet.

        The files of a lost topic with the name of a topic that is not `served` yet are set aside first. What is pending
        of a topic that was deleted while `make` was at it is not made any more.
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
        """What could not be made before."""
        if not self._may_be_pending:  # as ever, and there may be many states
            return []
        self._may_be_pending = False  # first: a thread that has set a state sets it after that
        found = [state.pending for state in list(self._states.values()) if state.pending is not None]
        if found:
            self._may_be_pending = True
        return found

    def make(self, new: Sequence[NewLog]) -> list[tuple[NewLog, Log]]:
        """Make each in the log directory with the fewest partitions; where that refuses, in another. Those made."""
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
        """Whether something of a partition is in a directory: it must not be in two."""
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
        if any(not self._is_pending(item.key) for item, _ in failed):  # else it was said before
            logger.error("%s: %d partition(s) cannot be made: %s", log_dir.path, len(failed), failed[0][1].message)
        return created

    def _is_pending(self, key: TopicPartition) -> bool:
        state = self._states.get(key)
        return state is not None and state.pending is not None

    def _set_foreign_aside(self, item: NewLog) -> None:
        """Make room for a new partition where the files of a lost topic of the same name are: they are kept."""
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
        """The log of a partition is another one now, in `target`; files of it are still in `source`."""
        self._states[key] = LogState(log, directory=target, previous_directory=source)

    def on_move_ended(self, key: TopicPartition) -> None:
        """Nothing of a partition is left where it was."""
        state = self._states.get(key)
        if state is not None:
            self._states[key] = replace(state, previous_directory=None)

    def forget(self, key: TopicPartition) -> Removed:
        """Have a partition no longer; return what `delete` is to take from the disk."""
        holders = self._holders(key)
        self._states.pop(key, None)
        return [(log_dir, key) for log_dir in holders]

    def _holders(self, key: TopicPartition) -> list[LogDir]:
        """The log dirs that have something of a partition."""
        state = self._states.get(key)
        own = (state.directory, state.previous_directory) if state is not None else ()
        return [each for each in self.log_dirs if each in own or key in each.logs or key in each.offline]

    def delete(self, removed: Removed) -> None:
        """Delete all that can be deleted; then raise the first error."""
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

    # -- scheduler and end -----------------------------------------------------------------------------------------

    def set_producer_expiration(self, expiration_ms: int) -> None:
        """Let all logs remember a silent producer for so long."""
        for log_dir in self.log_dirs:
            log_dir.producer_expiration_ms = expiration_ms

    def rolled(self) -> Iterator[tuple[LogDir, Log]]:
        """The logs that may have begun a new segment before all below it was durable."""
        for log_dir in self.log_dirs:
            for log in list(log_dir.rolled):
                yield log_dir, log

    def checkpoint(self) -> None:
        """Write the checkpoints of all log dirs."""
        for log_dir in self.log_dirs:
            log_dir.checkpoint()

    def renew_reserves(self) -> None:
        """Make the reserves that were let go, or never had room."""
        for log_dir in self.log_dirs:
            log_dir.reserve.renew()

    def lacks_reserves(self) -> bool:
        return any(log_dir.reserve.is_missing for log_dir in self.log_dirs)

    def close(self, *, marked: bool = True) -> None:
        """Flush and close every log, leave the marks of a clean shutdown if `marked`."""
        for log_dir in self.log_dirs:
            log_dir.close(marked=marked)


class _Placement:
    """Chooses a log directory for each new partition: the one with the fewest that has not refused it."""

    def __init__(self, log_dirs: Sequence[LogDir], states: Iterable[LogState]) -> None:
        self._counts = dict.fromkeys(log_dirs, 0)
        self._refused: dict[TopicPartition, set[LogDir]] = {}
        for state in states:
            if state.directory is not None:
                self._counts[state.directory] += 1

    def place(self, item: NewLog, state: LogState | None) -> LogDir:
        """Count it in the directory where something of it is, or in the best one."""
        log_dir = state.directory if state is not None else None
        if log_dir is None:
            refused = self._refused.get(item.key, ())
            candidates = [each for each in self._counts if each not in refused]
            usable = [each for each in candidates if each.offline_reason is None] or candidates
            log_dir = min(usable, key=lambda each: self._counts[each])
        self._counts[log_dir] += 1
        return log_dir

    def has_another(self, item: NewLog, refusing: LogDir) -> bool:
        """Note that a directory has refused it; whether there is one that has not."""
        self._counts[refusing] -= 1
        refused = self._refused.setdefault(item.key, set())
        refused.add(refusing)
        return len(refused) < len(self._counts)


def _is_known(key: TopicPartition, topics: Mapping[str, KnownTopic]) -> bool:
    """In the metadata."""
    topic = topics.get(key.topic)
    return topic is not None and key.partition < len(topic.partitions)


def _withdraw_doubles(on_disk: Mapping[TopicPartition, list[LogDir]], topics: Mapping[str, KnownTopic]) -> None:
    """A partition that is in several log directories is served from none, unless a move can be brought to its end."""
    for key, log_dirs in on_disk.items():
        if len(log_dirs) > 1 and _is_known(key, topics) and not _settled(key, log_dirs):
            places = " and in ".join(str(log_dir.path) for log_dir in log_dirs)
            for log_dir in log_dirs:
                log_dir.withdraw(key, f"it is in {places}; keep one, and move the others away")


def _settled(key: TopicPartition, log_dirs: list[LogDir]) -> bool:
    """Whether a partition is in two places as it was being moved, and in one now."""
    try:
        return settle(key, log_dirs)
    except KafkaError as error:
        logger.error("%s: %s", key, error.message)
        return False


def _problem(log_dir: LogDir, key: TopicPartition, found: Log, topics: Mapping[str, KnownTopic]) -> KafkaError | None:
    """A log that belongs to another topic of the same name is not served. One without a topic id gets it: its creation
    was cut short by a crash, before any data."""
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
