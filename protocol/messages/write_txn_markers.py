"""WriteTxnMarkers (27): a transaction coordinator has leaders append commit or abort markers (KIP-98).

v1 is flexible; Apache Kafka 4.0 removed v0. v2 tells the transaction version, so that the epoch of a marker can be
checked more strictly (KIP-1228).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Int8, Int16, Int32, Int64, String


@struct
class WritableTxnMarkerTopic:
    name: String = field()
    partition_indexes: list[Int32] = field()


@struct
class WritableTxnMarker:
    producer_id: Int64 = field()
    producer_epoch: Int16 = field()
    transaction_result: Bool = field()
    topics: list[WritableTxnMarkerTopic] = field()
    coordinator_epoch: Int32 = field()
    transaction_version: Int8 = field("2+", default=0, ignorable=True)


@message(key=27, kind="request", versions="0-2", flexible="1+")
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker] = field()


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: Int32 = field()
    error_code: Int16 = field()


@struct
class WritableTxnMarkerTopicResult:
    name: String = field()
    partitions: list[WritableTxnMarkerPartitionResult] = field()


@struct
class WritableTxnMarkerResult:
    producer_id: Int64 = field()
    topics: list[WritableTxnMarkerTopicResult] = field()


@message(key=27, kind="response", versions="0-2", flexible="1+")
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult] = field()
