"""The check that rows fit an existing table. Differences are reported one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from klamm.pipeline.errors import SchemaChanged
from klamm.pipeline.table import Table
from klamm.pipeline.table.table import PARTITION_BY

if TYPE_CHECKING:
    import pyarrow as pa


def check_schema(
    table: Table, wanted: pa.Schema, *, may_add: bool, partition_by: Sequence[str] = PARTITION_BY, job: str = "load"
) -> bool:
    """Return whether columns, or fields of structs, must be added first. Raises SchemaChanged."""
    import pyarrow as pa
    from deltalake import Schema

    if table.partition_by != list(partition_by):
        raise SchemaChanged(
            f"{table.location} is partitioned by {', '.join(table.partition_by) or 'nothing'}, "
            f"not by {', '.join(partition_by)}: it is not a table that {job} has made"
        )
    normal = pa.schema(Schema.from_arrow(wanted))
    added = _compared(str(table.location), "", list(table.schema), list(normal))
    if added and not may_add:
        raise SchemaChanged(
            f"{table.location} has no column {added[0]}, which this load would write; "
            "--add-columns adds it (null in older rows), or name another table"
        )
    return bool(added)


def _compared(location: str, path: str, there: list[pa.Field], wanted: list[pa.Field]) -> list[str]:
    """Return the names of new columns."""
    import pyarrow as pa

    old, new = ({item.name: item.type for item in fields} for fields in (there, wanted))
    if missing := [name for name in old if name not in new]:
        raise SchemaChanged(f"{location} has a column {path}{missing[0]}, which this load would not write")
    added = [f"{path}{name}" for name in new if name not in old]
    for name, type_ in old.items():
        if pa.types.is_struct(type_) and pa.types.is_struct(new[name]):
            added += _compared(location, f"{path}{name}.", list(type_), list(new[name]))
        elif type_ != new[name]:
            raise SchemaChanged(f"{location}: column {path}{name} is {type_} there, and {new[name]} in this load")
    return added
