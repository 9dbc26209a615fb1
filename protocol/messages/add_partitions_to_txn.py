"""AddPartitionsToTxn (24): partitions join a producer's ongoing transaction (KIP-98).

v0-3 come from producers, with one transaction each, in the fields named `v3_and_below_...`. v2 may answer
PRODUCER_FENCED, v3 is flexible. v4 and newer come from brokers: several transactions at once, or only the question
whether the partitions are in them already (`verify_only`, KIP-890). v5 may answer TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Int16, Int32, Int64, String


@struct
class AddPartitionsToTxnTopic:
    name: String = field()
    partitions: list[Int32] = field()


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: String = field("4+")
    producer_id: Int64 = field("4+")
    producer_epoch: Int16 = field("4+")
    verify_only: Bool = field("4+", default=False)
    topics: list[AddPartitionsToTxnTopic] = field("4+")


@message(key=24, kind="request", versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    transactions: list[AddPartitionsToTxnTransaction] = field("4+")
    v3_and_below_transactional_id: String = field("0-3")
    v3_and_below_producer_id: Int64 = field("0-3")
    v3_and_below_producer_epoch: Int16 = field("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field("0-3")


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: Int32 = field()
    partition_error_code: Int16 = field()


@struct
class AddPartitionsToTxnTopicResult:
    name: String = field()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field()


@struct
class AddPartitionsToTxnResult:
    transactional_id: String = field("4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = field("4+")


@message(key=24, kind="response", versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field("4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field("4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field("0-3")
