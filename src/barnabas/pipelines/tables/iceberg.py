"""Apache Iceberg by pyiceberg, without a JVM: rows, snapshot properties and a table property are one catalog commit.

The table property `barnabas.note` has the last note, and each snapshot the one it was made with: a table that somebody
rolled back is as far as its snapshot says (`iceberg_metadata.noted`). The catalog swaps the table's metadata only if
nobody else did, and a snapshot has to follow the one that was seen. pyiceberg's own retries
would add the rows again, so they are off: after a conflict the table is loaded again, looked at, and then decided upon.

A table is `namespace.table` in a catalog of pyiceberg's configuration, or a folder such as `lake/orders`: then the
catalog is the SQLite file `lake/iceberg.db`, and the table in it `default.orders`. If that file is lost, the table is
found again by its metadata.
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import load_file_io
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
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, TimestampType, TimestamptzType

from barnabas.pipelines.tables.contract import Compaction, DataFile, Size
from barnabas.pipelines.tables.destinations import Destination, check_apart, files_below, is_remote, local_path
from barnabas.pipelines.tables.errors import SchemaConflict, TableError, UnusableTarget
from barnabas.pipelines.tables.iceberg_columns import extended_mapping, file_schema, is_read_as_written, rows_of
from barnabas.pipelines.tables.iceberg_metadata import (
    NOTE,
    NOTED,
    TIDY,
    last_metadata,
    metadata_in,
    noted,
    unneeded_metadata,
)
from barnabas.pipelines.tables.notes import Note, upkeep_note
from barnabas.pipelines.tables.reaching import spare_signals, unreachable
from barnabas.pipelines.tables.rewriting import rewrite, small_files
from barnabas.pipelines.tables.rules import check_owner
from barnabas.pipelines.tables.schemas import merged, plain_schema
from barnabas.pipelines.tables.table import Conflict, Seen, Table, owned, same_partitioning
from barnabas.pipelines.tables.targets import DEFAULT_CATALOG, check_iceberg, is_in_catalog
from barnabas.pipelines.tables.writing import FILE_BYTES, read_footer

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import timedelta

    import pyarrow as pa
    from pyiceberg.io.pyarrow import DataFileStatistics
    from pyiceberg.table import FileScanTask, Transaction
    from pyiceberg.table import Table as Loaded
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.name_mapping import NameMapping

    from barnabas.pipelines.tables.contract import PartitionValues

NAME_MAPPING: Final = "schema.name-mapping.default"
NO_RETRIES: Final = {"commit.retry.num-retries": "0"}
COUNTS: Final = MetricsMode(MetricModeTypes.COUNTS)
TIMES: Final = (DateType, TimestampType, TimestamptzType)
_OURS: Final = re.compile(r"data/part-[0-9a-f-]{36}\.parquet|metadata/.*")
"""What a load leaves that did not get to its first commit."""

log = logging.getLogger("barnabas.pipelines")


class IcebergTable(Table):
    """An Iceberg table. It is not held: a second job is found out at its first commit."""

    format: ClassVar[str] = "iceberg"

    def __init__(
        self,
        location: str,
        partition_by: Sequence[str] = (),
        catalog: str = DEFAULT_CATALOG,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Look into the catalog. Raises UnusableTarget, SchemaConflict."""
        self.location = location
        self._place: str | None = None
        self._wanted: Schema | None = None
        """The columns of a table that is to be made, where they are known before its first rows."""
        check_iceberg(location, catalog, options or {})
        if is_in_catalog(location):
            self._name = tuple(location.split("."))
            self._catalog = _configured(catalog, options)
        else:
            self._catalog, self._place = _beside(location)
            self._name = ("default", Path(self._place).name)
        table = self._reached()
        self.partition_by = (
            tuple(partition_by)
            if table is None
            else same_partitioning(_partitions(table, location), partition_by, location)
        )

    def claim(self) -> None:
        """Nothing to hold. Raises ForeignTable if the table is nobody's."""
        self.last_note()

    def close(self) -> None:
        """Let the catalog go."""
        self._catalog.close()

    def _look(self) -> Seen:
        table = self._load()
        if table is None:
            self._refuse_strangers()
            return Seen(None, None)
        note = noted(table, self.location)
        if note is None:
            check_owner(None, "", self.location)
        return Seen(note, table)

    def _refuse_strangers(self) -> None:
        root = self._root()
        if is_remote(root):
            return
        metadata = metadata_in(local_path(root))
        if any(not _OURS.fullmatch(name) for name in files_below(root)) or any(each.note is None for each in metadata):
            check_owner(None, "", self.location)
        if any(each.note is not None and each.note.version > 1 for each in metadata):
            raise UnusableTarget(
                f"the catalog has no {self.location}, but its files are at {root}: name its last metadata file with "
                "pyiceberg's Catalog.register_table, or empty the folder to load everything again"
            )
        check_apart(root)

    def schema(self) -> pa.Schema | None:
        """The table's columns."""
        table = self._load()
        return None if table is None else schema_to_pyarrow(table.schema(), include_field_ids=False)

    def evolve(self, schema: pa.Schema) -> None:
        """Add columns in a commit of its own: repeating it changes nothing."""
        self._insisting(partial(self._evolve, schema))

    def _evolve(self, schema: pa.Schema) -> None:
        table = self._load()
        if table is None:
            self._wanted = _numbered(plain_schema(schema))
            return
        known = plain_schema(schema_to_pyarrow(table.schema(), include_field_ids=False))
        wider = merged(known, plain_schema(schema), self.location)
        if wider.equals(known):
            return
        _numbered(wider)
        try:
            with table.transaction() as transaction:
                known_names = table.name_mapping()
                with transaction.update_schema() as update:
                    update.union_by_name(wider)
                _map_names(transaction, known_names)
        except CommitFailedException as error:
            raise Conflict(str(error)) from error

    def destination(self) -> Destination:
        """Files lie in the table's `data` folder; the table's partitioning is in its metadata, not in their names."""
        return self._destination(self._load())

    def _destination(self, table: Loaded | None) -> Destination:
        columns = self._wanted if table is None else table.schema()
        return Destination(
            self._root() if table is None else table.location(),
            folder="data",
            in_partition_folders=False,
            partition_by=self.partition_by,
            drops_partition_columns=False,
            whole_paths=True,
            field_ids=None if columns is None else schema_to_pyarrow(columns),
            io_properties=dict(self._catalog.properties if table is None else table.io.properties),
            durable=True,
        )

    def size(self) -> Size:
        """What the summary of the current snapshot says."""
        table = self._load()
        snapshot = None if table is None else table.current_snapshot()
        if snapshot is None or snapshot.summary is None:
            return Size(0, 0, 0)
        told = snapshot.summary
        return Size(*(int(told[name] or 0) for name in ("total-records", "total-data-files", "total-files-size")))

    def read(self) -> pa.Table:
        """All rows. Raises TableError if there is no table."""
        return self._existing().scan().to_arrow()

    def compact(self, target_bytes: int) -> Compaction:
        """Replace small files by larger ones in one snapshot, also while a load adds others.

        Raises TableError if another job replaces them meanwhile.
        """
        note, table = self._look()
        owned(note, self.location)
        tasks = {task.file.file_path: task for task in _whole_files(table)}
        files = [
            DataFile(path, task.file.record_count, task.file.file_size_in_bytes, _values(self.partition_by, task.file))
            for path, task in tasks.items()
            if task.file.spec_id == table.spec().spec_id
        ]
        small = small_files(files, target_bytes)
        if not small:
            return Compaction(0, 0)
        destination = self._destination(table)
        columns = plain_schema(schema_to_pyarrow(table.schema(), include_field_ids=False))
        written = rewrite(small, destination, columns, target_bytes, lambda file: rows_of(table, tasks[file.path]))
        self._insisting(
            partial(self._replace, small, written, destination),
            lambda: _has(_by_path(self._existing()), written) or None,
            upkeep="its files were merged",
        )
        return Compaction(len(small), len(written))

    def _replace(self, small: Sequence[DataFile], written: Sequence[DataFile], destination: Destination) -> bool:
        """Put files in the place of others, in the table as it is now."""
        note, table = self._look()
        there = _by_path(table)
        if _has(there, written):  # the outcome of an earlier try was not seen
            return True
        if not _has(there, small):
            raise TableError(f"{self.location}: another job has replaced files that were being merged: try again")
        try:
            with table.transaction() as transaction:
                renewed = upkeep_note(owned(note, self.location))
                update = transaction.update_snapshot(snapshot_properties={NOTE: renewed.to_text()}).overwrite()
                _put_note(transaction, renewed, update.snapshot_id)
                with update:
                    for file in small:
                        update.delete_data_file(there[file.path])
                    for file in written:
                        update.append_data_file(_described(file, transaction, destination))
        except (CommitFailedException, CommitStateUnknownException) as error:
            raise Conflict(str(error)) from error
        return True

    def expire(self, older_than: timedelta) -> int:
        """Forget old snapshots, except those with a name. Their files are orphans then, and go with those."""
        return self._insisting(partial(self._expire, older_than), upkeep="its old snapshots were to go")

    def _expire(self, older_than: timedelta) -> int:
        table = self._listed()
        oldest = (time.time() - older_than.total_seconds()) * 1000
        kept = {reference.snapshot_id for reference in table.refs().values()}
        old = [each.snapshot_id for each in table.snapshots() if each.timestamp_ms < oldest]
        old = [number for number in old if number not in kept]
        if old:
            try:
                table.maintenance.expire_snapshots().by_ids(old).commit()
            except CommitFailedException as error:
                raise Conflict(str(error)) from error
        return len(old)

    def remove_orphans(self, older_than: timedelta, *, but: Collection[str] = ()) -> int:
        """Remove files that no snapshot names, data and metadata. Raises UnusableTarget where they cannot be listed."""
        table = self._listed()
        oldest = time.time() - older_than.total_seconds()
        named = {local_path(path).resolve() for path in [*_files_of_snapshots(table), *but]}
        data = (local_path(table.location()) / "data").rglob("*.parquet")
        nobodys = [*(path for path in data if path.resolve() not in named), *unneeded_metadata(table)]
        old = [path for path in nobodys if path.stat().st_mtime < oldest]
        for path in old:
            path.unlink()
        return len(old)

    def _listed(self) -> Loaded:
        """The table, if it is a load's and its files can be listed, so that old ones can be told and removed."""
        note, table = self._look()
        owned(note, self.location)
        if is_remote(table.location()):
            raise UnusableTarget(
                f"files at {table.location()} are not listed by pyiceberg, so that those of old snapshots would stay: "
                "use your engine's procedures (expire_snapshots, remove_orphan_files)"
            )
        found: Loaded = table
        return found

    def _append(self, table: Loaded | None, note: Note, files: Sequence[DataFile], schema: pa.Schema) -> None:
        destination = self._destination(table)
        if table is not None:
            files = [known for file in files for known in _with_known_columns(file, table, destination)]
        try:
            with self._created(schema) if table is None else table.transaction() as transaction:
                if table is None:
                    _map_names(transaction, None)
                update = transaction.update_snapshot(snapshot_properties={NOTE: note.to_text()}).fast_append()
                _put_note(transaction, note, update.snapshot_id)
                with update:
                    for file in files:
                        update.append_data_file(_described(file, transaction, destination))
        except (CommitFailedException, CommitStateUnknownException, TableAlreadyExistsError) as error:
            raise Conflict(str(error)) from error

    def _created(self, schema: pa.Schema) -> Any:
        numbered = _numbered(schema)  # as in `_evolve`: the same columns get the same ids
        self._catalog.create_namespace_if_not_exists(self._name[:-1])
        return self._catalog.create_table_transaction(
            self._name, numbered, self._root(), self._spec(numbered), properties=NO_RETRIES
        )

    def _spec(self, schema: Any) -> PartitionSpec:
        if not self.partition_by:
            return UNPARTITIONED_PARTITION_SPEC
        fields = [
            PartitionField(schema.find_field(name).field_id, 1000 + index, IdentityTransform(), name)
            for index, name in enumerate(self.partition_by)
        ]
        return PartitionSpec(*fields)

    def _reached(self) -> Loaded | None:
        """The table, or None. Raises UnusableTarget if files cannot be reached where it is, or would be."""
        spare_signals()
        address = self.location
        try:
            table = self._load()
            if table is None and is_remote(address := self._root()):
                load_file_io(self._catalog.properties, address).new_input(address).exists()
        except OSError as error:
            raise unreachable(address, error) from error
        return table

    def _load(self) -> Loaded | None:
        try:
            return self._catalog.load_table(self._name)
        except NoSuchTableError:
            return self._found_again()
        except FileNotFoundError as error:
            raise UnusableTarget(
                f"the catalog has {'.'.join(self._name)}, and its files are gone ({error}): restore them, or remove it "
                "from the catalog"
            ) from error

    def _found_again(self) -> Loaded | None:
        """The table of a folder that its catalog does not know, because that was lost: it is told of it again."""
        folder = None if self._place is None else Path(self._place)
        found = [] if folder is None else metadata_in(folder)
        if folder is None or not found or any(each.note is None for each in found):
            return None
        last = last_metadata(found, folder)
        self._catalog.create_namespace_if_not_exists(self._name[:-1])
        log.warning("%s was not in its catalog: it goes on with %s", self.location, last.path.name)
        path = local_path(last.location) / "metadata" / last.path.name  # spelled as the table spells all its files
        try:
            return self._catalog.register_table(self._name, str(path))
        except TableAlreadyExistsError:  # somebody else found it, or made it, at the same moment
            return self._catalog.load_table(self._name)

    def _existing(self) -> Loaded:
        table = self._load()
        if table is None:
            raise TableError(f"there is no table {self.location}")
        return table

    def _root(self) -> str:
        """Where a new table's files go."""
        if self._place is not None:
            return self._place
        warehouse = self._catalog.properties.get("warehouse")
        if warehouse is None:
            raise UnusableTarget(
                f"the catalog says no warehouse, so there is no place for {self.location}: set `warehouse` for it in "
                "pyiceberg's configuration"
            )
        return "/".join([warehouse.rstrip("/"), *self._name])


