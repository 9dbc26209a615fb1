"""The module by which Spark finds the data source: it looks for `DefaultSource` in installed modules `pyspark_*`."""

from klamm.pipeline.spark.source import KlammDataSource as DefaultSource

__all__ = ["DefaultSource"]
