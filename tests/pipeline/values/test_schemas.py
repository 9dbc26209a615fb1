"""Schemas of JSON values from their three kinds of file."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from klamm.pipeline.errors import BadOption
from klamm.pipeline.values.schemas import parse_schema, read_schema

WANTED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("lines", pa.list_(pa.struct([pa.field("sku", pa.string()), pa.field("price", pa.float64())]))),
    ]
)


def test_three_ways_to_say_one_schema() -> None:
    ddl = "id BIGINT NOT NULL,\n `at` timestamp, lines array<struct<sku: string, price double>>\n"
    json_schema = {
        "type": "object",
        "required": ["id"],
        "properties": {
            "id": {"type": "integer"},
            "at": {"type": ["string", "null"], "format": "date-time"},
            "lines": {
                "type": "array",
                "items": {"type": "object", "properties": {"sku": {"type": "string"}, "price": {"type": "number"}}},
            },
        },
    }
    element = [("sku", "string"), ("price", "double")]
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in element]
    array = {"type": "array", "elementType": {"type": "struct", "fields": fields}, "containsNull": True}
    spark = {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": False, "metadata": {}},
            {"name": "at", "type": "timestamp", "nullable": True, "metadata": {}},
            {"name": "lines", "type": array, "nullable": True, "metadata": {}},
        ],
    }
    assert parse_schema(ddl).equals(WANTED)
    assert parse_schema(json.dumps(json_schema)).equals(WANTED)
    assert str(parse_schema(json.dumps(spark))).replace("element", "item") == str(WANTED).replace("element", "item")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no columns"),
        ("a INT,", "a column's name is expected, not the end"),
        ("a", "no type"),
        ("a INT b INT", "',' is expected, not b"),
        ("a ARRAY<INT", "'>' is expected, not the end"),
        ("a MAP<STRING,INT>", "no type map"),
        ("a DECIMAL(40,2)", "1 to 38 digits"),
        ("a INT, a INT", "two columns have one name: a"),
        ("a INT; b INT", "unexpected"),
        ('{"fields": []}', 'it has neither "properties"'),
        ('{"properties": {"a": {"oneOf": []}}}', "a. has oneOf"),
        ('{"properties": {"a": {"type": ["string", "integer"]}}}', "which has no column type"),
        ("{", "Expecting property name"),
    ],
)
def test_a_text_that_is_no_schema_is_an_error(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "s"
    path.write_text(text)
    with pytest.raises(BadOption) as caught:
        read_schema("--value-schema", path)
    assert str(caught.value).startswith(f"--value-schema {path}: ") and reason in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="No such file"):
        read_schema("--value-schema", tmp_path / "none")
