"""The value formats by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klamm.pipeline.errors import BadOption
from klamm.pipeline.values.avro import avro_format
from klamm.pipeline.values.json_format import Json
from klamm.pipeline.values.schemas import read_schema
from klamm.pipeline.values.value_format import Binary, String, ValueFormat

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS: Final = ("binary", "string", "json", "avro")


def parse_format(what: str, name: str, files: Sequence[str] = ()) -> ValueFormat:
    """Parse `--value json --value-schema FILE`; `what` is key or value. Raises BadOption."""
    option = f"--{what}-schema"
    if name in ("binary", "string"):
        if files:
            raise BadOption(f"{option} is for json and avro; --{what} is {name}")
        return Binary() if name == "binary" else String()
    if not files:
        raise BadOption(f"--{what} {name} needs {option} FILE")
    if name == "avro":
        form: ValueFormat = avro_format(option, files)
    elif len(files) > 1:
        raise BadOption(f"{option}: json takes one file, not {len(files)}")
    else:
        form = Json(read_schema(option, Path(files[0])))
    if _has_empty_struct(form.type):
        raise BadOption(f"{option} {files[-1]}: a struct without fields has no columns")
    return form


def _has_empty_struct(type_: pa.DataType) -> bool:
    """Return whether a struct has no fields. No file format has these, and few bytes of Avro may stand for billions."""
    import pyarrow as pa

    if pa.types.is_struct(type_):
        return type_.num_fields == 0 or any(_has_empty_struct(item.type) for item in type_)
    if pa.types.is_list(type_):
        return _has_empty_struct(type_.value_type)
    return pa.types.is_map(type_) and _has_empty_struct(type_.item_type)
