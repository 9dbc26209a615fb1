"""Requests of our own client, and what they bring back as bytes."""

from __future__ import annotations

from klamm.client.blocking import NodeClient
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.protocol.records.batch import batches

FETCH_VERSION = 12  # the last that names topics
MAX_BYTES = 64 << 20


def fetch(
    client: NodeClient,
    topic: str,
    partition: int,
    offset: int = 0,
    *,
    version: int = FETCH_VERSION,
    max_bytes: int = MAX_BYTES,
) -> bytes:
    """The records of one Fetch answer, which must not be an error."""
    response = client.request(
        FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=max_bytes,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
                    ],
                )
            ],
        ),
        version,
    )
    (answer,) = response.responses[0].partitions
    assert answer.error_code == 0, answer
    return bytes(answer.records)


def fetch_all(client: NodeClient, topic: str, partition: int) -> bytes:
    """All batches of a partition, as they are."""
    found = b""
    offset = 0
    while data := fetch(client, topic, partition, offset):
        found += data
        offset = max(header.next_offset for _, header in batches(data))
    return found
