"""CreatePartitions: growth, refusals, validation."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tests.support.embedded import EmbeddedBroker, batch


def grow(
    broker: EmbeddedBroker, *topics: CreatePartitionsTopic, version: int = 3, validate_only: bool = False
) -> dict[str, int]:
    request = CreatePartitionsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    results = broker.call(request, version).results
    assert all((result.error_message is None) == (result.error_code == 0) for result in results)
    return {result.name: result.error_code for result in results}


def to(name: str, count: int, assignments: list[list[int]] | None = None) -> CreatePartitionsTopic:
    given: Any = None
    if assignments is not None:
        given = [CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=given)


@pytest.mark.parametrize("version", range(4))
def test_new_partitions_are_served_at_once_and_the_old_ones_stay(broker: EmbeddedBroker, version: int) -> None:
    broker.produce("t", batch(b"x"))
    assert grow(broker, to("t", 4), version=version) == {"t": 0}
    assert broker.produce("t", batch(b"y"), partition=3).base_offset == 0
    assert broker.produce("t", batch(b"z")).base_offset == 1


def test_what_is_refused(broker: EmbeddedBroker) -> None:
    assert grow(broker, to("t", 2), to("nobody", 3)) == {
        "t": ErrorCode.INVALID_PARTITIONS,
        "nobody": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert grow(broker, to("t", 3), to("t", 4)) == {"t": ErrorCode.INVALID_REQUEST}
    assert grow(broker, to("t", 4, [[1]])) == {"t": ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    assert grow(broker, to("t", 3, [[2]])) == {"t": ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    assert grow(broker, to("t", 1_000_000)) == {"t": ErrorCode.POLICY_VIOLATION}
    assert len(broker.broker.image.topics["t"].partitions) == 2


def test_validate_only_changes_nothing(broker: EmbeddedBroker) -> None:
    assert grow(broker, to("t", 5, [[1], [1], [1]]), validate_only=True) == {"t": 0}
    assert len(broker.broker.image.topics["t"].partitions) == 2
