"""JSON objects, parsed by Arrow many at once.

Arrow reads a stream of documents, and does not report which record a document came from. There is one document per
record when each record begins with `{` and ends with `}` (checked before, in bulk) and there are as many documents as
records. The reason: JSON has `}` and `{` next to each other only between documents, and a string cannot reach from one
record into the next, as it has no raw newline. A block that does not parse is halved until the bad records are found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from klamm.pipeline.values.value_format import Bad, Converted, not_utf8

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

SPACES: Final = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Json:
    """The format JSON. `schema` has required fields as not nullable; in the table all are nullable."""

    schema: pa.Schema

    @property
    def type(self) -> pa.DataType:
        return _all_nullable(self._struct)

    @property
    def _struct(self) -> pa.StructType:
        import pyarrow as pa

        return pa.struct(list(self.schema))

    def convert(self, values: pa.Array) -> Converted:
        import numpy as np
        import pyarrow as pa

        bad = {item.row: item for item in not_utf8(values)}
        texts, rows = self._objects(values, bad)
        structs: list[pa.Array] = []
        kept: list[npt.NDArray[np.int64]] = []
        for begin, end, found in self._parsed(texts):
            if isinstance(found, str):
                bad[int(rows[begin])] = Bad(int(rows[begin]), found)
            else:
                structs.append(found)
                kept.append(rows[begin:end])
        at = np.full(len(values), -1, np.int64)
        if kept:
            at[np.concatenate(kept)] = np.arange(sum(map(len, kept)))
        all_ = pa.concat_arrays(structs) if structs else pa.array([], self.type)
        return Converted(all_.take(pa.array(at, mask=at < 0)), [bad[row] for row in sorted(bad)])

    def _objects(self, values: pa.Array, bad: dict[int, Bad]) -> tuple[pa.Array, npt.NDArray[np.int64]]:
        """Return the records that look like one object, and their rows. Put the others into `bad`; leave nulls out."""
        import numpy as np
        import pyarrow as pa

        good = values.is_valid().to_numpy(zero_copy_only=False)
        good[list(bad)] = False
        rows = np.flatnonzero(good)
        texts = values.take(pa.array(rows))
        odd = np.flatnonzero(~_framed(texts))
        if not len(odd):
            return texts, rows
        replaced: dict[int, bytes | None] = {}
        for index, text in zip(odd.tolist(), texts.take(pa.array(odd)).to_pylist(), strict=True):
            stripped = text.strip(SPACES)
            if stripped != b"null" and not (stripped.startswith(b"{") and stripped.endswith(b"}")):
                row = int(rows[index])
                bad[row] = Bad(row, f"not a JSON object: {_shown(text)}")
            elif stripped != b"null":
                replaced[index] = stripped
        stays = np.setdiff1d(np.arange(len(rows)), [index for index in odd.tolist() if index not in replaced])
        plain = texts.take(pa.array(stays)).to_pylist()
        changed = [replaced.get(index, text) for index, text in zip(stays.tolist(), plain, strict=True)]
        return pa.array(changed, pa.binary()), rows[stays]

    def _parsed(self, texts: pa.Array) -> Iterator[tuple[int, int, Any]]:
        """Yield (begin, end, structs), or (row, row + 1, reason) for a bad one."""
        stack = [(0, len(texts))] if len(texts) else []
        while stack:
            begin, end = stack.pop()
            found = self._read(texts.slice(begin, end - begin))
            if isinstance(found, str) and end - begin > 1:
                middle = (begin + end) // 2
                stack += [(middle, end), (begin, middle)]
            else:
                yield begin, end, found

    def _read(self, texts: pa.Array) -> Any:
        """Return structs, or the reason for failure."""
        import pyarrow as pa
        import pyarrow.json as pj

        one = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
        data = pa.compute.binary_join(one, b"\n")[0].as_buffer()
        try:
            table = pj.read_json(
                pa.BufferReader(data),
                read_options=pj.ReadOptions(use_threads=False, block_size=data.size + 64),
                parse_options=pj.ParseOptions(
                    explicit_schema=pa.schema([pa.field(item.name, _readable(item.type)) for item in self.schema]),
                    newlines_in_values=True,
                    unexpected_field_behavior="ignore",
                ),
            )
            if table.num_rows != len(texts):
                return "more than one JSON document"
            names = [item.name for item in self.schema]
            columns = [table[name].combine_chunks().cast(_all_nullable(self.schema.field(name).type)) for name in names]
        except pa.ArrowInvalid as error:
            return str(error).splitlines()[0].removeprefix("JSON parse error: ").removesuffix(" in row 0")
        structs = pa.StructArray.from_arrays(columns, fields=list(self.type))
        return _missing(structs, self._struct) or structs


def _framed(texts: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which texts begin with `{` and end with `}`."""
    import numpy as np
    import pyarrow as pa

    if not len(texts):
        return np.zeros(0, bool)
    assert texts.type == pa.binary() and texts.null_count == 0
    ends = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, texts.offset * 4)
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    sizes = np.diff(ends)
    if not len(data):
        return sizes > 1
    first = data[np.minimum(ends[:-1], len(data) - 1)]
    last = data[np.maximum(ends[1:] - 1, 0)]
    framed: npt.NDArray[np.bool_] = (sizes > 1) & (first == ord("{")) & (last == ord("}"))
    return framed


def _missing(structs: pa.StructArray, wanted: pa.StructType, path: str = "") -> str | None:
    """Return the reason when a required field is null. Structs in lists are not checked."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for index, item in enumerate(wanted):
        values = pc.struct_field(structs, index)
        if not item.nullable and pc.any(pc.and_(structs.is_valid(), values.is_null())).as_py():
            return f"field {path}{item.name} is required"
        if pa.types.is_struct(item.type) and (reason := _missing(values, item.type, f"{path}{item.name}.")):
            return reason
    return None


def _mapped(type_: pa.DataType, leaf: Any) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_struct(type_):
        return pa.struct([pa.field(item.name, _mapped(item.type, leaf)) for item in type_])
    if pa.types.is_list(type_):
        return pa.list_(_mapped(type_.value_type, leaf))
    return leaf(type_)


def _all_nullable(type_: pa.DataType) -> pa.DataType:
    return _mapped(type_, lambda leaf: leaf)


def _readable(type_: pa.DataType) -> pa.DataType:
    """Return the type for Arrow's reader, which takes dates as numbers only: they are read as strings, and cast."""
    import pyarrow as pa

    return _mapped(type_, lambda leaf: pa.string() if pa.types.is_date(leaf) else leaf)


def _shown(text: bytes) -> str:
    return repr(text if len(text) <= 40 else text[:37] + b"...")[1:]
