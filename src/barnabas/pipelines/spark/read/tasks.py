"""What a task of Spark is handed, and does: the ranges of partitions to read, as batches and streams plan it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from barnabas.pipelines.errors import DataLost, InvalidOption
from barnabas.pipelines.spark.read.offsets import OffsetRange, cost_of, group_ranges, split
from barnabas.pipelines.spark.read.reading import read_ranges
from barnabas.pipelines.spark.read.rows import record_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from barnabas.pipelines.spark.read.options import SourceOptions


TASK_OFFSETS: Final = 20_000
"""Small ranges share tasks that have so many offsets: to start a task and a consumer takes as long as to read them. A
planner does not know how large records are, so it is no more than that."""
LEAST_TASKS: Final = 8
"""Ranges are not put together to fewer. It does not depend on the machine: a batch that runs again elsewhere must have
the same tasks, or a sink that writes exactly once refuses it."""


@dataclass(frozen=True)
class RangeTask(InputPartition):
    """Ranges that one task reads one after the other."""

    ranges: tuple[OffsetRange, ...]


def tasks(ranges: Sequence[OffsetRange], options: SourceOptions) -> list[InputPartition]:
    """The ranges, cut as the options ask; if they ask for nothing, small ones share tasks."""
    wanted = options.min_partitions or 0
    if options.max_records:
        wanted = max(wanted, sum(-(-each.size // options.max_records) for each in ranges))
    if wanted:
        return [RangeTask((each,)) for each in split(ranges, wanted)]
    most = max(LEAST_TASKS, cost_of(ranges) // TASK_OFFSETS)
    return [RangeTask(piece) for piece in group_ranges(ranges, most)]


def read_task(task: InputPartition, options: SourceOptions, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The records of a task's ranges. Spark makes a task without any of its own where there is nothing to read."""
    if not isinstance(task, RangeTask):
        return
    try:
        for _, batches in read_ranges(
            task.ranges,
            options.client,
            columns=columns,
            include_headers=options.include_headers,
            fail_on_data_loss=options.fail_on_data_loss,
            keep_consumer=True,
        ):
            for batch in batches:
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