def _numbered(schema: pa.Schema) -> Schema:
    """Columns in Iceberg's words, with ids. Raises SchemaConflict if it cannot have them, as two of one whole name."""
    try:
        return assign_fresh_schema_ids(Catalog._convert_schema_if_needed(schema))
    except (ValueError, TypeError) as error:
        raise SchemaConflict(f"an Iceberg table cannot have these columns: {error}") from error


def _files_of_snapshots(table: Loaded) -> list[str]:
    """All files that a snapshot names; pyiceberg cannot tell where none has any."""
    if not any(snapshot.manifests(table.io) for snapshot in table.snapshots()):
        return []
    return list(table.inspect.all_files().column("file_path").to_pylist())


def _configured(name: str, options: Mapping[str, str] | None) -> Catalog:
    try:
        return load_catalog(name, **dict(options or {}))
    except ValueError as error:
        raise UnusableTarget(
            f"there is no Iceberg catalog {name} ({error}): describe it in ~/.pyiceberg.yaml, or give a folder such as "
            "lake/orders, which has a catalog of its own"
        ) from error


def _beside(location: str) -> tuple[Catalog, str]:
    from sqlalchemy.exc import DatabaseError

    place = local_path(location).absolute()
    place.parent.mkdir(parents=True, exist_ok=True)
    file = place.parent / "iceberg.db"
    try:
        catalog = load_catalog("barnabas", type="sql", uri=f"sqlite:///{file}", warehouse=str(place.parent))
    except DatabaseError as error:
        raise UnusableTarget(f"{file} cannot be the catalog of {location}: {error.orig}") from error
    return catalog, str(place)


