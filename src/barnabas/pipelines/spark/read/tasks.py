"""What a task of Spark is handed, and does: the range of a partition to read, as batches and streams plan it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from barnabas.pipelines.errors import DataLost, InvalidOption
from barnabas.pipelines.spark.read.offsets import OffsetRange, split
from barnabas.pipelines.spark.read.reading import read_range
from barnabas.pipelines.spark.read.rows import record_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from barnabas.pipelines.spark.read.options import SourceOptions


@dataclass(frozen=True)
class RangeTask(InputPartition):
    """One range, read by one task."""

    range: OffsetRange


def tasks(ranges: Sequence[OffsetRange], options: SourceOptions) -> list[InputPartition]:
    """The ranges, cut as the options ask."""
    wanted = options.min_partitions or 0
    if options.max_records:
        wanted = max(wanted, sum(-(-each.size // options.max_records) for each in ranges))
    return [RangeTask(each) for each in split(ranges, wanted or None)]


def read_task(task: InputPartition, options: SourceOptions, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The records of a task's range. Spark makes a task without one of its own where there is nothing to read."""
    if not isinstance(task, RangeTask):
        return
    try:
        for batch in read_range(
            task.range,
            options.client,
            columns=columns,
            include_headers=options.include_headers,
            fail_on_data_loss=options.fail_on_data_loss,
        ):
            yield batch.select(columns)
    except DataLost as error:
        raise with_source_option(error) from error


def with_source_option(error: DataLost) -> DataLost:
    """The error with the option of Spark's source that reads on: Spark shows a text, and knows no remedies."""
    return DataLost(f"{error}. To go on without these records, set failOnDataLoss to false")


def wanted_columns(schema: StructType, options: SourceOptions) -> list[str]:
    """The columns to read: all of them, unless the job gave a schema that has fewer. Raises InvalidOption.

    Spark tells a Python source nothing of the columns that a query uses, so a schema is how a job leaves some out.
    """
    whole = {
        field.name: field.dataType
        for field in from_arrow_schema(record_schema(include_headers=options.include_headers)).fields
    }
    for field in schema.fields:
        if whole.get(field.name) != field.dataType:
            there = ", ".join(f"{name} {kind.simpleString()}" for name, kind in whole.items())
            raise InvalidOption(
                f"the schema has a column {field.name} {field.dataType.simpleString()}, and records have {there}"
            )
    return list(schema.names)
