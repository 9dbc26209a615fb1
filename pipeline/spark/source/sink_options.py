"""The options of the sink: `kafka.bootstrap.servers`, `topic`, and some of Kafka's producer.

- `topic`: the topic of all rows; without it the column `topic` names it
- `transactionalId`: the prefix of the transactional ids. A batch job after one that was killed then ends the open
  transactions of that one at once. Default: a new one for each job, and for a stream one that belongs to its
  checkpoint. Two jobs must not use the same at the same time
- `kafka.compression.type` (none, gzip, snappy, lz4, zstd; default none), `kafka.batch.size` (bytes before compression,
  default 512 KB), `kafka.transaction.timeout.ms` (default 15 minutes for a batch, 1 minute for a stream),
  `kafka.client.id`, `kafka.request.timeout.ms`, `kafka.acks` (all), `kafka.enable.idempotence` (true)

Every other option is refused.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from klamm.pipeline.errors import BadOption
from klamm.pipeline.kafka.encoding import BATCH_BYTES
from klamm.pipeline.spark.source.options import BATCH, STREAM, Connection, Kind, connection_of
from klamm.pipeline.spark.source.parsing import Options, boolean, one_of, positive
from klamm.protocol.records.compression import Codec

TRANSACTION_TIMEOUT_S: Final = {BATCH: 900.0, STREAM: 60.0}
OF_SPARK: Final = ("checkpointLocation", "queryName")
"""Options of the query itself, which Spark passes too."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All options, checked as far as possible without the cluster."""

    connection: Connection
    topic: str | None
    transactional_id: str | None
    job: str
    transaction_timeout_s: float
    codec: Codec
    batch_bytes: int


def parse_sink(given: Mapping[str, str], kind: Kind) -> SinkOptions:
    """Parse the options that Spark passes. Raises BadOption."""
    options = Options(given)
    if kind == STREAM:
        for name in OF_SPARK:
            options.take(name)
        if options.was_given("transactionalId"):
            raise BadOption("transactionalId is for batches: that of a stream belongs to its checkpoint")
    connection = connection_of(options, required=True)
    assert connection is not None
    options.take("kafka.acks", _all)
    options.take("kafka.enable.idempotence", _true)
    timeout_ms = options.take("kafka.transaction.timeout.ms", positive)
    codec = options.take("kafka.compression.type", one_of(*(codec.name.lower() for codec in Codec)))
    parsed = SinkOptions(
        connection=connection,
        topic=options.take("topic"),
        transactional_id=options.take("transactionalId"),
        job=str(uuid.uuid4()),
        transaction_timeout_s=TRANSACTION_TIMEOUT_S[kind] if timeout_ms is None else timeout_ms / 1000,
        codec=Codec[(codec or "none").upper()],
        batch_bytes=options.take("kafka.batch.size", positive) or BATCH_BYTES,
    )
    options.refuse_rest()
    return parsed


def _all(name: str, text: str) -> str:
    if text.strip().lower() not in ("all", "-1"):
        raise BadOption(f"{name} is {text}: transactions need all")
    return text


def _true(name: str, text: str) -> bool:
    if not boolean(name, text):
        raise BadOption(f"{name} is false: transactions need true")
    return True
