"""Binary, string and Avro, and choosing among the forms."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from klamm.pipeline.errors import BadOption
from klamm.pipeline.values import ValueFormat, parse_format

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
    ],
}
DATUM: dict[str, Any] = {
    "id": 7,
    "state": "PAID",
    "note": None,
    "at": 1_000,
    "price": b"\x7d",
    "uuid": "u",
    "tags": {"a": 1},
}


def encoded(datum: dict[str, Any], schema: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    plain = json.loads(json.dumps(schema).replace("logicalType", "x"))
    fastavro.schemaless_writer(stream, fastavro.parse_schema(plain), datum)
    return stream.getvalue()


def schema_file(tmp_path: Path, schema: object, name: str = "order.avsc") -> str:
    (tmp_path / name).write_text(json.dumps(schema))
    return str(tmp_path / name)


def convert(form: ValueFormat, *records: bytes | None) -> tuple[list[Any], dict[int, str]]:
    converted = form.convert(pa.array(records, pa.binary()))
    assert converted.values.type == form.type
    return converted.values.to_pylist(), {item.row: item.reason for item in converted.bad}


def test_binary_and_string() -> None:
    assert convert(parse_format("value", "binary"), b"\xff", None, b"") == ([b"\xff", None, b""], {})
    assert convert(parse_format("value", "string"), "é".encode(), None, b"") == (["é", None, ""], {})
    assert convert(parse_format("value", "string"), b"a", b"b\xff", None) == (
        ["a", None, None],
        {1: "not UTF-8 at byte 1"},
    )


def test_avro(tmp_path: Path) -> None:
    form = parse_format("value", "avro", [schema_file(tmp_path, ORDER)])
    good = encoded(DATUM, ORDER)
    (value, none, short, long), bad = convert(form, good, None, good[:-1], good + b"!")
    assert (none, short, long) == (None, None, None)
    assert str(value) == (
        "{'id': 7, 'state': 'PAID', 'note': None, "
        "'at': datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=zoneinfo.ZoneInfo(key='UTC')), "
        "'price': Decimal('1.25'), 'uuid': 'u', 'tags': [('a', 1)]}"
    )
    assert bad[2].startswith("not Avro of this schema") and bad[3] == "1 bytes are left after the datum"


def test_avro_with_schema_ids_is_read_as_the_last_schema(tmp_path: Path) -> None:
    old = {**ORDER, "fields": ORDER["fields"][:2]}
    new = {**old, "fields": [*old["fields"], {"name": "vat", "type": "int", "default": 19}]}
    files = [f"3={schema_file(tmp_path, old, 'old')}", f"9={schema_file(tmp_path, new, 'new')}"]
    form = parse_format("value", "avro", files)
    one = struct.pack(">bi", 0, 3) + encoded(DATUM, old)
    two = struct.pack(">bi", 0, 9) + encoded({**DATUM, "vat": 7}, new)
    values, bad = convert(form, one, two, b"\x01" + one, struct.pack(">bi", 0, 4))
    assert [value and value["vat"] for value in values] == [19, 7, None, None]
    assert bad == {
        2: "it does not begin with the magic byte 0 and a schema id",
        3: "schema id 4 is not one of 3, 9",
    }


def test_a_datum_beyond_its_column_is_bad_alone(tmp_path: Path) -> None:
    form = parse_format("value", "avro", [schema_file(tmp_path, ORDER)])
    far = encoded({**DATUM, "price": b"\x7f" * 8}, ORDER)
    values, bad = convert(form, encoded(DATUM, ORDER), far)
    assert values[0]["id"] == 7 and values[1] is None and list(bad) == [1]


@pytest.mark.parametrize(
    ("name", "schema", "reason"),
    [
        ("json", None, "--value json needs --value-schema FILE"),
        ("string", ORDER, "--value-schema is for json and avro"),
        ("avro", "string", "the schema of a table is a record"),
        ("avro", {"type": "nonsense"}, "not an Avro schema"),
        ("avro", {**ORDER, "fields": [{"name": "u", "type": ["int", "string"]}]}, "a union of 2 types"),
        ("avro", {**ORDER, "fields": []}, "a struct without fields has no columns"),
        ("json", {"type": "struct", "fields": []}, "a struct without fields has no columns"),
        ("avro", {**ORDER, "fields": [{"name": "next", "type": ["null", "Order"]}]}, "contains itself"),
    ],
)
def test_wrong_formats_are_errors(tmp_path: Path, name: str, schema: object, reason: str) -> None:
    with pytest.raises(BadOption, match=reason):
        parse_format("value", name, [schema_file(tmp_path, schema)] if schema else [])
