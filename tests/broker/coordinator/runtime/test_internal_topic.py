"""A partition of an internal topic that cannot be read: it waits alone, and is tried again after a pause."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.coordinator.runtime.internal_topic import InternalTopic, partition_of
from klamm.broker.metadata.image import OFFSETS_TOPIC, TRANSACTION_TOPIC
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.find_coordinator import FindCoordinatorRequest
from klamm.protocol.regions import FileRegion
from tests.support.embedded import EmbeddedBroker
from tests.support.transactions import TOPIC, Client

CONFIG = {"offsets.topic.num.partitions": 3, "transaction.state.log.num.partitions": 3}
KEYS = [next(key for key in map(str, range(100)) if partition_of(key, 3) == index) for index in range(3)]
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


class Media:
    """Reads of partition 0 of the internal topics fail with `error`."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.read_count = 0

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        good = FileRegion.read

        def read(region: FileRegion) -> bytes:
            path = Path(os.readlink(f"/proc/self/fd/{region.file.fileno()}"))
            if path.parent.name in (f"{OFFSETS_TOPIC}-0", f"{TRANSACTION_TOPIC}-0"):
                self.read_count += 1
                if self.error is not None:
                    raise self.error
            return good(region)

        monkeypatch.setattr(FileRegion, "read", read)


@pytest.fixture
def media(monkeypatch: pytest.MonkeyPatch) -> Media:
    media = Media()
    media.plant(monkeypatch)
    return media


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """Started again over a group and a transactional id in each partition of the internal topics."""
    with EmbeddedBroker(tmp_path, CONFIG) as broker:
        broker.create_topic(TOPIC)
        for kind in (0, 1):
            broker.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=["x"]), 4)
        client = Client(Node(broker), broker.clock.wall_ms)
        for key in KEYS:
            identity = client.started(key, 5)
            client.commit_offsets(key, identity, 5, key, 7)
            client.end(key, identity, 5, commit=True)
    with EmbeddedBroker(tmp_path, CONFIG) as broker:
        yield broker


class Node:
    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker = broker

    def request(self, request: Any, version: int) -> Any:
        return self.broker.call(request, version)


def of_groups(broker: EmbeddedBroker, key: str) -> int:
    code: int = Client(Node(broker)).offsets(key, stable=False).groups[0].error_code
    return code


def of_transactions(broker: EmbeddedBroker, key: str) -> int:
    code: int = Client(Node(broker)).describe(key).transaction_states[0].error_code
    return code


Ask = Callable[[EmbeddedBroker, str], int]


def topic_of(broker: EmbeddedBroker, ask: Ask) -> InternalTopic[Any]:
    return broker.broker.groups.topic if ask is of_groups else broker.broker.transactions.topic


@pytest.mark.parametrize("ask", [of_groups, of_transactions])
@pytest.mark.parametrize("error", [OSError(errno.EIO, "EIO"), EOFError("short"), KeyError("a bug")], ids=repr)
def test_a_partition_that_cannot_be_read_waits_alone(
    broker: EmbeddedBroker, media: Media, ask: Ask, error: Exception
) -> None:
    topic = topic_of(broker, ask)
    media.error = error
    broker.run(topic.loaded())
    for _ in range(5):
        assert [ask(broker, key) for key in KEYS] == [UNAVAILABLE, 0, 0]
    assert media.read_count == 1, "it is read again for each request"
    media.error = None
    topic._pauses[0].cancel()
    broker.run(again(topic))
    assert [ask(broker, key) for key in KEYS] == [0, 0, 0]


def test_each_pause_is_longer_than_the_one_before(
    broker: EmbeddedBroker, media: Media, caplog: pytest.LogCaptureFixture
) -> None:
    topic = broker.broker.groups.topic
    media.error = OSError(errno.EIO, "EIO")
    broker.run(topic.loaded())
    for _ in range(7):
        topic._pauses[0].cancel()
        broker.run(again(topic))
    warnings = [record.args for record in caplog.records if "cannot be loaded" in record.message]
    assert [args[1] for args in warnings if isinstance(args, tuple)] == [1, 2, 4, 8, 16, 32, 60, 60]


def test_the_end_ends_the_pauses(broker: EmbeddedBroker, media: Media) -> None:
    topic = broker.broker.groups.topic
    media.error = OSError(errno.EIO, "EIO")
    broker.run(topic.loaded())
    pause = topic._pauses[0]
    topic.close()
    assert pause.cancelled()


async def again(topic: InternalTopic[Any]) -> None:
    """The pause of partition 0 is over."""
    topic._try_again(0)
    await topic.loaded()
