"""The protocol of a value format; binary and string."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Bad:
    """A row that does not parse."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class Converted:
    """The converted values, as many as before; those of `bad` rows are null."""

    values: pa.Array
    bad: list[Bad] = field(default_factory=list)


class ValueFormat(Protocol):
    """How bytes become values of an Arrow type that Delta has, too."""

    @property
    def type(self) -> pa.DataType: ...

    def convert(self, values: pa.Array) -> Converted:
        """Convert an array of binary."""
        ...


@dataclass(frozen=True, slots=True)
class Binary:
    """Bytes, unchanged."""

    @property
    def type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.binary()

    def convert(self, values: pa.Array) -> Converted:
        return Converted(values)


@dataclass(frozen=True, slots=True)
class String:
    """UTF-8 text."""

    @property
    def type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.string()

    def convert(self, values: pa.Array) -> Converted:
        bad = not_utf8(values)
        return Converted(without(values, bad).cast(self.type), bad)


def not_utf8(values: pa.Array) -> list[Bad]:
    """Return the rows that are not UTF-8; fast if there are none."""
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
    """Return the values with null in bad rows."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not bad:
        return values
    good = np.ones(len(values), bool)
    good[[item.row for item in bad]] = False
    return pc.if_else(pa.array(good), values, pa.scalar(None, values.type))
