"""The formats of keys and values in a table: binary, string, JSON or Avro.

    form = parse_format("value", "json", ["orders.ddl"])
    converted = form.convert(batch["value"])            # Arrow binary in, Arrow of `form.type` out
    converted.bad                                       # rows that do not parse, with the reason; null in `values`

binary   unchanged
string   UTF-8
json     an object per record, a struct in the table; fields that the schema does not have are left out, fields missing
         in a record are null (unless required); schema from a file: a DDL (`a INT, b STRUCT<c: STRING>`), Spark's or
         Delta's JSON of a struct, or a JSON Schema
avro     one datum per record, a record in the table's struct; schema from an .avsc file. With `ID=FILE` (once per id)
         records begin with the five bytes of schema registries, and are read by the schema of their id as one of the
         last FILE

A null (tombstone) is null in every format, and so is the JSON text `null`. Formats are sent to tasks; JSON is parsed by
Arrow, in bulk.
"""

from klamm.pipeline.values.formats import FORMATS, parse_format
from klamm.pipeline.values.value_format import Bad, Binary, Converted, ValueFormat

__all__ = ["FORMATS", "Bad", "Binary", "Converted", "ValueFormat", "parse_format"]
