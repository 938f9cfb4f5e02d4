"""HeadraceSource: what Spark knows as `format("headrace")`.

Every Python process of Spark's that plans or reads imports this module, so it imports nothing that only a session
needs (session.py).
"""

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
from headrace.pipeline.source.columns import schema_of
from headrace.pipeline.source.options import (
    WriteOptions,
    check_for_batch,
    check_for_stream,
    read_options,
    write_options,
)
from headrace.pipeline.source.readers import BatchReader, PushdownReader, StreamReader
from headrace.pipeline.source.writers import BatchWriter, StreamWriter, check_schema
from headrace.pipeline.spark.quiet import end_silently

end_silently()  # this may be a Python process of Spark's, which has just loaded the source


class HeadraceSource(DataSource):
    """Products of a queue or a site. Spark creates it on the driver, once per DataFrame or query."""

    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> StructType:
        return from_arrow_schema(schema_of(read_options(self.options).names))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options)
        check_for_batch(options)
        return PushdownReader(options) if options.push_filters else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = read_options(self.options)
        check_for_stream(options)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise OptionError("a queue cannot be overwritten", 'write with mode("append")')
        return BatchWriter(self._write_options(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return StreamWriter(self._write_options(schema))

    def _write_options(self, schema: StructType) -> WriteOptions:
        options = write_options(self.options)
        check_schema(schema, options)
        return options
