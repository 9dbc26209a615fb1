"""Spark's data source `klamm`: topics as DataFrames, from a cluster or straight from segment files."""

from klamm.pipeline.source.data_source import KlammDataSource
from klamm.pipeline.source.idle import end_quietly

end_quietly()

__all__ = ["KlammDataSource"]
