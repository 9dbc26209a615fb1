"""The records of ``__transaction_state``: the part of a transactional id that survives a restart.

Each transactional id has one record, with key version 0 and value version 1. Value version 1 has the fields of protocol
version 2 (KIP-890) as tagged fields. Value version 0, written by older brokers, is read, too. A tombstone forgets the
id. The layouts are Kafka's: `klamm.protocol.coordinator_records.transaction`.
"""

from __future__ import annotations

from klamm.broker.coordinator.transaction.states import NUMBERS, STATES, State
from klamm.broker.coordinator.transaction.transaction import Transaction
from klamm.protocol.coordinator_records.kinds import PREFIX, TRANSACTION_KINDS, decode_key, decode_value
from klamm.protocol.coordinator_records.transaction import PartitionsSchema, TransactionLogKey, TransactionLogValue
from klamm.protocol.wire import Malformed

KEY_VERSION = 0
VALUE_VERSION = 1


def transaction_key(transactional_id: str) -> bytes:
    """Return the encoded key of a transactional id. Raises Malformed if the id is too long."""
    out = bytearray(PREFIX.pack(KEY_VERSION))
    TransactionLogKey.encode[KEY_VERSION](TransactionLogKey(transactional_id=transactional_id), out)
    return bytes(out)


def transaction_value(transaction: Transaction) -> bytes:
    """Return the encoded value of a transaction."""
    partitions: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        partitions.setdefault(topic, []).append(partition)
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=NUMBERS[transaction.state],
        transaction_partitions=None
        if transaction.state is State.EMPTY
        else [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in partitions.items()],
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.client_version,
    )
    out = bytearray(PREFIX.pack(VALUE_VERSION))
    TransactionLogValue.encode[VALUE_VERSION](value, out)
    return bytes(out)


def decode(key: bytes | None, value: bytes | None) -> tuple[str, Transaction | None]:
    """Decode a record: the transactional id and its state, None for a tombstone. Raises Malformed."""
    if key is None:
        raise Malformed("a record of __transaction_state without a key")
    named = decode_key(TRANSACTION_KINDS, key).message
    assert isinstance(named, TransactionLogKey)
    if value is None:
        return named.transactional_id, None
    stored = decode_value(TRANSACTION_KINDS, KEY_VERSION, value).message
    assert isinstance(stored, TransactionLogValue)
    state = STATES.get(stored.transaction_status)
    if state is None:
        raise Malformed(f"transaction status {stored.transaction_status} is not known")
    return named.transactional_id, Transaction(
        named.transactional_id,
        stored.producer_id,
        stored.transaction_timeout_ms,
        stored.transaction_last_update_timestamp_ms,
        producer_epoch=stored.producer_epoch,
        state=state,
        partitions=frozenset(
            (topic.topic, index) for topic in stored.transaction_partitions or () for index in topic.partition_ids
        ),
        started_ms=stored.transaction_start_timestamp_ms,
        previous_producer_id=stored.previous_producer_id,
        next_producer_id=stored.next_producer_id,
        client_version=stored.client_transaction_version,
    )
