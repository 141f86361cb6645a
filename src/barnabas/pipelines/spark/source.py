"""`format("barnabas")` in Spark: the class that Spark asks for readers and writers.

Spark makes one in a Python process of its own for every question (the schema, a batch's plan, a stream's offsets), so
it keeps nothing; options are read where they are needed, and first when `load()` asks for the schema. Those processes
stay, so each loads only what its question needs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceStreamReader

from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.spark.options import GivenOptions
from barnabas.pipelines.spark.read.columns import record_ddl
from barnabas.pipelines.spark.read.options import KNOWN, WITHOUT_EFFECT, batch_options, stream_options
from barnabas.pipelines.spark.write.options import sink_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from barnabas.pipelines.spark.read.batch import BatchReader
    from barnabas.pipelines.spark.read.options import SourceOptions
    from barnabas.pipelines.spark.write.batch import BatchWriter
    from barnabas.pipelines.spark.write.stream import StreamWriter


class BarnabasSource(DataSource):
    """Topics as Spark reads them."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "barnabas"

    def schema(self) -> str:
        """The columns of Spark's own Kafka source; with `includeHeaders` headers too."""
        options = GivenOptions.of(self.options, KNOWN, WITHOUT_EFFECT)
        return record_ddl(include_headers=options.flag("includeHeaders", False))

    def reader(self, schema: StructType) -> BatchReader:
        """For `spark.read`."""
        from barnabas.pipelines.spark.read.batch import BatchReader

        return BatchReader(batch_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`."""
        try:
            _need_streams()
            from barnabas.pipelines.spark.read.stream import StreamReader

            return StreamReader(self._stream_options(), schema)
        except PipelineError as error:
            return _RefusedStream(error)

    def _stream_options(self) -> SourceOptions:
        return stream_options(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """For `df.write`."""
        from barnabas.pipelines.spark.write.batch import BatchWriter

        return BatchWriter(sink_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """For `df.writeStream`; with the output mode complete, each epoch's rows are appended too."""
        _need_streams()
        from barnabas.pipelines.spark.write.first_epoch import check_first_epoch
        from barnabas.pipelines.spark.write.stream import StreamWriter

        options = sink_options(self.options)
        writer = StreamWriter(options, schema)
        if options.exactly_once:
            check_first_epoch(options)
        return writer


class ListenedSource(BarnabasSource):
    """The same, for sessions with a `ProgressListener`: it commits the progress, and their streams do not."""

    def _stream_options(self) -> SourceOptions:
        return replace(super()._stream_options(), progress_group=None)


class _RefusedStream(DataSourceStreamReader):
    """A stream that cannot be read: says why as soon as Spark asks it for anything.

    Spark stops the reader of a stream also where there is none, and would show the error of that last, not ours.
    """

    def __init__(self, error: PipelineError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:
        """Asked for by a query that begins."""
        raise self._error

    def latestOffset(self, *_: Any, **__: Any) -> NoReturn:
        """Asked for by one that goes on."""
        raise self._error

    def partitions(self, *_: Any, **__: Any) -> NoReturn:
        """Asked for by one that has a batch to repeat."""
        raise self._error

    def read(self, *_: Any, **__: Any) -> NoReturn:
        """Asked for in no task."""
        raise self._error


def _need_streams() -> None:
    if not hasattr(DataSourceStreamReader, "getDefaultReadLimit"):
        raise PipelineError(
            f"streams need pyspark 4.2 or newer, and this is {pyspark.__version__}; batches work with it"
        )
