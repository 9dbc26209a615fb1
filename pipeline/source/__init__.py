"""Spark's data source `klamm`: topics as DataFrames, from a cluster or straight from segment files."""

from klamm.pipeline.source.data_source import KlammDataSource

__all__ = ["KlammDataSource"]
