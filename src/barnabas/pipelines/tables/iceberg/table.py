"""Apache Iceberg by pyiceberg, without a JVM: rows, snapshot properties and a table property are one catalog commit.

The table property `barnabas.note` has the last note, and each snapshot the one it was made with: a table that somebody
rolled back is as far as its snapshot says (`snapshots.current_note`). The catalog swaps the table's metadata only if
nobody else did, and a snapshot has to follow the one that was seen. pyiceberg's own retries would add the rows again,
so they are off: after a conflict the table is loaded again, looked at, and then decided upon.

`catalog` finds and creates the table, `data_files` describes its files, `columns` maps names to field ids, `snapshots`
and `metadata` know its history.
"""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, TableAlreadyExistsError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.transforms import IdentityTransform

from barnabas.pipelines.tables.contract import Compaction, DataFile, Size
from barnabas.pipelines.tables.errors import SchemaConflict, TableError, UnusableTarget
from barnabas.pipelines.tables.files.destinations import Destination, check_apart, files_below, is_remote, local_path
from barnabas.pipelines.tables.files.rewriting import rewrite, small_files
from barnabas.pipelines.tables.files.schemas import merge_columns, plain_schema
from barnabas.pipelines.tables.iceberg.catalog import NO_RETRIES, TableInCatalog
from barnabas.pipelines.tables.iceberg.columns import extended_mapping, rows_of
from barnabas.pipelines.tables.iceberg.data_files import (
    files_of_snapshots,
    has_all,
    manifest_entry,
    mergeable_files,
    whole_files,
    with_known_columns,
)
from barnabas.pipelines.tables.iceberg.metadata import (
    METADATA_LIMITS,
    NOTE,
    NOTE_SNAPSHOT,
    metadata_in,
    unneeded_metadata,
)
from barnabas.pipelines.tables.iceberg.snapshots import (
    current_note,
    drop_snapshots,
    droppable_snapshots,
    time_after,
    without_history,
)
from barnabas.pipelines.tables.notes import Note, upkeep_note
from barnabas.pipelines.tables.rules import check_owner
from barnabas.pipelines.tables.table import CommitConflict, Table, TableVersion, require_note, same_partitioning
from barnabas.pipelines.tables.targets import DEFAULT_CATALOG

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import timedelta

    import pyarrow as pa
    from pyiceberg.table import Table as Loaded
    from pyiceberg.table import Transaction
    from pyiceberg.table.name_mapping import NameMapping
    from pyiceberg.table.snapshots import Snapshot

NAME_MAPPING: Final = "schema.name-mapping.default"
_OURS: Final = re.compile(r"data/part-[0-9a-f-]{36}\.parquet|metadata/.*")
"""What a load leaves that did not get to its first commit."""


