"""Ways to read a table. Any Delta reader can; these help where there is none.

Spark with Delta's jar reads the path: `spark.read.format("delta").load(path)`. Without the jar, `dataframe` gives Spark
the Parquet files of one version and the table's schema:

    from klamm.pipeline.table import dataframe
    dataframe(spark, "/warehouse/topics").where("topic = 'flights' and date = '2026-11-21'")

DuckDB reads `delta_scan(path)` with its extension, or the dataset of delta-rs:
`duckdb.from_arrow(deltalake.DeltaTable(path).to_pyarrow_dataset())`. Never use a wildcard over the directory: it also
has files of older versions, and of runs that were killed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from klamm.pipeline.table.location import Location
from klamm.pipeline.table.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def files(path: str, version: int | None = None, *, storage_options: Mapping[str, str] | None = None) -> list[str]:
    """Return the Parquet files of the table's last version, or of another one: absolute paths or URLs."""
    return sorted(Table.open(Location.of(path, storage_options), version).delta.file_uris())


def dataframe(
    spark: SparkSession, path: str, version: int | None = None, *, storage_options: Mapping[str, str] | None = None
) -> DataFrame:
    """Return the table as a DataFrame, `topic` and `date` from the paths. For a URL Spark needs its file system."""
    import json

    from pyspark.sql.types import StructType

    table = Table.open(Location.of(path, storage_options), version)
    schema = StructType.fromJson(json.loads(table.delta.schema().to_json()))
    uris = sorted(table.delta.file_uris())
    if not uris:
        return spark.createDataFrame([], schema)
    rows = spark.read.schema(schema).option("basePath", table.location.uri).parquet(*uris)
    return rows.select(*schema.fieldNames())