def _partitions(table: Loaded, location: str) -> list[str]:
    """The columns that a table is partitioned by. Raises UnusableTarget if it is not by their own values."""
    columns = {column.field_id: column.name for column in table.schema().fields}
    for field in table.spec().fields:
        if field.source_id not in columns or not isinstance(field.transform, IdentityTransform):
            raise UnusableTarget(
                f"{location} is partitioned by {field.transform}({table.schema().find_column_name(field.source_id)}), "
                "and a load writes only partitions of a column's own values: load into another table."
            )
    return [columns[field.source_id] for field in table.spec().fields]


def _whole_files(table: Loaded) -> list[FileScanTask]:
    """The data files of which no row was deleted; others are left to the engine that wrote delete files for them."""
    return [task for task in table.scan().plan_files() if not task.delete_files]


def _by_path(table: Loaded) -> dict[str, IcebergFile]:
    return {task.file.file_path: task.file for task in _whole_files(table)}


def _has(there: Collection[str], files: Sequence[DataFile]) -> bool:
    return all(file.path in there for file in files)


def _partition_values(file: DataFile) -> list[Any]:
    from datetime import date

    return [(value - date(1970, 1, 1)).days if isinstance(value, date) else value for _, value in file.partition]


def _values(names: Sequence[str], file: IcebergFile) -> PartitionValues:
    return tuple((name, file.partition[index]) for index, name in enumerate(names))


