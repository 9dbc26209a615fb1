"""InitProducerId: ids for idempotent producers, and what waits for transactions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.support.embedded import EmbeddedBroker


def init(
    broker: EmbeddedBroker, version: int = 5, *, txid: str | None = None, timeout: int = 1000, **given: int
) -> Any:
    request = InitProducerIdRequest(transactional_id=txid, transaction_timeout_ms=timeout, **given)
    return broker.call(request, version)


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own_at_epoch_0(broker: EmbeddedBroker, version: int) -> None:
    answers = [init(broker, version) for _ in range(5)]
    assert [answer.error_code for answer in answers] == [0] * 5
    assert len({answer.producer_id for answer in answers}) == 5
    assert {answer.producer_epoch for answer in answers} == {0}


def test_no_id_is_given_twice_over_a_crash(tmp_path: Path) -> None:
    given = []
    for _ in range(3):
        with EmbeddedBroker(tmp_path) as broker:
            given += [init(broker).producer_id for _ in range(3)]
            broker.broker.controller._store.close()  # no more changes: the disk has all there is
    assert len(set(given)) == 9


def test_an_id_and_its_epoch_come_together(broker: EmbeddedBroker) -> None:
    assert init(broker, producer_id=5).error_code == ErrorCode.INVALID_REQUEST
    assert init(broker, producer_epoch=5).error_code == ErrorCode.INVALID_REQUEST
    answer = init(broker, producer_id=5, producer_epoch=5)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)


@pytest.mark.parametrize(
    ("txid", "timeout", "code"),
    [
        ("", 1000, ErrorCode.INVALID_REQUEST),
        ("tx", 2**31 - 1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("tx", -1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("tx", 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("tx", 900_000, ErrorCode.NOT_COORDINATOR),  # nobody has asked for one, so there is none yet
    ],
)
def test_transactional_producers_are_refused(broker: EmbeddedBroker, txid: str, timeout: int, code: int) -> None:
    answer = init(broker, txid=txid, timeout=timeout)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)
