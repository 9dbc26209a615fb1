"""`spark.read.format("klamm")`: the entry that Spark calls."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource

SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"


class KlammDataSource(DataSource):
    """Topics as DataFrames."""

    @classmethod
    def name(cls) -> str:
        return "klamm"

    def schema(self) -> str:
        return SCHEMA
