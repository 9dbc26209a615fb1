"""Check the batches of one segment after an unclean shutdown. Only indexes in memory are changed here."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from itertools import groupby

from klamm.protocol.errors import CorruptMessage
from klamm.protocol.records.batch import HEADER_BYTES, BatchHeader, crc_is_valid, read_header
from klamm.storage.filesystem import File
from klamm.storage.log.leader_epochs import LeaderEpochCache
from klamm.storage.log.producer_state_manager import ProducerStateManager
from klamm.storage.log.replay import replay
from klamm.storage.log.scan import batches, problem_of
from klamm.storage.log.segment import Segment

logger = logging.getLogger(__name__)

SEARCH_BYTES = 1 << 20
PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of a scan: whole, good batches up to `end_position`, and the problem that ended it."""

    end_position: int
    next_offset: int
    problem: str | None


def scan_segment(
    segment: Segment, next_offset: int, epochs: LeaderEpochCache, producers: ProducerStateManager, *, power_loss: bool
) -> Scan:
    """Check every batch up to the first bad one. The good ones rebuild the indexes and complete epochs and producers.

    After a power cut, a batch of an older epoch than the batch before it dates from before a truncation: the disk lost
    the bytes that had overwritten it.
    """
    segment.offset_index.clear()
    segment.time_index.clear()
    segment.transaction_index.clear()
    segment.reset_accounting()
    end = 0
    problem = None
    for position, header, data in batches(segment.file, 0, segment.size_bytes):
        problem = problem_of(header, data, next_offset, segment.base_offset)
        if problem is None and power_loss and 0 <= header.leader_epoch < epochs.latest:
            problem = f"leader epoch {header.leader_epoch} after {epochs.latest}"
        if problem is not None:
            break
        segment.account_batch(position, header)
        note_epoch(epochs, header)
        aborted = replay(producers, segment, position, header, data)
        if aborted is not None:
            segment.transaction_index.append(aborted)
        next_offset = header.last_offset + 1
        end = position + header.size_bytes
    if problem is None and end != segment.size_bytes:
        problem = "no whole batch"
    return Scan(end, next_offset, problem)


def note_epoch(epochs: LeaderEpochCache, header: BatchHeader) -> None:
    """Record the leader epoch of a batch that is in the log.

    A message of an older format has none. After it, earlier epochs no longer show where logs diverge: as in Kafka, they
    are forgotten.
    """
    if header.magic < 2:
        epochs.clear()
    elif header.leader_epoch > epochs.latest:
        epochs.assign(header.leader_epoch, header.base_offset)


def end_of_content(file: File, position: int, end: int) -> int:
    """Return the position from which only zeros follow up to `end` (preallocation), plus a page of margin."""
    for first, last in reversed(file.data_ranges(position, end)):
        while last > first:
            start = max(first, last - SEARCH_BYTES)
            content = file.read_at(last - start, start).rstrip(b"\0")
            if content:
                return min(end, start + len(content) + PAGE_BYTES)
            last = start
    return position


def find_batch_after(file: File, position: int, end: int, next_offset: int) -> int | None:
    """Return the position of a good batch anywhere in [position, end), with an offset of `next_offset` or more.

    It distinguishes damage in the middle (good batches follow) from a torn or garbage tail. The fixed bytes of a header
    give the candidates: the upper half of the base offset, the magic, and a length that is not too small. Preallocated
    zeros are skipped.
    """
    upper = next_offset >> 32
    halves = b"|".join(re.escape(half.to_bytes(4, "big")) for half in (upper, upper + 1))
    candidate = re.compile(b"(?=(?:" + halves + b").{4}(?!\0\0\0[\0-\x0d]).{8}[\0-\2])", re.DOTALL)
    for start, stop in file.data_ranges(position, end):
        at = max(position, start - HEADER_BYTES)  # a header may begin with zeros
        position = stop
        while at < stop:
            window = file.read_at(min(SEARCH_BYTES, end - at, stop + HEADER_BYTES - at), at)
            if window.count(0) < len(window):
                for match in candidate.finditer(window):
                    if _is_good(file, at + match.start(), end, next_offset):
                        return at + match.start()
            if at + len(window) >= stop:
                break
            at += SEARCH_BYTES - HEADER_BYTES
    return None


def _is_good(file: File, position: int, end: int, next_offset: int) -> bool:
    try:
        header = read_header(file.read_at(min(HEADER_BYTES, end - position), position))
    except CorruptMessage:
        return False
    if header.base_offset < next_offset or position + header.size_bytes > end:
        return False
    return crc_is_valid(file.read_at(header.size_bytes, position), header)


def rebuild_epochs(epochs: LeaderEpochCache, segments: list[Segment]) -> None:
    """Rebuild the epochs from the batches. Nothing below a segment with messages that have none needs to be read."""
    epochs.clear()
    found: list[BatchHeader] = []
    for segment in reversed(segments):
        changes = [
            next(batch_headers)
            for _, batch_headers in groupby((header for _, header in segment.batch_headers()), _epoch_of)
        ]
        found = changes + found
        if any(header.magic < 2 for header in changes):
            break
    for header in found:
        note_epoch(epochs, header)
    if epochs:
        logger.info("%s: rebuilt the leader epochs: %s", epochs.path.parent.name, list(epochs))


def _epoch_of(header: BatchHeader) -> tuple[bool, int]:
    return header.magic < 2, header.leader_epoch
