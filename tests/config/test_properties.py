"""The syntax of `.properties` files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.config.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb = 2\nc: 3\nd 4\ne", {"a": "1", "b": "2", "c": "3", "d": "4", "e": ""}),
        ("# no\n! no\n  # no\n\n a=1", {"a": "1"}),
        ("a=1,\\\n   2,\\\n   3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b=c:d e", {"a": "b=c:d e"}),
        ("a\\=b=c\\\\d\\te\\u0041", {"a=b": "c\\d\teA"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=x\\\n# not a comment", {"a": "x# not a comment"}),
        ("a=x\\", {"a": "x"}),
        ("a=trailing  ", {"a": "trailing  "}),
        ("", {}),
    ],
)
def test_as_java_reads_it(text, expected):
    assert parse_properties(text) == expected


@given(st.text(alphabet="ab=: \\\n\r\t#!u0041", max_size=40))
def test_any_text_is_read(text):
    assert all("\n" not in key or "\\" in text for key in parse_properties(text))
