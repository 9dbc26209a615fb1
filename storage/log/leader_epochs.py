"""The start offset of each leader epoch: a returning replica finds where its log diverged from the leader's.

`leader-epoch-checkpoint` (Apache Kafka's text format):
    0            version
    2            number of lines that follow
    0 0          epoch, its start offset
    5 1200
The file is written at each new epoch and after truncation, and made durable when the log is flushed. Every batch
carries its epoch. So a missing or damaged file is rebuilt from the batches, and recovery completes one that a crash
left incomplete.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from klamm.protocol.records.batch import BatchHeader
from klamm.storage import paths
from klamm.storage.checkpoints import CheckpointError, format_lines, parse_lines
from klamm.storage.filesystem import Filesystem, describe, replace_file
from klamm.storage.log.results import EpochEnd

logger = logging.getLogger(__name__)

UNKNOWN = EpochEnd(-1, -1)


class LeaderEpochCache:
    """Epochs and their start offsets, both strictly ascending."""

    __slots__ = ("_entries", "_filesystem", "dirty", "latest", "path", "unsynced")

    def __init__(self, filesystem: Filesystem, directory: Path) -> None:
        self._filesystem = filesystem
        self.path = directory / paths.LEADER_EPOCH_CHECKPOINT
        self._entries: list[tuple[int, int]] = []
        self.latest = -1
        self.dirty = False
        self.unsynced = False

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Iterate over (epoch, start offset)."""
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that batches of `epoch` begin at `start_offset`; drop conflicting entries, including later epochs.

        The latest epoch keeps its start, unless the new one is lower. Negative epochs are ignored.
        """
        if epoch < 0 or (epoch == self.latest and start_offset >= self._entries[-1][1]):
            return
        kept = [entry for entry in self._entries if entry[0] < epoch and entry[1] < start_offset]
        self._set([*kept, (epoch, start_offset)])

    def follow(self, header: BatchHeader) -> bool:
        """Record a leader's batch, even of an older epoch: the leader is right. Return whether anything may change.

        A message of an old format has no epoch, and clears all entries.
        """
        if header.magic < 2 and self._entries:
            logger.warning("%s: a message of format %d clears the leader epochs", self.path.parent.name, header.magic)
            self.clear()
            return True
        if header.leader_epoch == self.latest or header.leader_epoch < 0:
            return False
        self.assign(header.leader_epoch, header.base_offset)
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Return the largest known epoch not above `epoch`, and its end offset, as in KIP-101 and KIP-279."""
        if epoch < 0 or not self._entries or epoch > self.latest:
            return UNKNOWN
        if epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        index = bisect_right(self._entries, epoch, key=lambda entry: entry[0])
        if index == 0:  # older than all known epochs: it ended where the first one begins
            return EpochEnd(epoch, self._entries[0][1])
        return EpochEnd(self._entries[index - 1][0], self._entries[index][1])

    def epoch_of(self, offset: int) -> int:
        """Return the epoch of the record at `offset`, -1 when it is not known."""
        index = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        return self._entries[index - 1][0] if index else -1

    def truncate_from_end(self, offset: int) -> None:
        """Drop entries for a log that now ends at `offset`."""
        self._set([entry for entry in self._entries if entry[1] < offset])

    def truncate_from_start(self, offset: int) -> None:
        """Adjust entries for a log that now begins at `offset`."""
        index = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        if (index and self._entries[index - 1][1] != offset) or index > 1:
            self._set([(self._entries[index - 1][0], offset), *self._entries[index:]])

    def load(self) -> bool:
        """Read the file; return False if it must be rebuilt, because it is missing or damaged."""
        try:
            rows = parse_lines(self._filesystem.read_bytes(self.path))
            entries = [(int(epoch), int(offset)) for epoch, offset in rows]
        except (FileNotFoundError, CheckpointError, ValueError):
            return False
        if any(a[0] >= b[0] or a[1] >= b[1] for a, b in pairwise(entries)):
            return False
        self._set(entries)
        self.dirty = False
        return True

    def clear(self) -> None:
        self._set([])

    def write(self) -> None:
        """Write the file if entries changed; it is not durable yet."""
        if self.dirty:
            replace_file(self._filesystem, self.path, self.content(), sync=False)
            self.dirty = False
            self.unsynced = True

    def try_write(self) -> None:
        """Write the file if the disk lets it. A failure is harmless: recovery completes the epochs from the batches."""
        try:
            self.write()
        except OSError as error:
            logger.warning("%s: leader epochs not written: %s", self.path.parent.name, describe(error))

    def sync(self) -> None:
        """Make the written file durable, except for its name: the caller syncs the directory. May run in a thread."""
        if self.unsynced:
            self.unsynced = False  # before the file is opened: it may be replaced meanwhile
            try:
                file = self._filesystem.open_file(self.path)
            except OSError:
                self.unsynced = True
                raise
            file.sync()

    def content(self) -> bytes:
        return format_lines([f"{epoch} {offset}" for epoch, offset in self._entries])

    def _set(self, entries: list[tuple[int, int]]) -> None:
        if entries != self._entries:
            self._entries = entries
            self.latest = entries[-1][0] if entries else -1
            self.dirty = True
