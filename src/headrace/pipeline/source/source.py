"""HeadraceSource: what Spark knows as `format("headrace")`.

    from headrace.pipeline import register
    register(spark)
    spark.read.format("headrace").option("queue", "wx.queue").load()

`register` also lets Spark hand filters down to the queue.
"""

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headrace.errors import OptionError
from headrace.pipeline.source.batch_reader import BatchReader, NarrowingReader
from headrace.pipeline.source.columns import schema_of
from headrace.pipeline.source.options import WriteOptions, read_options, write_options
from headrace.pipeline.source.stream_reader import StreamReader
from headrace.pipeline.source.writer import BatchWriter, StreamWriter, check_schema


class HeadraceSource(DataSource):
    """Products of a queue or a site."""

    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> StructType:
        return from_arrow_schema(schema_of(read_options(self.options).columns))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options)
        return NarrowingReader(options) if options.push_filters else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return StreamReader(read_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise OptionError("a queue cannot be overwritten", 'write with mode("append")')
        return BatchWriter(self._writing(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return StreamWriter(self._writing(schema))

    def _writing(self, schema: StructType) -> WriteOptions:
        options = write_options(self.options)
        check_schema(schema, options)
        return options


def register(spark: SparkSession) -> None:
    """Make `format("headrace")` known to this session."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(HeadraceSource)
