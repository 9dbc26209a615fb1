"""How Spark finds the data source by its name: it looks for `DefaultSource` in installed modules called `pyspark_*`."""

from klamm.pipeline.spark.source import KlammDataSource as DefaultSource

__all__ = ["DefaultSource"]