class IcebergTable(Table):
    """An Iceberg table. It is not held: a second job is found out at its first commit."""

    format: ClassVar[str] = "iceberg"

    def __init__(
        self,
        location: str,
        partition_by: Sequence[str] = (),
        catalog: str = DEFAULT_CATALOG,
        options: Mapping[str, str] | None = None,
        keep_snapshots: int | None = None,
    ) -> None:
        """Look into the catalog. Raises UnusableTarget, SchemaConflict."""
        self.location = location
        self._keep_snapshots = keep_snapshots
        self._new_columns: Schema | None = None
        """The columns of a table that is to be created, where they are known before its first rows."""
        self._catalog = TableInCatalog(location, catalog, options)
        table = self._catalog.load_first()
        self.partition_by = (
            tuple(partition_by)
            if table is None
            else same_partitioning(_partitions(table, location), partition_by, location)
        )

    def claim(self) -> None:
        """Nothing to hold. Raises ForeignTable if the table is nobody's."""
        self.last_note()

    def _hold(self) -> None:
        """Nothing to hold, and a commit looks at the table itself."""

    def close(self) -> None:
        """Let the catalog go."""
        self._catalog.close()

    def _look(self) -> TableVersion:
        table = self._load()
        if table is None:
            self._refuse_strangers()
            return TableVersion(None, None)
        note = current_note(table, self.location)
        if note is None:
            check_owner(None, "", self.location)
        return TableVersion(note, table)

    def _refuse_strangers(self) -> None:
        root = self._catalog.root()
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
        return self._schema_of(self._load())

    def _schema_of(self, table: Loaded | None) -> pa.Schema | None:
        return None if table is None else schema_to_pyarrow(table.schema(), include_field_ids=False)

    def evolve(self, schema: pa.Schema) -> None:
        """Add columns in a commit of its own: repeating it changes nothing."""
        self._retry_on_conflict(partial(self._evolve, schema))

    def _evolve(self, schema: pa.Schema) -> None:
        table = self._load()
        if table is None:
            self._new_columns = _with_ids(plain_schema(schema))
            return
        known = plain_schema(schema_to_pyarrow(table.schema(), include_field_ids=False))
        wider = merge_columns(known, plain_schema(schema), self.location)
        if wider.equals(known):
            return
        _with_ids(wider)
        try:
            with self._catalog.answering(), without_history(table).transaction() as transaction:
                known_names = table.name_mapping()
                with transaction.update_schema() as update:
                    update.union_by_name(wider)
                _map_names(transaction, known_names)
        except CommitFailedException as error:
            raise CommitConflict(str(error)) from error

    def destination(self) -> Destination:
        """Files lie in the table's `data` folder; the table's partitioning is in its metadata, not in their names."""
        return self._destination_of(self._load())

    def _destination_of(self, table: Loaded | None) -> Destination:
        columns = self._new_columns if table is None else table.schema()
        return Destination(
            self._catalog.root() if table is None else table.location(),
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
        summary = snapshot.summary
        return Size(*(int(summary[name] or 0) for name in ("total-records", "total-data-files", "total-files-size")))

    def read(self) -> pa.Table:
        """All rows. Raises TableError if there is no table."""
        return self._existing().scan().to_arrow()

    def compact(self, target_bytes: int) -> Compaction:
        """Replace small files by larger ones in one snapshot, also while a load adds others.

        Raises TableError if another job replaces them meanwhile.
        """
        note, table = self._look()
        require_note(note, self.location)
        tasks = whole_files(table)
        small = small_files(mergeable_files(tasks, table, self.partition_by), target_bytes)
        if not small:
            return Compaction(0, 0)
        destination = self._destination_of(table)
        columns = plain_schema(schema_to_pyarrow(table.schema(), include_field_ids=False))
        written = rewrite(small, destination, columns, target_bytes, lambda file: rows_of(table, tasks[file.path]))
        self._retry_on_conflict(
            partial(self._replace, small, written, destination),
            lambda: has_all(whole_files(self._existing()), written) or None,
            upkeep="its files were merged",
        )
        return Compaction(len(small), len(written))

    def _replace(self, small: Sequence[DataFile], written: Sequence[DataFile], destination: Destination) -> bool:
        """Put files in the place of others, in the table as it is now."""
        note, table = self._look()
        there = whole_files(table)
        if has_all(there, written):  # the outcome of an earlier try was not seen
            return True
        if not has_all(there, small):
            raise TableError(f"{self.location}: another job has replaced files that were being merged: try again")
        try:
            with self._catalog.answering(), without_history(table).transaction() as transaction:
                renewed = upkeep_note(require_note(note, self.location))
                update = transaction.update_snapshot(snapshot_properties={NOTE: renewed.to_text()}).overwrite()
                _put_note(transaction, renewed, update.snapshot_id)
                with update:
                    for file in small:
                        update.delete_data_file(there[file.path].file)
                    metadata = transaction.table_metadata
                    for file in written:
                        update.append_data_file(manifest_entry(file, metadata, destination))
        except (CommitFailedException, CommitStateUnknownException) as error:
            raise CommitConflict(str(error)) from error
        return True

    def expire(self, older_than: timedelta) -> int:
        """Forget old snapshots, except those with a name. Their files are orphans then, and go with those."""
        return self._retry_on_conflict(partial(self._expire, older_than), upkeep="its old snapshots were to go")

    def _expire(self, older_than: timedelta) -> int:
        table = self._listable_table()
        oldest = (time.time() - older_than.total_seconds()) * 1000
        old = [each for each in droppable_snapshots(table) if each.timestamp_ms < oldest]
        if old:
            with self._conflicts(old):
                drop_snapshots(table, old)
        return len(old)

    def remove_orphans(self, older_than: timedelta, *, but: Collection[str] = ()) -> int:
        """Remove files that no snapshot names, data and metadata. Raises UnusableTarget where they cannot be listed."""
        table = self._listable_table()
        oldest = time.time() - older_than.total_seconds()
        named = {local_path(path).resolve() for path in [*files_of_snapshots(table), *but]}
        data = (local_path(table.location()) / "data").rglob("*.parquet")
        nobodys = [*(path for path in data if path.resolve() not in named), *unneeded_metadata(table)]
        old = [path for path in nobodys if path.stat().st_mtime < oldest]
        for path in old:
            path.unlink()
        return len(old)

    def _listable_table(self) -> Loaded:
        """The table, if it is a load's and its files can be listed, so that old ones can be told and removed."""
        note, table = self._look()
        require_note(note, self.location)
        if is_remote(table.location()):
            raise UnusableTarget(
                f"pyiceberg cannot list the files at {table.location()}, so those of old snapshots would stay: "
                "use your engine's procedures (expire_snapshots, remove_orphan_files)"
            )
        found: Loaded = table
        return found

    def _append(self, table: Loaded | None, note: Note, files: Sequence[DataFile], schema: pa.Schema) -> None:
        destination = self._destination_of(table)
        old = [] if table is None else self._surplus_snapshots(table)
        if table is not None:
            files = [known for file in files for known in with_known_columns(file, table, destination)]
        with (
            self._conflicts(old),
            self._create(schema) if table is None else without_history(table, old).transaction() as transaction,
        ):
            if table is None:
                _map_names(transaction, None)
            if old:
                ExpireSnapshots(transaction).older_than(time_after(old)).commit()
            update = transaction.update_snapshot(snapshot_properties={NOTE: note.to_text()}).fast_append()
            _put_note(transaction, note, update.snapshot_id)
            with update:
                metadata = transaction.table_metadata
                for file in files:
                    update.append_data_file(manifest_entry(file, metadata, destination))

    def _surplus_snapshots(self, table: Loaded) -> list[Snapshot]:
        """The snapshots that are to be forgotten with the next one, if that was asked for."""
        if self._keep_snapshots is None:
            return []
        return droppable_snapshots(table)[: max(0, len(table.metadata.snapshots) + 1 - self._keep_snapshots)]

    @contextmanager
    def _conflicts(self, old: Sequence[Snapshot]) -> Iterator[None]:
        """Raise CommitConflict if another commit came before the one of the block, or dropped the same snapshots."""
        try:
            with self._catalog.answering():
                yield
        except (CommitFailedException, CommitStateUnknownException, TableAlreadyExistsError) as error:
            raise CommitConflict(str(error)) from error
        except ValueError as error:
            known = {each.snapshot_id for each in self._existing().metadata.snapshots} if old else set()
            if all(each.snapshot_id in known for each in old):
                raise
            raise CommitConflict("another commit has dropped the same snapshots") from error

    def _create(self, schema: pa.Schema) -> Any:
        """A transaction that creates the table; the same columns get the same ids as in `_evolve`."""
        numbered = _with_ids(schema)
        return self._catalog.create(numbered, self._spec(numbered))

    def _spec(self, schema: Any) -> PartitionSpec:
        if not self.partition_by:
            return UNPARTITIONED_PARTITION_SPEC
        fields = [
            PartitionField(schema.find_field(name).field_id, 1000 + index, IdentityTransform(), name)
            for index, name in enumerate(self.partition_by)
        ]
        return PartitionSpec(*fields)

    def _load(self) -> Loaded | None:
        return self._catalog.load()

    def _existing(self) -> Loaded:
        return self._catalog.load_existing()


def _with_ids(schema: pa.Schema) -> Schema:
    """Columns in Iceberg's words, with ids. Raises SchemaConflict if it cannot have them, as two of one whole name."""
    try:
        return assign_fresh_schema_ids(Catalog._convert_schema_if_needed(schema))
    except (ValueError, TypeError) as error:
        raise SchemaConflict(f"an Iceberg table cannot have these columns: {error}") from error


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


def _put_note(transaction: Transaction, note: Note, snapshot: int) -> None:
    """Say how far the table is once it is at this snapshot."""
    known = transaction.table_metadata.properties
    unset = {name: value for name, value in METADATA_LIMITS.items() if name not in known}
    transaction.set_properties({NOTE: note.to_text(), NOTE_SNAPSHOT: str(snapshot), **NO_RETRIES, **unset})


def _map_names(transaction: Transaction, known: NameMapping | None) -> None:
    """Let readers find columns by name in files that were written before their columns had ids."""
    names = extended_mapping(known, transaction.table_metadata.schema()).model_dump_json()
    transaction.set_properties({NAME_MAPPING: names})
