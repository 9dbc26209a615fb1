"""The header of a batch without its records, and a record without its batch; the same for all magics."""

from __future__ import annotations

from typing import NamedTuple

from klamm.protocol.records.compression import CODEC_MASK, Codec, codec_of

LOG_OVERHEAD_BYTES = 12  # base_offset and batch_length, which batch_length does not count
MAGIC_POSITION = 16
MIN_MESSAGE_BYTES = 14  # the smallest valid length field, of any magic
MIN_BATCH_BYTES = LOG_OVERHEAD_BYTES + MIN_MESSAGE_BYTES  # of any magic

LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

UNKNOWN_COUNT = -1
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """One record with its absolute offset and timestamp (-1: none)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class BatchHeader(NamedTuple):
    """The header of a batch; `size_bytes` is the whole batch, `crc` as stored (not checked).

    A message of magic 0 or 1 has no epoch, no producer and one timestamp. A wrapper has only the offset of its last
    inner message: it is also used as the base offset, and the record count is UNKNOWN_COUNT.
    """

    base_offset: int
    size_bytes: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        return codec_of(self.attributes)

    @property
    def is_compressed(self) -> bool:
        return self.attributes & CODEC_MASK != 0

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_FLAG != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap from 2**31 - 1 to 0. -1 when the batch has none."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return self.base_sequence + self.last_offset_delta & 0x7FFFFFFF
