"""Append batches with offsets that another log has assigned: fetched by a replica from its leader, or by a tool.

    append_assigned(log, data)       any number of whole batches, of any magic
The offsets are taken as they are. They must ascend from the log end; gaps are allowed, since the leader's cleaner makes
them. All batches are checked before the first is written. The leader epoch is the batch's own; messages of the formats
before 0.11 have none, and clear the epoch cache. A last batch that is cut short, as fetches cut it, is left out.

Producers are not checked: the leader has done so. Their state is updated as it is after a start.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from klamm.protocol.errors import CorruptMessage
from klamm.protocol.records.batch import BatchHeader, batches, crc_is_valid
from klamm.storage.filesystem import Buffer

if TYPE_CHECKING:
    from klamm.storage.log.log import Log

logger = logging.getLogger(__name__)


class UnexpectedOffset(Exception):
    """The batches do not continue the log: the replica must find the offset where the logs diverge."""


def append_assigned(log: Log, data: Buffer, *, leader_epoch: int | None = None) -> int:
    """Append the batches in `data`; return their number. The caller must not change the memory afterwards.

    `leader_epoch` is the epoch of the leader that sent the batches. Batches of a later epoch, and all after them, are
    left for the next fetch: that leader cannot have them, unless a truncation ran between its read and its send
    (KAFKA-18723). Raises UnexpectedOffset or CorruptMessage: nothing was appended; KafkaStorageError: the first batches
    may have been.
    """
    view = memoryview(data)
    found = _checked(log, view, leader_epoch)
    for position, header in found:
        log.append_as_follower(view[position : position + header.size_bytes], header)
    return len(found)


def _checked(log: Log, data: memoryview, leader_epoch: int | None) -> list[tuple[int, BatchHeader]]:
    found: list[tuple[int, BatchHeader]] = []
    next_offset = log.log_end_offset
    for position, header in batches(data):
        if not crc_is_valid(data, header, position):
            raise CorruptMessage(f"{log.name}: wrong CRC of the batch at offset {header.base_offset}")
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            what = "the log ends at" if not found else "the batch before it ends at"
            raise UnexpectedOffset(f"{log.name}: batch at offset {header.base_offset}, {what} {next_offset}")
        if leader_epoch is not None and header.leader_epoch > leader_epoch:
            logger.warning(
                "%s: batch of leader_epoch=%d from a leader of epoch %d left out: base_offset=%d",
                log.name, header.leader_epoch, leader_epoch, header.base_offset,
            )  # fmt: skip
            break
        found.append((position, header))
        next_offset = header.next_offset
    return found
