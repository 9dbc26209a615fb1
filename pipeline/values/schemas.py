"""Schemas of JSON values, from a file: DDL, Spark's or Delta's JSON, or a JSON Schema, detected by their content."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klamm.pipeline.errors import BadOption

if TYPE_CHECKING:
    import pyarrow as pa

TOKEN: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([A-Za-z_][\w.-]*)|(\d+)|([<>(),:]))")
JSON_TYPES: Final = {"string": "string", "integer": "bigint", "number": "double", "boolean": "boolean"}
JSON_FORMATS: Final = {"date-time": "timestamp", "date": "date"}


def read_schema(option: str, path: Path) -> pa.Schema:
    """Read a schema. Raises BadOption that names the option and the file."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"{option} {path}: {getattr(error, 'strerror', None) or 'not a text in UTF-8'}") from None
    try:
        return parse_schema(text)
    except (ValueError, KeyError, TypeError) as error:
        raise BadOption(f"{option} {path}: {error}") from None


def parse_schema(text: str) -> pa.Schema:
    """Parse a schema. Raises ValueError."""
    import pyarrow as pa

    if not text.lstrip().startswith("{"):
        return pa.schema(_Ddl(text).columns())
    document = json.loads(text)
    if document.get("type") == "struct":
        from deltalake import Schema

        try:
            return _checked(pa.schema(Schema.from_json(text)))
        except Exception as error:
            raise ValueError(f"not a schema of Spark or Delta: {error}") from None
    if "properties" in document:
        return pa.schema(list(_json_schema(document, "").fields))
    raise ValueError('it has neither "properties" (a JSON Schema) nor "type": "struct" (Spark, Delta)')


def simple_type(name: str, arguments: list[int]) -> pa.DataType:
    """Return the type of Spark's name. Raises ValueError."""
    import pyarrow as pa

    if name in ("decimal", "dec", "numeric"):
        precision, scale = (*arguments, 0)[:2] if arguments else (10, 0)
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            raise ValueError(f"decimal({precision},{scale}): 1 to 38 digits, of which up to all after the point")
        return pa.decimal128(precision, scale)
    types = {
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "byte": pa.int8(),
        "smallint": pa.int16(),
        "short": pa.int16(),
        "int": pa.int32(),
        "integer": pa.int32(),
        "bigint": pa.int64(),
        "long": pa.int64(),
        "float": pa.float32(),
        "real": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
    if name not in types:
        raise ValueError(f"no type {name}; there are {', '.join(types)}, decimal, array and struct")
    return types[name]


class _Ddl:
    """The parser of a DDL, `a INT NOT NULL, b ARRAY<STRUCT<c: STRING>>`, as Spark reads it, without comments."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            if (match := TOKEN.match(text, at)) is None:
                raise ValueError(f"unexpected {text[at:].strip()[:10]!r} in a DDL of columns")
            quoted = match[1]
            self._tokens.append("`" + quoted.replace("``", "`") if quoted else match[0].strip())
            at = match.end()
        self._tokens.append("")

    def columns(self) -> list[pa.Field]:
        found = self._fields("")
        if not found:
            raise ValueError("no columns")
        return found

    def _fields(self, end: str) -> list[pa.Field]:
        import pyarrow as pa

        found: list[pa.Field] = []
        while self._tokens[0] != end or found:
            name = self._next().removeprefix("`")
            if not name or name in "<>(),:":
                raise ValueError(f"a column's name is expected, not {name or 'the end'}")
            if self._tokens[0] == ":":
                self._next()
            type_ = self._type()
            nullable = [token.lower() for token in self._tokens[:2]] != ["not", "null"]
            if not nullable:
                del self._tokens[:2]
            found.append(pa.field(name, type_, nullable))
            if self._tokens[0] == end:
                break
            self._expect(",")
        names = [item.name for item in found]
        if len(set(names)) < len(names):
            raise ValueError(f"two columns have one name: {max(names, key=names.count)}")
        return found

    def _type(self) -> pa.DataType:
        import pyarrow as pa

        name = self._next().lower()
        if name == "struct":
            self._expect("<")
            fields = self._fields(">")
            self._expect(">")
            return pa.struct(fields)
        if name == "array":
            self._expect("<")
            item = self._type()
            self._expect(">")
            return pa.list_(item)
        arguments = []
        if self._tokens[0] == "(":
            while self._next() != ")":
                arguments.append(int(self._next()))
                if self._tokens[0] not in (",", ")"):
                    raise ValueError(f"{name}(...) is not closed")
        return simple_type(name, arguments)

    def _next(self) -> str:
        return self._tokens.pop(0) if len(self._tokens) > 1 else self._tokens[0]

    def _expect(self, token: str) -> None:
        if (found := self._next()) != token:
            raise ValueError(f"{token!r} is expected, not {found or 'the end'}")


def _json_schema(node: dict[str, Any], path: str) -> pa.DataType:
    import pyarrow as pa

    for key in ("$ref", "oneOf", "anyOf", "allOf", "patternProperties"):
        if key in node:
            raise ValueError(f"{path or 'the schema'} has {key}, which has no column type")
    kinds = node.get("type", "object" if "properties" in node else None)
    kind = next((item for item in kinds if item != "null"), None) if isinstance(kinds, list) else kinds
    if kind == "object" and node.get("properties"):
        required = node.get("required", [])
        fields = [
            pa.field(name, _json_schema(item, f"{path}{name}."), name not in required)
            for name, item in node["properties"].items()
        ]
        return pa.struct(fields)
    if kind == "array" and isinstance(node.get("items"), dict):
        return pa.list_(_json_schema(node["items"], f"{path}[]."))
    if kind not in JSON_TYPES or (isinstance(kinds, list) and len(set(kinds) - {"null"}) > 1):
        raise ValueError(f"{path.rstrip('.') or 'the schema'} is of type {kinds}, which has no column type")
    name = JSON_FORMATS.get(node.get("format", ""), "string") if kind == "string" else JSON_TYPES[kind]
    return simple_type(name, [])


def _checked(schema: pa.Schema) -> pa.Schema:
    import pyarrow as pa

    for item in schema:
        if "map<" in str(item.type) or pa.types.is_map(item.type):
            raise ValueError(f"column {item.name} has a map; JSON objects are read as structs")
    return schema
