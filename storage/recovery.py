"""Checking the batches of one segment after an unclean shutdown. Nothing is changed here but indexes in memory."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from struct import Struct

from klamm.protocol.records.batch import (
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MIN_MESSAGE_BYTES,
    BatchHeader,
    crc_is_valid,
)
from klamm.storage.filesystem import File
from klamm.storage.index import MAX_RELATIVE_OFFSET
from klamm.storage.leader_epochs import EpochCache
from klamm.storage.producer_state import ProducerState
from klamm.storage.scan import MAGIC, MIN_LENGTH, batches
from klamm.storage.segment import Segment

OLD_MESSAGE_HEAD = Struct(">qiIb")  # offset, length, crc32 of what follows it, magic

SEARCH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Scan:
    """What a segment holds: whole, good batches up to `end_position`, and why not more."""

    end_position: int
    next_offset: int
    problem: str | None


def scan_segment(
    segment: Segment, next_offset: int, epochs: EpochCache, producers: ProducerState, *, power_loss: bool
) -> Scan:
    """Check every batch up to the first bad one. The good ones rebuild the indexes and complete epochs and producers.

    After a power cut a batch of an older epoch than the one before it is left from before a truncation: the disk has
    forgotten what was written over it.
    """
    segment.offset_index.clear()
    segment.time_index.clear()
    segment.reset_accounting()
    end = 0
    problem = None
    for position, head, data in batches(segment.file, 0, segment.size_bytes):
        problem = problem_of(head, data, next_offset, segment.base_offset)
        if problem is None and power_loss and 0 <= head.leader_epoch < epochs.latest:
            problem = f"leader epoch {head.leader_epoch} after {epochs.latest}"
        if problem is not None:
            break
        segment.account(position, head)
        if head.leader_epoch > epochs.latest:
            epochs.assign(head.leader_epoch, head.base_offset)
        producers.replay(head)
        next_offset = head.last_offset + 1
        end = position + head.size_bytes
    if problem is None and end != segment.size_bytes:
        problem = "no whole batch"
    return Scan(end, next_offset, problem)


def problem_of(head: BatchHeader, data: memoryview, next_offset: int, segment_base_offset: int) -> str | None:
    """What is wrong with a batch whose magic and size are plausible; None when it is good."""
    if not crc_is_valid(data, head):
        return "wrong CRC"
    if head.base_offset < next_offset:
        return f"base offset {head.base_offset} where {next_offset} or more is due"
    if head.last_offset_delta < 0 or head.last_offset - segment_base_offset > MAX_RELATIVE_OFFSET:
        return f"last offset delta {head.last_offset_delta}"
    return None


def is_old_message(file: File, position: int, end: int) -> bool:
    """Whether a good message of the formats before Kafka 0.11 (magic 0 and 1) is there: data, not garbage."""
    head = file.read_at(OLD_MESSAGE_HEAD.size, position)
    if len(head) < OLD_MESSAGE_HEAD.size:
        return False
    _, length, crc, magic = OLD_MESSAGE_HEAD.unpack(head)
    if magic not in (0, 1) or length < MIN_MESSAGE_BYTES or position + LOG_OVERHEAD_BYTES + length > end:
        return False
    return bool(zlib.crc32(file.read_at(length - 4, position + LOG_OVERHEAD_BYTES + 4)) == crc)


def find_batch_after(file: File, position: int, end: int, next_offset: int) -> int | None:
    """Position of a good batch in [position, end) that begins anywhere, with an offset of `next_offset` or more.

    Tells damage in the middle (good batches follow) from a torn or garbage tail. The fixed bytes of a header find the
    candidates: the upper half of the base offset, and the magic.
    """
    upper = next_offset >> 32
    halves = b"|".join(re.escape(half.to_bytes(4, "big")) for half in (upper, upper + 1))
    candidate = re.compile(b"(?=(?:" + halves + b").{12}\x02)", re.DOTALL)
    while position + HEADER_BYTES <= end:
        window = file.read_at(min(SEARCH_BYTES, end - position), position)
        for match in candidate.finditer(window):
            at = position + match.start()
            if at + HEADER_BYTES <= end and _is_good(file, at, end, next_offset):
                return at
        if len(window) < SEARCH_BYTES:
            break
        position += SEARCH_BYTES - HEADER_BYTES
    return None


def _is_good(file: File, position: int, end: int, next_offset: int) -> bool:
    header = file.read_at(HEADER_BYTES, position)
    if len(header) < HEADER_BYTES:
        return False
    base_offset, length, *rest = HEADER.unpack(header)
    head = BatchHeader(base_offset, length + LOG_OVERHEAD_BYTES, *rest)
    if head.magic != MAGIC or length < MIN_LENGTH or base_offset < next_offset or position + head.size_bytes > end:
        return False
    return crc_is_valid(file.read_at(head.size_bytes, position), head)
