from __future__ import annotations

import pytest

from klamm.protocol.errors import (
    CodedError,
    ErrorCode,
    InvalidRecord,
    KafkaError,
    KafkaStorageError,
    OffsetOutOfRange,
)

FAILURES = [code for code in ErrorCode if code is not ErrorCode.NONE]


@pytest.mark.parametrize("code", FAILURES, ids=lambda code: code.name)
def test_every_code_has_an_exception_of_its_name(code: ErrorCode) -> None:
    (kind,) = (found for found in CodedError.__subclasses__() if found.CODE is code)
    error: KafkaError = kind("why")
    assert (error.code, error.message) == (code, "why")
    assert type(error).__name__ == "".join(part.capitalize() for part in code.name.split("_"))


def test_every_code_has_a_message_of_its_own() -> None:
    assert len({code.default_message for code in ErrorCode}) == len(ErrorCode)


def test_codes_are_numbers_that_know_more() -> None:
    assert ErrorCode(1) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert ErrorCode.OFFSET_OUT_OF_RANGE == 1
    assert not ErrorCode.OFFSET_OUT_OF_RANGE.retriable
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable


def test_an_error_says_its_code_and_what_happened() -> None:
    assert str(OffsetOutOfRange("t-0: offset 9 not in [0, 5)")) == "OFFSET_OUT_OF_RANGE: t-0: offset 9 not in [0, 5)"
    assert KafkaStorageError().message == ErrorCode.KAFKA_STORAGE_ERROR.default_message
    assert KafkaError(ErrorCode.INVALID_REQUEST, "no").message == "no"


def test_invalid_record_names_records() -> None:
    assert InvalidRecord("bad", [(3, "no key")]).record_errors == [(3, "no key")]
    assert InvalidRecord("bad").record_errors == []
