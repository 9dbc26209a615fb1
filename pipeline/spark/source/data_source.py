"""The data source that Spark calls for `spark.read.format("klamm")`.

Options and columns are those of Spark's Kafka connector, see `options` and `sink_options`; `batch`, `stream` and `sink`
have the guarantees. Each step of a plan is a new Python process, so imports wait until they are needed.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from klamm.pipeline.errors import BadOption
from klamm.pipeline.spark.source.options import BATCH, STREAM, parse

SCHEMA: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SCHEMA_WITH_HEADERS: Final = StructType([*SCHEMA.fields, StructField("headers", ArrayType(HEADER))])


class KlammDataSource(DataSource):
    """Topics as DataFrames."""

    @classmethod
    def name(cls) -> str:
        return "klamm"

    def schema(self) -> StructType:
        """Return the columns, before it is known whether a batch or a stream reads. Raises BadOption if neither may."""
        try:
            options = parse(self.options, BATCH)
        except BadOption as error:
            try:
                options = parse(self.options, STREAM)
            except BadOption:
                raise error from None
        return SCHEMA_WITH_HEADERS if options.include_headers else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        from klamm.pipeline.spark.source.batch import BatchReader

        self._check(schema)
        return BatchReader(parse(self.options, BATCH))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from klamm.pipeline.spark.source.stream import StreamReader

        self._check(schema)
        return StreamReader(parse(self.options, STREAM))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from klamm.pipeline.spark.source.sink import BatchWriter
        from klamm.pipeline.spark.source.sink_options import parse_sink

        return BatchWriter(parse_sink(self.options, BATCH), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from klamm.pipeline.spark.source.sink import StreamWriter
        from klamm.pipeline.spark.source.sink_options import parse_sink

        return StreamWriter(parse_sink(self.options, STREAM), schema)

    def _check(self, schema: StructType) -> None:
        wanted = self.schema()
        if schema != wanted:
            raise BadOption(f"the columns are {wanted.simpleString()}, not {schema.simpleString()}")
