"""Decide whether a producer's batch may be appended: by its sequence, its epoch and its transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.protocol.errors import OutOfOrderSequenceNumber
from klamm.storage.filesystem import storage_errors

if TYPE_CHECKING:
    from klamm.protocol.records.batch import BatchHeader
    from klamm.protocol.records.validate import ValidBatch
    from klamm.storage.log.producer_state_entry import BatchMetadata
    from klamm.storage.log.producer_state_manager import ProducerStateManager
    from klamm.storage.log.segment import Segment
    from klamm.storage.log.segment_list import SegmentList
    from klamm.storage.log.transaction_verification import TransactionVerifications, VerificationGuard

RECALL_INDEX_ENTRIES = 64
"""How far back, in entries of the offset index, a producer's batches are searched."""


def check_producer(
    batch: ValidBatch,
    guard: VerificationGuard | None,
    by_coordinator: bool,
    producers: ProducerStateManager,
    verifications: TransactionVerifications,
    segments: SegmentList,
) -> BatchMetadata | None:
    """Return the batch that this one duplicates, or None when it may be appended.

    The order is Kafka's: duplicates first, then the transaction, then epoch and sequence. Raises InvalidTxnState,
    InvalidProducerEpoch, OutOfOrderSequenceNumber, KafkaStorageError.
    """
    producer_id, epoch, sequence = batch.producer_id, batch.producer_epoch, batch.base_sequence
    is_transactional, delta = batch.is_transactional, batch.last_offset_delta
    if is_transactional:
        before = _check_transaction(batch, guard, by_coordinator, producers, verifications)
        if before is not None:
            return before
    if by_coordinator:
        producers.check_epoch(producer_id, epoch)
        return None
    try:
        return producers.check_batch(producer_id, epoch, sequence, delta, is_transactional=is_transactional)
    except OutOfOrderSequenceNumber:
        if not _recall_batches(producers, segments, producer_id):
            raise
    return producers.check_batch(producer_id, epoch, sequence, delta, is_transactional=is_transactional)


def _check_transaction(
    batch: ValidBatch,
    guard: VerificationGuard | None,
    by_coordinator: bool,
    producers: ProducerStateManager,
    verifications: TransactionVerifications,
) -> BatchMetadata | None:
    producer_id, sequence = batch.producer_id, batch.base_sequence
    producer = producers.get(producer_id)
    if producer is not None:
        before = producer.find_duplicate(batch.producer_epoch, sequence, batch.last_offset_delta)
        if before is not None:
            verifications.duplicate(producer_id, sequence, batch.last_offset_delta)
            return before
    if producers.open_epoch(producer_id) != batch.producer_epoch:
        verifications.check_guard(producer_id, guard)
    if not by_coordinator:
        has_batches = producer is not None and bool(producer.batches)
        verifications.check_sequence(producer_id, sequence, has_batches=has_batches)
    return None


def _recall_batches(producers: ProducerStateManager, segments: SegmentList, producer_id: int) -> bool:
    """Find more of a producer's last batches near the end of the log; return False when there are none.

    After a clean start only the last one is known, since the snapshot has no more. But a client that missed the
    responses to its last five batches sends them all again.
    """
    producer = producers.get(producer_id)
    if producer is None or producer.recalled:
        return False
    with storage_errors(segments.active.directory.name):
        return producer.recall(_last_batch_headers(segments.all))


def _last_batch_headers(segments: list[Segment]) -> list[BatchHeader]:
    """Return the headers of batches near the end of the log, in order; from several segments if they are small."""
    found: list[BatchHeader] = []
    entries = RECALL_INDEX_ENTRIES
    for segment in reversed(segments):
        found[:0] = [header for _, header in segment.last_batch_headers(entries)]
        entries -= max(1, segment.offset_index.count)
        if entries <= 0:
            break
    return found
