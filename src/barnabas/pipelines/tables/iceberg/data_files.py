"""The data files of an Iceberg table: how a manifest describes them, and which ones a version of the table has."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, TimestampType, TimestamptzType

from barnabas.pipelines.tables.contract import DataFile
from barnabas.pipelines.tables.files.rewriting import rewrite
from barnabas.pipelines.tables.files.schemas import plain_schema
from barnabas.pipelines.tables.files.writing import FILE_BYTES, read_footer
from barnabas.pipelines.tables.iceberg.columns import file_schema, is_read_as_written

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyiceberg.io.pyarrow import DataFileStatistics
    from pyiceberg.table import FileScanTask
    from pyiceberg.table import Table as Loaded
    from pyiceberg.table.metadata import TableMetadata

    from barnabas.pipelines.tables.files.destinations import Destination

COUNTS: Final = MetricsMode(MetricModeTypes.COUNTS)
TIMES: Final = (DateType, TimestampType, TimestamptzType)
EPOCH: Final = date(1970, 1, 1)


def manifest_entry(file: DataFile, metadata: TableMetadata, destination: Destination) -> IcebergFile:
    """A file as a manifest has it, by its footer."""
    statistics = _statistics(read_footer(destination, file), metadata)
    return IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*_partition_values(file)),
        file_size_in_bytes=file.size,
        sort_order_id=None,
        spec_id=metadata.spec().spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def whole_files(table: Loaded) -> dict[str, FileScanTask]:
    """The data files of which no row was deleted, by path; the engine that wrote delete files sees to the others."""
    return {task.file.file_path: task for task in table.scan().plan_files() if not task.delete_files}


def mergeable_files(tasks: dict[str, FileScanTask], table: Loaded, partition_by: Sequence[str]) -> list[DataFile]:
    """Those of these files that are partitioned as the table is now."""
    return [
        DataFile(
            path,
            task.file.record_count,
            task.file.file_size_in_bytes,
            tuple((name, task.file.partition[index]) for index, name in enumerate(partition_by)),
        )
        for path, task in tasks.items()
        if task.file.spec_id == table.spec().spec_id
    ]


def has_all(paths: Collection[str], files: Sequence[DataFile]) -> bool:
    """Whether all files are among these paths."""
    return all(file.path in paths for file in files)


def files_of_snapshots(table: Loaded) -> list[str]:
    """The paths of all files that a snapshot names; pyiceberg fails where no snapshot has any."""
    if not any(snapshot.manifests(table.io) for snapshot in table.snapshots()):
        return []
    return list(table.inspect.all_files().column("file_path").to_pylist())


def with_known_columns(file: DataFile, table: Loaded, destination: Destination) -> list[DataFile]:
    """The file or, if readers would take its columns for others, its rows in new files that have field ids."""
    if is_read_as_written(read_footer(destination, file), table.metadata):
        return [file]
    columns = plain_schema(schema_to_pyarrow(table.schema(), include_field_ids=False))
    return rewrite([file], destination, columns, FILE_BYTES)


def _partition_values(file: DataFile) -> list[Any]:
    return [(value - EPOCH).days if isinstance(value, date) else value for _, value in file.partition]


def _statistics(footer: Any, metadata: TableMetadata) -> DataFileStatistics:
    """What a footer knows of a file's columns; a column with times that Python does not know has no bounds."""
    columns = file_schema(footer, metadata)
    # A column may have been renamed, or be gone, since the file was written.
    plan = {
        **compute_statistics_plan(columns, metadata.properties),
        **compute_statistics_plan(metadata.schema(), metadata.properties),
    }
    names = parquet_path_to_id_mapping(columns)
    try:
        return data_file_statistics_from_parquet_metadata(footer, plan, names)
    except OverflowError:
        without_times = {
            number: replace(each, mode=COUNTS) if isinstance(each.iceberg_type, TIMES) else each
            for number, each in plan.items()
        }
        return data_file_statistics_from_parquet_metadata(footer, without_times, names)
