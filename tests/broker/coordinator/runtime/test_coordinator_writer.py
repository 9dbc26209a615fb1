"""Appends of a coordinator: whatever stands in the way of a batch, it is a failed write, and the next one is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from klamm.broker.coordinator.runtime.coordinator_writer import CoordinatorWriter
from klamm.broker.coordinator.runtime.types import KeyValue, Now
from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.compression import Codec
from klamm.protocol.wire import NotEncodable
from tests.support.embedded import NOW_MS, EmbeddedBroker

NOW = Now(0, NOW_MS)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t")
        yield broker


def refuse() -> list[KeyValue]:
    raise NotEncodable("a string of 60000 bytes is too long")


def no_disk() -> list[KeyValue]:
    raise OSError(28, "No space left on device")


def too_large() -> list[KeyValue]:
    return [(b"k", bytes(2_000_000))]


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (refuse, ErrorCode.UNKNOWN_SERVER_ERROR),
        (no_disk, ErrorCode.UNKNOWN_SERVER_ERROR),
        (too_large, ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_a_batch_that_cannot_be_made_or_appended_is_a_failed_write(
    broker: EmbeddedBroker, records: Callable[[], list[KeyValue]], code: ErrorCode
) -> None:
    partition = broker.broker.partitions.topics["t"].partitions[0]
    writer = CoordinatorWriter(broker.broker.flusher, lambda: NOW, Codec.NONE)
    reported: list[ErrorCode | str] = []

    def append(records: Callable[[], list[KeyValue]]) -> None:
        writer.append(
            partition, records, lambda code, _: reported.append(code), NOW, appended=lambda: reported.append("appended")
        )

    append(records)
    assert reported == [code] and partition.log_end_offset == 0
    append(lambda: [(b"k", b"v")])
    assert reported[1:] == ["appended", ErrorCode.NONE] and partition.log_end_offset == 1


def test_an_append_with_a_failed_callback_does_not_keep_the_next_one_waiting(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, {"log.flush.interval.messages": 1}) as broker:
        broker.create_topic("t")
        partition = broker.broker.partitions.topics["t"].partitions[0]
        writer = CoordinatorWriter(broker.broker.flusher, lambda: NOW, Codec.NONE)
        reported: list[ErrorCode] = []

        def fail(code: ErrorCode, now: Now) -> None:
            raise ValueError

        async def append() -> None:
            writer.append(partition, lambda: [(b"k", b"v")], fail, NOW)
            writer.append(partition, lambda: [(b"k", b"v")], lambda code, _: reported.append(code), NOW)

        broker.run(append())
        broker.run(broker.broker.flusher.drain())
        broker.run(append())
        broker.run(broker.broker.flusher.drain())
        assert reported == [ErrorCode.NONE] * 2
