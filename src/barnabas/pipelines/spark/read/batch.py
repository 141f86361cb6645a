"""`spark.read.format("barnabas")`: what is in topics between two positions, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from barnabas.pipelines.spark.read.offsets import between
from barnabas.pipelines.spark.read.positions import check_order, offsets_at
from barnabas.pipelines.spark.read.tasks import read_task, tasks, wanted_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from barnabas.pipelines.spark.read.options import SourceOptions


class BatchReader(DataSourceReader):
    """Plans on the driver, reads in tasks."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._columns = wanted_columns(schema, options)

    def partitions(self) -> list[InputPartition]:
        """The ranges, as the cluster has them now."""
        from barnabas.pipelines.spark.cluster import ClusterView  # on the driver only: tasks need no admin client

        options = self._options
        with ClusterView(options.client) as cluster:
            partitions = cluster.partitions(options.selection)
            start = offsets_at(options.starting, partitions, cluster, too_late_is_end=options.too_late_is_end)
            end = offsets_at(options.ending, partitions, cluster)
        check_order(start, end)
        return tasks(between(start, end), options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a range."""
        return read_task(partition, self._options, self._columns)
