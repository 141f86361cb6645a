"""`df.write.format("barnabas")`: rows of a batch to topics, at least once.

A task sends its rows and waits until they have arrived; a task that Spark runs again sends them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from barnabas.pipelines.errors import InvalidOption, SinkRefused
from barnabas.pipelines.spark.write.rows import check_schema, outgoing
from barnabas.pipelines.spark.write.sending import send_plainly

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from barnabas.pipelines.spark.write.options import SinkOptions


class BatchWriter(DataSourceArrowWriter):
    """For `df.write`."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if options.exactly_once:
            raise InvalidOption(
                "option deliveryGuarantee is exactly-once, which is for streams: a batch that runs again is another one"
            )
        if overwrite:
            raise SinkRefused('a topic cannot be overwritten: use mode("append")')
        check_schema(schema, options.topic)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send a task's rows."""
        send_plainly(outgoing(iterator, self._options.topic), self._options.client)
        return WriterCommitMessage()
