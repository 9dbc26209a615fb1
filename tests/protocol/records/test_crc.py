from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm.protocol.records.crc import crc32c, portable_crc32c

portable = portable_crc32c()


def test_check_value_of_the_polynomial() -> None:
    assert crc32c(b"123456789") == portable(b"123456789") == 0xE3069283


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_both_implementations_agree_whole_and_continued(head: bytes, tail: bytes) -> None:
    whole = crc32c(memoryview(head + tail))
    assert whole == portable(memoryview(head + tail)) == crc32c(tail, crc32c(head)) == portable(tail, portable(head))
