"""FindCoordinator: the broker itself for groups, nobody yet for the others, said so in every version."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.support.embedded import EmbeddedBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path, {"offsets.topic.num.partitions": 3}) as broker:
        yield broker


def answers(
    broker: EmbeddedBroker, version: int, *keys: str, key_type: int = 0
) -> list[tuple[str, int, int, str, int]]:
    """(key, error code, node id, host, port) of each answer."""
    many = version >= 4
    request = FindCoordinatorRequest(
        key="" if many else keys[0], key_type=key_type, coordinator_keys=list(keys) if many else []
    )
    response = broker.call(request, version)
    if not many:
        return [(keys[0], response.error_code, response.node_id, response.host, response.port)]
    return [(row.key, row.error_code, row.node_id, row.host, row.port) for row in response.coordinators]


@pytest.mark.parametrize("version", range(7))
def test_this_broker_looks_after_every_group(broker: EmbeddedBroker, version: int) -> None:
    keys = ["g", "h"] if version >= 4 else ["g"]
    assert answers(broker, version, *keys) == [(key, 0, 1, "127.0.0.1", 9092) for key in keys]


def test_the_first_question_creates_the_topic(broker: EmbeddedBroker) -> None:
    assert "__consumer_offsets" not in broker.broker.image.topics
    assert answers(broker, 4, "g")[0][1] == ErrorCode.NONE
    topic = broker.broker.image.topics["__consumer_offsets"]
    assert topic.internal and len(topic.partitions) == 3
    assert broker.broker.image.topic_config("__consumer_offsets")["cleanup.policy"] == "compact"


def test_many_ask_at_once_and_one_topic_is_made(broker: EmbeddedBroker) -> None:
    asked = [broker.start(FindCoordinatorRequest(coordinator_keys=[f"g{n}"]), 4) for n in range(20)]
    for response in broker.run(asyncio.wait(asked))[0]:
        assert response.result().coordinators[0].error_code == ErrorCode.NONE


def test_share_partitions_have_no_coordinator_yet(broker: EmbeddedBroker) -> None:
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert answers(broker, 6, "t", key_type=2) == [("t", code, -1, "", -1)]


def test_the_first_question_for_a_transactional_id_creates_the_topic(broker: EmbeddedBroker) -> None:
    assert "__transaction_state" not in broker.broker.image.topics
    assert answers(broker, 6, "t", key_type=1)[0][1] == ErrorCode.NONE
    assert len(broker.broker.image.topics["__transaction_state"].partitions) == 50
    config = broker.broker.image.topic_config("__transaction_state")
    assert (config["cleanup.policy"], config["min.insync.replicas"]) == ("compact", "2")


@pytest.mark.parametrize(("version", "key_type"), [(1, 2), (5, 2), (4, 3), (6, -1)])
def test_a_key_type_that_the_version_does_not_know_is_an_invalid_request(
    broker: EmbeddedBroker, version: int, key_type: int
) -> None:
    assert answers(broker, version, "g", key_type=key_type)[0][1] == ErrorCode.INVALID_REQUEST
