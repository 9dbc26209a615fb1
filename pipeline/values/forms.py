"""Binary and string, and choosing a form by its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from klamm.pipeline.errors import BadOption

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS: Final = ("binary", "string", "json", "avro")


@dataclass(frozen=True, slots=True)
class Bad:
    """A row that does not parse."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class Converted:
    """As many values as there were; those of `bad` rows are null."""

    values: pa.Array
    bad: list[Bad] = field(default_factory=list)


class Form(Protocol):
    """How bytes become values of an Arrow type that Delta has, too."""

    @property
    def type(self) -> pa.DataType: ...

    def convert(self, values: pa.Array) -> Converted:
        """Of an array of binary."""
        ...


@dataclass(frozen=True, slots=True)
class Binary:
    """As it is."""

    @property
    def type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.binary()

    def convert(self, values: pa.Array) -> Converted:
        return Converted(values)


@dataclass(frozen=True, slots=True)
class String:
    """UTF-8."""

    @property
    def type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.string()

    def convert(self, values: pa.Array) -> Converted:
        bad = not_utf8(values)
        return Converted(without(values, bad).cast(self.type), bad)


def parse_format(what: str, name: str, files: Sequence[str] = ()) -> Form:
    """Of `--value json --value-schema FILE`; `what` is key or value. Raises BadOption."""
    from klamm.pipeline.values.avro import avro_form
    from klamm.pipeline.values.json_form import Json
    from klamm.pipeline.values.schemas import read_schema

    option = f"--{what}-schema"
    if name in ("binary", "string"):
        if files:
            raise BadOption(f"{option} is for json and avro; --{what} is {name}")
        return Binary() if name == "binary" else String()
    if not files:
        raise BadOption(f"--{what} {name} needs {option} FILE")
    if name == "avro":
        form: Form = avro_form(option, files)
    elif len(files) > 1:
        raise BadOption(f"{option}: json takes one file, not {len(files)}")
    else:
        form = Json(read_schema(option, Path(files[0])))
    if _has_empty_struct(form.type):
        raise BadOption(f"{option} {files[-1]}: a struct without fields has no columns")
    return form


def _has_empty_struct(type_: pa.DataType) -> bool:
    """No file format has these; and of Avro's empty records a few bytes may tell of billions."""
    import pyarrow as pa

    if pa.types.is_struct(type_):
        return type_.num_fields == 0 or any(_has_empty_struct(item.type) for item in type_)
    if pa.types.is_list(type_):
        return _has_empty_struct(type_.value_type)
    return pa.types.is_map(type_) and _has_empty_struct(type_.item_type)


def not_utf8(values: pa.Array) -> list[Bad]:
    """The rows that are not UTF-8. In bulk when there are none."""
    import pyarrow as pa

    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return [bad for row, value in enumerate(values) if (bad := _not_utf8(row, value.as_py())) is not None]
    return []


def _not_utf8(row: int, value: bytes | None) -> Bad | None:
    try:
        (value or b"").decode()
    except UnicodeDecodeError as error:
        return Bad(row, f"not UTF-8 at byte {error.start}")
    return None


def without(values: pa.Array, bad: Sequence[Bad]) -> pa.Array:
    """The same with null in bad rows."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not bad:
        return values
    good = np.ones(len(values), bool)
    good[[item.row for item in bad]] = False
    return pc.if_else(pa.array(good), values, pa.scalar(None, values.type))
