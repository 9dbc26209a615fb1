"""Avro: one datum per record, plain or after a schema id, by fastavro.

0x00 [schema id: int32] [datum]         the five bytes that serializers of schema registries write

Unions must be with null, which makes a field nullable. Enums are strings, fixed is binary. Times of day and UUIDs keep
their stored type: Delta has no such types.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klamm.pipeline.errors import BadOption
from klamm.pipeline.values.value_format import Bad, Converted

if TYPE_CHECKING:
    import pyarrow as pa

PREFIX: Final = struct.Struct(">bi")  # magic byte 0, schema id
LOGICAL: Final = (
    "decimal",
    "date",
    "timestamp-millis",
    "timestamp-micros",
    "local-timestamp-millis",
    "local-timestamp-micros",
)


@dataclass(frozen=True)
class Avro:
    """The format Avro. `writers` by schema id; a single one with id None has no prefix. All are read as `reader`."""

    reader: dict[str, Any]
    writers: Mapping[int | None, dict[str, Any]]

    @property
    def type(self) -> pa.DataType:
        return _arrow(self.reader, {})

    def convert(self, values: pa.Array) -> Converted:
        import pyarrow as pa

        read = self._reader()
        found: list[Any] = []
        bad: list[Bad] = []
        for row, data in enumerate(values.to_pylist()):
            try:
                found.append(None if data is None else read(data))
            except Exception as error:
                found.append(None)
                bad.append(Bad(row, _reason(error)))
        try:
            return Converted(pa.array(found, self.type), bad)
        except (pa.ArrowException, OverflowError):
            return self._one_by_one(found, bad)

    def _one_by_one(self, found: list[Any], bad: list[Bad]) -> Converted:
        """Convert row by row: the type of a column cannot hold some datum."""
        import pyarrow as pa

        for row, datum in enumerate(found):
            try:
                pa.array([datum], self.type)
            except (pa.ArrowException, OverflowError) as error:
                found[row] = None
                bad.append(Bad(row, str(error).splitlines()[0]))
        return Converted(pa.array(found, self.type), sorted(bad, key=lambda item: item.row))

    def _reader(self) -> Callable[[bytes], Any]:
        from fastavro import parse_schema, schemaless_reader

        reader = parse_schema(self.reader)
        parsed = {number: parse_schema(item) for number, item in self.writers.items()}
        as_reader = {number: None if self.writers[number] == self.reader else reader for number in parsed}
        plain = None in parsed

        def read(data: bytes) -> Any:
            number = None if plain else self._schema_id(data)
            stream = io.BytesIO(data)
            stream.seek(0 if plain else PREFIX.size)
            datum = schemaless_reader(stream, parsed[number], as_reader[number])
            if stream.tell() != len(data):
                raise ValueError(f"{len(data) - stream.tell()} bytes are left after the datum")
            return datum

        return read

    def _schema_id(self, data: bytes) -> int:
        if len(data) < PREFIX.size or data[0] != 0:
            raise ValueError("it does not begin with the magic byte 0 and a schema id")
        number: int = PREFIX.unpack_from(data)[1]
        if number not in self.writers:
            raise ValueError(f"schema id {number} is not one of {', '.join(map(str, self.writers))}")
        return number


def avro_format(option: str, files: Sequence[str]) -> Avro:
    """Parse FILE, or ID=FILE once or more. Raises BadOption."""
    writers: dict[int | None, dict[str, Any]] = {}
    for text in files:
        number, separator, path = text.partition("=")
        with_id = bool(separator) and number.isdecimal()
        writers[int(number) if with_id else None] = _read(option, path if with_id else text)
    if len(writers) < len(files) or (None in writers and len(writers) > 1):
        raise BadOption(f"{option} is one FILE, or ID=FILE for each schema id, not {' and '.join(files)}")
    form = Avro(list(writers.values())[-1], writers)
    try:
        _ = form.type
    except ValueError as error:
        raise BadOption(f"{option} {files[-1]}: {error}") from None
    return form


def _read(option: str, path: str) -> dict[str, Any]:
    from fastavro import parse_schema

    try:
        schema = _plain(json.loads(Path(path).read_text("utf-8")))
        parse_schema(schema)
    except OSError as error:
        raise BadOption(f"{option} {path}: {error.strerror}") from None
    except Exception as error:
        raise BadOption(f"{option} {path}: not an Avro schema: {error}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise BadOption(f"{option} {path}: the schema of a table is a record, not {str(schema)[:40]}")
    return schema


def _plain(node: Any) -> Any:
    """Remove the logical types that have no column type, so that the stored type is used."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _plain(item) if key in ("type", "items", "values", "fields") else item
        for key, item in node.items()
        if key != "logicalType" or item in LOGICAL
    }


def _arrow(node: Any, named: dict[str, Any]) -> pa.DataType:
    """Return the type of a schema node. Raises ValueError."""
    import pyarrow as pa

    if isinstance(node, list):
        others = [item for item in node if item != "null"]
        if len(others) != 1:
            raise ValueError(f"a union of {len(others)} types has no column type, only one with null")
        return _arrow(others[0], named)
    if isinstance(node, str):
        if node in named:
            if named[node] is None:
                raise ValueError(f"{node} contains itself, which has no column type")
            return _arrow(named[node], named)
        return _primitive(node)
    kind = node["type"]
    if not isinstance(kind, str):
        return _arrow(kind, named)
    if kind == "record":
        named[node["name"]] = None
        fields = [pa.field(item["name"], _arrow(item["type"], named)) for item in node["fields"]]
        named[node["name"]] = node
        return pa.struct(fields)
    if kind == "array":
        return pa.list_(_arrow(node["items"], named))
    if kind == "map":
        return pa.map_(pa.string(), _arrow(node["values"], named))
    if "logicalType" in node:
        return _logical(node)
    if kind in ("enum", "fixed"):
        named[node["name"]] = node
        return pa.string() if kind == "enum" else pa.binary()
    return _arrow(kind, named)


def _primitive(name: str) -> pa.DataType:
    import pyarrow as pa

    types = {
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "bytes": pa.binary(),
        "string": pa.string(),
    }
    if name not in types:
        raise ValueError(f"type {name} has no column type")
    return types[name]


def _logical(node: Mapping[str, Any]) -> pa.DataType:
    import pyarrow as pa

    logical = node["logicalType"]
    if logical == "decimal":
        return pa.decimal128(int(node["precision"]), int(node.get("scale", 0)))
    if logical == "date":
        return pa.date32()
    return pa.timestamp("us") if logical.startswith("local") else pa.timestamp("us", "UTC")


def _reason(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else ""
    return (
        text if isinstance(error, ValueError) and text else f"not Avro of this schema: {text or type(error).__name__}"
    )
