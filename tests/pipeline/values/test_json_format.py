"""JSON in bulk: equal to a parser of single records, whatever stands beside what."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.pipeline.values.json_format import Json
from klamm.pipeline.values.schemas import parse_schema

FORM = Json(parse_schema("a BIGINT, s STRING, n STRUCT<x: DOUBLE>, l ARRAY<INT>"))
PIECES = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"',
    '"a"',
    '"a":1',
    '"z":',
    "1",
    "null",
    " ",
    "\n",
    '{"a":2}',
    "\\",
    "é",
    "\xa0",
]


def convert(form: Json, records: list[bytes | None]) -> tuple[list[Any], dict[int, str]]:
    converted = form.convert(pa.array(records, pa.binary()))
    assert converted.values.type == form.type and len(converted.values) == len(records)
    return converted.values.to_pylist(), {item.row: item.reason for item in converted.bad}


def test_objects_become_structs() -> None:
    values, bad = convert(
        FORM, [b'{"a":1,"s":"x","n":{"x":2,"y":3},"l":[1,null]}', None, b"{}", b' {"a":null} ', b"null"]
    )
    empty = {"a": None, "s": None, "n": None, "l": None}
    assert values == [{"a": 1, "s": "x", "n": {"x": 2.0}, "l": [1, None]}, None, empty, empty, None]
    assert not bad


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"", "not a JSON object: ''"),
        (b"[1]", "not a JSON object: '[1]'"),
        (b"{", "not a JSON object"),
        (b'{"a":1}{"a":2}', "more than one JSON document"),
        (b'{"a":1.5}', "couldn't parse:1.5"),
        (b'{"a":"x"}', "changed from number to string"),
        (b'{"a":1,"a":2}', "specified twice"),
        (b'{"s":"\xff"}', "not UTF-8 at byte 6"),
        (b'{"s":"a\nb"}', "Invalid encoding in string"),
        (b"\xef\xbb\xbf{}", "not a JSON object"),
    ],
)
def test_what_does_not_parse_is_reported_and_its_neighbours_stay(record: bytes, reason: str) -> None:
    values, bad = convert(FORM, [b'{"a":1}', record, b'{"a":2}', None])
    assert [item and item["a"] for item in values] == [1, None, 2, None]
    assert list(bad) == [1] and reason in bad[1]


def test_records_that_are_one_document_together_are_all_bad() -> None:
    """The records are as many documents as records, if one did not look at where each begins and ends."""
    records: list[bytes | None] = [b'{"z":[', b'{"x":1},', b'{"x":2}]}', b"{}{}{}"]
    values, bad = convert(FORM, records)
    assert values == [None] * 4 and list(bad) == [0, 1, 2, 3]


@settings(max_examples=300)
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=6).map("".join), max_size=6))
def test_many_are_parsed_as_one_by_one(texts: list[str]) -> None:
    records: list[bytes | None] = [text.encode() for text in texts]
    values, bad = convert(FORM, records)
    for row, record in enumerate(records):
        assert record is not None
        alone, alone_bad = convert(FORM, [record])
        assert (values[row], row in bad) == (alone[0], bool(alone_bad))
        if not alone_bad and values[row] is not None:
            assert isinstance(json.loads(record), dict)


def test_types_that_texts_carry() -> None:
    form = Json(parse_schema("t TIMESTAMP, d DATE, p DECIMAL(5,2), n STRUCT<d: DATE>, b BINARY"))
    record = {"t": "2026-11-21T01:00:00+01:00", "d": "2026-11-21", "p": "1.25", "n": {"d": "1969-12-31"}, "b": "x"}
    (value,), bad = convert(form, [json.dumps(record).encode()])
    assert not bad
    assert str(value) == (
        "{'t': datetime.datetime(2026, 11, 21, 0, 0, tzinfo=zoneinfo.ZoneInfo(key='UTC')), "
        "'d': datetime.date(2026, 11, 21), 'p': Decimal('1.25'), 'n': {'d': datetime.date(1969, 12, 31)}, 'b': b'x'}"
    )
    _, bad = convert(form, [b'{"d":"2026-13-01"}', b'{"p":"1.234"}'])
    assert list(bad) == [0, 1]


def test_required_fields() -> None:
    form = Json(parse_schema("a INT NOT NULL, n STRUCT<b: INT NOT NULL>"))
    assert all(item.nullable for item in form.type)
    _, bad = convert(form, [b'{"a":1}', b"{}", b'{"a":1,"n":{}}', b'{"a":1,"n":null}', None])
    assert bad == {1: "field a is required", 2: "field n.b is required"}
