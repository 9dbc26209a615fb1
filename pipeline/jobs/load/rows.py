"""The rows of a loaded table. A record that does not parse has no row.

key, value                  as their formats give them (binary by default)
topic, partition, offset    where the record is
timestamp, timestamp_type   as the log has them: 0 is the producer's time, 1 the broker's
headers                     array<struct<key: string, value: binary>>, null without any; may be left out
date                        of the timestamp, UTC; the table is partitioned by topic and date

A transformation is a function of a record batch with these columns (`date` left out) that returns one with as many
rows, in the same order. It must not change `partition`, `offset`, `timestamp` and `topic`; it may change, drop or add
other columns. So a table can still be verified against the log.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from klamm.pipeline.errors import BadOption, PipelineError
from klamm.pipeline.table.files import DAY_US, FIRST_DAY, LAST_DAY
from klamm.pipeline.values import Binary, ValueFormat
from klamm.pipeline.values.value_format import Bad, without

if TYPE_CHECKING:
    import pyarrow as pa

FIXED: Final = ("topic", "partition", "offset", "timestamp")
IN_PATH: Final = ("topic", "date")
BINARY: Final = Binary()


@dataclass(frozen=True, slots=True)
class Rows:
    """How records become rows. Sent to tasks; `transform` is "module:function"."""

    key: ValueFormat = BINARY
    value: ValueFormat = BINARY
    headers: bool = True
    transform: str | None = None

    def schema(self) -> pa.Schema:
        """Return the schema of the table. Raises BadOption for a transformation that cannot be used."""
        import pyarrow as pa

        empty = self._columns(pa.array([], self.key.type), pa.array([], self.value.type), _no_records())
        if self.transform is not None:
            empty = _transformed(self.transform, empty)
        return empty.schema.append(pa.field("date", pa.date32()))

    def convert(self, records: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Bad]]:
        """Return rows for the files (topic and date are in their paths), and the records that are not among them."""
        import pyarrow as pa

        key, value = self.key.convert(records["key"]), self.value.convert(records["value"])
        named = [("key", key.bad), ("value", value.bad)]
        bad = [Bad(item.row, f"{name}: {item.reason}") for name, found in named for item in found] + _undated(records)
        rows = self._columns(key.values, value.values, records)
        if bad:
            keep = without(pa.array([True] * len(records)), bad).is_valid()
            rows = rows.filter(keep)
        if self.transform is not None:
            rows = _transformed(self.transform, rows)
        return rows.select([name for name in rows.schema.names if name not in IN_PATH]), bad

    def _columns(self, key: Any, value: Any, records: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        columns = {
            "key": key,
            "value": value,
            **{name: records[name] for name in FIXED},
            "timestamp_type": records["timestampType"],
        }
        if self.headers:
            columns["headers"] = records["headers"]
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


AS_THEY_ARE: Final = Rows()


def _undated(records: pa.RecordBatch) -> list[Bad]:
    """Return the records with a timestamp outside the dates that all readers support."""
    import numpy as np

    times = records["timestamp"].cast("int64").to_numpy(zero_copy_only=False)
    rows = np.flatnonzero((times < FIRST_DAY * DAY_US) | (times >= (LAST_DAY + 1) * DAY_US)).tolist()
    return [Bad(row, f"timestamp: {times[row] // 1000} ms is not within the years 1 to 9999") for row in rows]


def _no_records() -> pa.RecordBatch:
    import pyarrow as pa

    from klamm.pipeline.arrow import SCHEMA_WITH_HEADERS

    return pa.RecordBatch.from_arrays(
        [pa.array([], item.type) for item in SCHEMA_WITH_HEADERS], SCHEMA_WITH_HEADERS.names
    )


def _transformed(name: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    try:
        found = _function(name)(rows)
    except PipelineError:
        raise
    except Exception as error:
        raise PipelineError(f"--transform {name}: {type(error).__name__}: {_first_line(error)}") from None
    names = getattr(getattr(found, "schema", None), "names", None)
    if names is None or len(found) != len(rows):
        raise PipelineError(f"--transform {name} must return a record batch with as many rows as it got")
    for column in FIXED:
        if column not in names or not found[column].equals(rows[column]):
            raise PipelineError(f"--transform {name} must not change the column {column}")
    if "date" in names:
        raise PipelineError(f"--transform {name} has made a column date, which is for the date of the timestamp")
    return found


def _function(name: str) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    module, separator, attribute = name.partition(":")
    if not separator:
        raise BadOption(f"--transform {name}: it has the form module:function")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise BadOption(f"--transform {name}: {error}") from None
    if not callable(function):
        raise BadOption(f"--transform {name}: {attribute} is not a function")
    return function  # type: ignore[no-any-return]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
