"""Spark's data source `klamm`: topics as DataFrames, from a cluster or straight from segment files."""

from klamm.pipeline.spark.source.data_source import KlammDataSource
from klamm.pipeline.spark.source.idle import end_quietly

end_quietly()

__all__ = ["KlammDataSource"]
