"""`__cluster_metadata-0`: the log of Apache Kafka's controllers, read as a whole, and the snapshots that replace its
beginning.

    __cluster_metadata-0/
      00000000000000000000.log                        segments, as of any partition; record values in `cluster_metadata`
      00000000000000004211-0000000003.checkpoint      a snapshot: all records that the log up to that end offset and
                                                      epoch comes to, between a header and a footer (control batches)
Snapshot 0-0 is written by `kafka-storage format`: the first feature levels, and voters where they are dynamic.

The reader takes the newest complete snapshot, then the log from its end offset on. On a node that is the whole quorum
all written records count as committed. A torn batch at the very end is the last write before a crash, and is left out;
anything else that is missing or does not fit raises `KraftLogError`. No file is changed.
"""

from __future__ import annotations

import logging
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from klamm.broker.tools.cluster_state import ClusterState, Inconsistent
from klamm.protocol.cluster_metadata import kinds
from klamm.protocol.cluster_metadata.control import SnapshotFooterRecord, SnapshotHeaderRecord
from klamm.protocol.cluster_metadata.kinds import UnknownRecord
from klamm.protocol.errors import KafkaError
from klamm.protocol.records.batch import Record, crc_is_valid, encode_batch, records
from klamm.protocol.schema import Message
from klamm.protocol.wire import Malformed
from klamm.storage import paths
from klamm.storage.filesystem import Filesystem
from klamm.storage.log.scan import batches

log = logging.getLogger(__name__)

CHECKPOINT_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
CONTROL_KEY = struct.Struct(">hh")  # version, type
HEADER_TYPE, FOOTER_TYPE = 3, 4
BATCH_RECORDS = 1000
DECOMPRESSED_LIMIT = 1 << 28


class KraftLogError(Exception):
    """The metadata cannot be read; one line for the operator."""


def checkpoint_name(end_offset: int, epoch: int) -> str:
    return f"{end_offset:020d}-{epoch:010d}.checkpoint"


# -- reading ----------------------------------------------------------------------------------------------------


def read_state(filesystem: Filesystem, directory: Path) -> tuple[ClusterState, int]:
    """Return the state that the metadata describe, and their end offset. Raises KraftLogError, OSError."""
    names = sorted(entry.name for entry in filesystem.list_directory(directory))
    state, offset = _newest_snapshot(filesystem, directory, names)
    segments = [name for name in names if (paths.parse_offset_file(name) or (0, ""))[1] == paths.LOG_SUFFIX]
    for name in segments:
        offset = _read_segment(filesystem, directory / name, state, offset, is_last=name == segments[-1])
    return state, offset


def _newest_snapshot(filesystem: Filesystem, directory: Path, names: list[str]) -> tuple[ClusterState, int]:
    for name in reversed(names):
        match = CHECKPOINT_NAME.fullmatch(name)
        if match is None:
            continue
        state = ClusterState()
        if _read_snapshot(filesystem, directory / name, state):
            return state, int(match[1])
        log.warning("%s: not a whole snapshot, an older one is used", directory / name)
    return ClusterState(), 0


def _read_snapshot(filesystem: Filesystem, path: Path, state: ClusterState) -> bool:
    """Apply a snapshot. Return whether it is complete, with its footer."""
    whole = False
    file = filesystem.open_read(path)
    for position, head, data in batches(file, 0, file.size()):
        if not crc_is_valid(data, head):
            raise KraftLogError(f"{path}: the batch at position {position} has a wrong checksum")
        if head.is_control:
            whole = any(_control_type(record) == FOOTER_TYPE for record in records(data, head, DECOMPRESSED_LIMIT))
        else:
            _apply(path, records(data, head, DECOMPRESSED_LIMIT), state)
    return whole


def _read_segment(filesystem: Filesystem, path: Path, state: ClusterState, offset: int, *, is_last: bool) -> int:
    """Apply the records from `offset` on. Return the offset after the last one."""
    file = filesystem.open_read(path)
    size, end = file.size(), 0
    for position, head, data in batches(file, 0, size):
        if not crc_is_valid(data, head):
            break
        end = position + head.size_bytes
        if head.next_offset <= offset:
            continue
        if head.base_offset > offset:
            raise KraftLogError(f"{path}: begins at offset {head.base_offset}, and the records before it are missing")
        if not head.is_control:
            _apply(path, (r for r in records(data, head, DECOMPRESSED_LIMIT) if r.offset >= offset), state)
        offset = head.next_offset
    if end != size:
        if not is_last or _is_followed(filesystem, path, end, size):
            raise KraftLogError(f"{path}: damaged at position {end}")
        log.warning("%s: the last write was cut short: %d bytes left out", path, size - end)
    return offset


def _is_followed(filesystem: Filesystem, path: Path, position: int, size: int) -> bool:
    """Return whether a whole batch follows a bad one, which then is no torn write."""
    file = filesystem.open_read(path)
    return sum(1 for _ in batches(file, position, size)) > 1


def _apply(path: Path, found: Iterable[Record], state: ClusterState) -> None:
    for record in found:
        try:
            state.apply(kinds.decode(record.value or b"").message)
        except UnknownRecord as error:
            if error.kind in kinds.KINDS:  # perhaps a topic's: changes in it would be lost
                raise KraftLogError(f"{path}: offset {record.offset}: {error}: a newer Kafka wrote it") from None
            log.warning("%s: offset %d: %s, skipped", path, record.offset, error)
        except (Malformed, Inconsistent, KafkaError) as error:
            raise KraftLogError(f"{path}: offset {record.offset}: {error}") from None


def _control_type(record: Record) -> int:
    key = record.key or b""
    return int(CONTROL_KEY.unpack_from(key)[1]) if len(key) >= CONTROL_KEY.size else -1


# -- writing ----------------------------------------------------------------------------------------------------


def snapshot(content: Iterable[Message], *, now_ms: int, epoch: int) -> bytes:
    """Return the bytes of a snapshot with these records."""
    return b"".join(_snapshot_batches(content, now_ms, epoch))


def _snapshot_batches(content: Iterable[Message], now_ms: int, epoch: int) -> Iterator[bytes]:
    header = SnapshotHeaderRecord(last_contained_log_timestamp=now_ms)
    yield _control_batch(HEADER_TYPE, header, 0, now_ms, epoch)
    offset = 1
    pending: list[Record] = []
    for message in content:
        pending.append(Record(offset + len(pending), now_ms, None, kinds.encode(message)))
        if len(pending) == BATCH_RECORDS:
            yield bytes(encode_batch(pending, base_offset=offset, leader_epoch=epoch))
            offset += len(pending)
            pending = []
    if pending:
        yield bytes(encode_batch(pending, base_offset=offset, leader_epoch=epoch))
        offset += len(pending)
    yield _control_batch(FOOTER_TYPE, SnapshotFooterRecord(), offset, now_ms, epoch)


def _control_batch(kind: int, message: Message, offset: int, now_ms: int, epoch: int) -> bytes:
    value = bytes(message.encode[0](message, bytearray()))
    record = Record(offset, now_ms, CONTROL_KEY.pack(0, kind), value)
    return bytes(encode_batch([record], base_offset=offset, leader_epoch=epoch, control=True))
