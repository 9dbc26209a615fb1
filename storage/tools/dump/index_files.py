"""Dump `.index`, `.timeindex` and `.txnindex` files, the first two compared with the `.log` beside them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from struct import Struct

from klamm.protocol.errors import KafkaError
from klamm.storage import paths
from klamm.storage.filesystem import File, Filesystem
from klamm.storage.log.index import NO_TIMESTAMP, OFFSET_ENTRY, TIME_ENTRY
from klamm.storage.log.scan import batches, find_offset
from klamm.storage.log.transaction_index import ENTRY as TRANSACTION_ENTRY
from klamm.storage.tools.dump.findings import Findings
from klamm.storage.tools.dump.log_file import largest_timestamp


class IndexMode(Enum):
    """How an index is treated."""

    SHOW = "show"
    VERIFY = "verify"  # silently
    SANITY = "sanity"  # only the checks that a start makes


@dataclass(frozen=True, slots=True)
class IndexFile:
    """An index and its log, None when there is no log."""

    path: Path
    base_offset: int
    content: bytes
    log: File | None

    @classmethod
    def read(cls, filesystem: Filesystem, path: Path, base_offset: int) -> IndexFile:
        log = path.with_suffix(paths.LOG_SUFFIX)
        opened = filesystem.open_read(log) if filesystem.exists(log) else None
        return cls(path, base_offset, filesystem.read_bytes(path), opened)

    def entries(self, layout: Struct) -> list[tuple[int, ...]]:
        whole = len(self.content) // layout.size * layout.size
        return list(layout.iter_unpack(self.content[:whole]))


def dump_offset_index(index: IndexFile, mode: IndexMode, max_message_bytes: int, findings: Findings) -> Iterator[str]:
    entries = index.entries(OFFSET_ENTRY)
    _check_size(index, OFFSET_ENTRY, findings)
    if not entries:
        yield f"{index.path} is empty."
        return
    if mode is IndexMode.SANITY:
        if entries[-1][0] < 0:
            findings.problem(index.path, f"last offset {index.base_offset + entries[-1][0]} is below the base offset")
        elif len(index.content) % OFFSET_ENTRY.size == 0:
            yield f"{index.path} passed sanity check."
        return
    if index.log is None:
        findings.problem(index.path, "there is no log beside it")
    for number, (relative, position) in enumerate(entries):
        if relative == 0 and number > 0:  # preallocated
            return
        offset = index.base_offset + relative
        if index.log is not None:
            _check_position(index, index.log, offset, position, max_message_bytes, findings)
        if mode is IndexMode.SHOW:
            yield f"offset: {offset} position: {position}"


def _check_position(
    index: IndexFile, log: File, offset: int, position: int, max_message_bytes: int, findings: Findings
) -> None:
    found = next(batches(log, position, log.size()), None) if position >= 0 else None
    if found is None:
        findings.problem(index.path, f"offset {offset}: the log has no batch at position {position}")
    elif found[1].last_offset != offset:
        findings.index_mismatch(index.path, offset, found[1].last_offset)
    elif found[1].size_bytes > max_message_bytes:
        what = f"offset {offset}: the batch at position {position} is larger than --max-message-size"
        findings.problem(index.path, f"{what} {max_message_bytes}")


def dump_time_index(
    index: IndexFile, offset_index: IndexFile | None, mode: IndexMode, findings: Findings
) -> Iterator[str]:
    entries = index.entries(TIME_ENTRY)
    _check_size(index, TIME_ENTRY, findings)
    if mode is IndexMode.SANITY:
        if entries and (entries[-1][0] < entries[0][0] or entries[-1][1] < 0):
            findings.problem(index.path, "the last entry is below the first one, or below the base offset")
        elif len(index.content) % TIME_ENTRY.size == 0:
            yield f"{index.path} passed sanity check."
        return
    if entries and index.log is None:
        findings.problem(index.path, "there is no log beside it")
    positions = offset_index.entries(OFFSET_ENTRY) if offset_index is not None else []
    before = NO_TIMESTAMP
    for number, (timestamp, relative) in enumerate(entries):
        if relative == 0 and number > 0:  # preallocated
            return
        if index.log is not None:
            _check_timestamp(index, index.log, positions, timestamp, relative, before, findings)
        if mode is IndexMode.SHOW:
            yield f"timestamp: {timestamp} offset: {index.base_offset + relative}"
        before = timestamp


def _check_timestamp(
    index: IndexFile,
    log: File,
    positions: list[tuple[int, ...]],
    timestamp: int,
    relative: int,
    before: int,
    findings: Findings,
) -> None:
    offset = index.base_offset + relative
    at = bisect_right(positions, relative, key=lambda entry: entry[0]) - 1
    start = positions[at][1] if at >= 0 else 0
    found = find_offset(log, start, log.size(), offset)
    if found is None or found[1].last_offset != offset:
        findings.offset_not_found(offset, found[1].last_offset if found is not None else -1)
        return
    position, header = found
    try:
        _, _, data = next(batches(log, position, position + header.size_bytes))
        largest = largest_timestamp(header, data)
    except KafkaError as error:
        findings.problem(index.path, f"offset {offset}: {error}")
        return
    if largest != timestamp:
        findings.time_mismatch(index.path, timestamp, largest)
    if before >= timestamp:
        findings.time_not_ascending(index.path, timestamp, before)


def dump_transaction_index(index: IndexFile, findings: Findings) -> Iterator[str]:
    _check_size(index, TRANSACTION_ENTRY, findings)
    for version, producer_id, first_offset, last_offset, last_stable_offset in index.entries(TRANSACTION_ENTRY):
        yield (
            f"version: {version} producerId: {producer_id} firstOffset: {first_offset} "
            f"lastOffset: {last_offset} lastStableOffset: {last_stable_offset}"
        )


def _check_size(index: IndexFile, layout: Struct, findings: Findings) -> None:
    if len(index.content) % layout.size:
        findings.problem(index.path, f"{len(index.content)} bytes are not whole entries of {layout.size}")