def _described(file: DataFile, transaction: Transaction, destination: Destination) -> IcebergFile:
    """A file as a manifest has it, by its footer."""
    metadata = transaction.table_metadata
    statistics = _statistics(read_footer(destination, file), metadata)
    spec = metadata.spec()
    return IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*_partition_values(file)),
        file_size_in_bytes=file.size,
        sort_order_id=None,
        spec_id=spec.spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


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


def _with_known_columns(file: DataFile, table: Loaded, destination: Destination) -> list[DataFile]:
    """The file or, if readers would take its columns for others, its rows in new ones that say which ones they are."""
    if is_read_as_written(read_footer(destination, file), table.metadata):
        return [file]
    columns = plain_schema(schema_to_pyarrow(table.schema(), include_field_ids=False))
    return rewrite([file], destination, columns, FILE_BYTES)


def _put_note(transaction: Transaction, note: Note, snapshot: int) -> None:
    """Say how far the table is once it is at this snapshot."""
    known = transaction.table_metadata.properties
    unset = {name: value for name, value in TIDY.items() if name not in known}
    transaction.set_properties({NOTE: note.to_text(), NOTED: str(snapshot), **NO_RETRIES, **unset})


def _map_names(transaction: Transaction, known: NameMapping | None) -> None:
    """Let readers find columns by name in files that were written before their columns had ids."""
    names = extended_mapping(known, transaction.table_metadata.schema()).model_dump_json()
    transaction.set_properties({NAME_MAPPING: names})
