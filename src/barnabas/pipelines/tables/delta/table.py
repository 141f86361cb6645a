"""Delta Lake by deltalake, without a JVM: rows, app transaction and note are one commit of Delta's log.

The app transaction (app id: the pipeline, version: the number of its commit) outlives Delta's own clean-up of the log,
and Delta refuses two concurrent commits of one app. A later one from a fresh handle it would take, so the stored note
is looked at first (`delta_history`). The note lies in the commit's info; the log is kept for a year, and `expire`
writes the note anew.

Columns are known by their names. A table whose columns were given other names than they have in its files (Delta's
column mapping) is not written to: deltalake would look for the rows' columns in vain.

deltalake's own retries are off: after a conflict the table is opened again, looked at, and then decided upon.
"""

from __future__ import annotations

import json
import math
import re
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, create_table_with_add_actions

from barnabas.pipelines.tables.contract import Compaction, DataFile, Size
from barnabas.pipelines.tables.delta.history import NOTE, DeltaHistory
from barnabas.pipelines.tables.delta.statistics import delta_statistics
from barnabas.pipelines.tables.delta.store import delta_store, files_of
from barnabas.pipelines.tables.errors import SchemaConflict, TableError, UnusableTarget
from barnabas.pipelines.tables.files.access_errors import unreachable
from barnabas.pipelines.tables.files.destinations import (
    Destination,
    check_apart,
    files_below,
    is_remote,
    local_path,
    partition_text,
)
from barnabas.pipelines.tables.files.schemas import merge_columns, plain_schema
from barnabas.pipelines.tables.files.writing import read_footer
from barnabas.pipelines.tables.notes import Note, upkeep_note
from barnabas.pipelines.tables.rules import check_owner
from barnabas.pipelines.tables.table import CommitConflict, Table, TableVersion, require_note, same_partitioning

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pyarrow import fs

LOG_KEPT: Final = {
    "delta.logRetentionDuration": "interval 365 days",
    "delta.deletedFileRetentionDuration": "interval 365 days",
}
"""How long the log says what was committed, and which files were removed: `expire` decides when those go."""
MAPPING_MODE: Final = "delta.columnMapping.mode"
_OURS: Final = re.compile(r"(.+=[^/]*/)*part-[0-9a-f-]{36}\.parquet|_delta_log/.*")
"""What tasks of a load leave that did not get to its first commit."""


class DeltaLakeTable(Table):
    """A Delta table. It is not held: a second job is found out at its first commit."""

    format: ClassVar[str] = "delta"

    def __init__(
        self, location: str, partition_by: Sequence[str] = (), options: Mapping[str, str] | None = None
    ) -> None:
        """Look at the place. Raises UnusableTarget, SchemaConflict."""
        self.location = location if is_remote(location) else str(local_path(location).absolute())
        self._options = None if options is None else dict(options)
        table = self._open()
        self.partition_by = (
            tuple(partition_by)
            if table is None
            else same_partitioning(table.metadata().partition_columns, partition_by, self.location)
        )

    def claim(self) -> None:
        """Make the folder; there is nothing to hold. Raises ForeignTable if other files are in the way."""
        self.last_note()
        if not is_remote(self.location):
            local_path(self.location).mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        """Nothing is held."""

    def _look(self) -> TableVersion:
        """The note that is true of its rows; the newest one in the log has to be that of the app transaction."""
        return self._retry_on_conflict(self._look_once, upkeep="it was looked at")

    def _look_once(self) -> TableVersion:
        table = self._open()
        if table is None:
            self._refuse_strangers()
            return TableVersion(None, None)
        history = DeltaHistory(table, self.location, self._options)
        newest = history.newest_note()
        if newest is None:
            check_owner(None, "", self.location)
            return TableVersion(None, table)
        self._check_log(newest, table)
        return TableVersion(history.note(), table)

    def schema(self) -> pa.Schema | None:
        """The table's columns."""
        table = self._open()
        return None if table is None else _schema(table)

    def evolve(self, schema: pa.Schema) -> None:
        """Add columns in a commit of its own: repeating it changes nothing."""
        _check_types(plain_schema(schema))
        self._retry_on_conflict(partial(self._evolve, schema))

    def _evolve(self, schema: pa.Schema) -> None:
        table = self._open()
        if table is None:
            return
        _check_mapping(table, self.location)
        known = plain_schema(_schema(table))
        wider = merge_columns(known, plain_schema(schema), self.location)
        new = [field for field in wider if field.name not in known.names or field.type != known.field(field.name).type]
        if not new:
            return
        try:
            table.alter.add_columns(
                Schema.from_arrow(pa.schema(new)).fields, commit_properties=CommitProperties(max_commit_retries=0)
            )
        except CommitFailedError as error:
            raise CommitConflict(str(error)) from error

    def destination(self) -> Destination:
        """Files lie where they belong at once: only the log makes them rows."""
        return Destination(
            self.location,
            partition_by=self.partition_by,
            empty_is_null=True,
            storage_options=self._options,
            durable=True,
        )

    def size(self) -> Size:
        """What the log's newest version has."""
        table = self._open()
        if table is None:
            return Size(0, 0, 0)
        files = pa.table(table.get_add_actions(flatten=True))
        return Size(
            sum(files.column("num_records").to_pylist()), files.num_rows, sum(files.column("size_bytes").to_pylist())
        )

    def compact(self, target_bytes: int) -> Compaction:
        """Let deltalake merge small files, each partition for itself; anew if a load adds a column meanwhile."""
        return self._retry_on_conflict(partial(self._compact, target_bytes), upkeep="its files were merged")

    def _compact(self, target_bytes: int) -> Compaction:
        require_note(self.last_note(), self.location)
        table = self._existing()
        _check_mapping(table, self.location)
        try:
            metrics = table.optimize.compact(target_size=target_bytes)
        except CommitFailedError as error:
            raise CommitConflict(str(error)) from error
        return Compaction(metrics["numFilesRemoved"], metrics["numFilesAdded"])

    def expire(self, older_than: timedelta) -> int:
        """Delete files of versions that are so old, in whole hours; the note is written anew, to outlive the log."""
        self._retry_on_conflict(self._renew_note, upkeep="its old versions were to go")
        return len(self._vacuum(older_than, dry_run=False))

    def _renew_note(self) -> None:
        note, table = self._look()
        self._write(table, upkeep_note(require_note(note, self.location)), (), None)

    def remove_orphans(self, older_than: timedelta, *, but: Collection[str] = ()) -> int:
        """Delete files that the log does not name and that are so old.

        deltalake could do it only by whole hours, and would also take what was removed from the newest version.
        """
        require_note(self.last_note(), self.location)
        oldest = datetime.now(UTC) - older_than
        store = delta_store(self.location, self._options)
        there = files_of(store)
        named = {*self._files_in_log(), *but}
        old = [each.path for each in there if _is_data(each) and each.mtime < oldest and each.path not in named]
        for path in old:
            store.delete_file(path)
        return len(old)

    def _append(self, table: DeltaTable | None, note: Note, files: Sequence[DataFile], schema: pa.Schema) -> None:
        if table is not None:
            self._write(table, note, files, schema)
            return
        try:
            create_table_with_add_actions(
                self.location,
                Schema.from_arrow(schema),
                self._actions(files),
                mode="error",
                partition_by=list(self.partition_by),
                configuration=LOG_KEPT,
                storage_options=self._options,
                commit_properties=_properties(note),
            )
        except DeltaError as error:
            if self._open() is None:
                raise UnusableTarget(f"no Delta table can be made at {self.location}: {error}") from error
            raise CommitConflict(str(error)) from error

    def _write(self, table: DeltaTable, note: Note, files: Sequence[DataFile], schema: pa.Schema | None) -> None:
        _check_mapping(table, self.location)
        try:
            table.create_write_transaction(
                list(self._actions(files)),
                "append",
                Schema.from_arrow(_schema(table) if schema is None else schema),
                list(self.partition_by),
                commit_properties=_properties(note),
            )
        except CommitFailedError as error:
            raise CommitConflict(str(error)) from error

    def _actions(self, files: Sequence[DataFile]) -> list[AddAction]:
        destination = self.destination()
        return [_action(file, delta_statistics(read_footer(destination, file))) for file in files]

    def _open(self) -> DeltaTable | None:
        try:
            return DeltaTable(self.location, storage_options=self._options)
        except TableNotFoundError:
            return None
        except OSError as error:
            raise unreachable(self.location, error) from error
        except DeltaError as error:
            raise UnusableTarget(f"{self.location} cannot be opened as a Delta table: {error}") from error

    def _existing(self) -> DeltaTable:
        table = self._open()
        if table is None:
            raise TableError(f"there is no table at {self.location}")
        return table

    def _check_log(self, note: Note, table: DeltaTable) -> None:
        stored = table.transaction_version(note.pipeline)
        if stored is not None and stored < note.version:
            raise CommitConflict("its log has grown since it was opened")
        if stored != note.version:
            raise TableError(
                f'{self.location} has commit {stored} of "{note.pipeline}", but its log ends with commit '
                f"{note.version}: the log was truncated. Load into another table."
            )

    def _refuse_strangers(self) -> None:
        there: Iterable[str]
        if is_remote(self.location):
            there = (each.path for each in files_of(delta_store(self.location, self._options)))
        else:
            there = files_below(self.location)
        if any(not _OURS.fullmatch(name) for name in there):
            check_owner(None, "", self.location)
        check_apart(self.location)

    def _files_in_log(self) -> set[str]:
        """All files of the newest version, and those that only older versions need."""
        actions = pa.table(self._existing().get_add_actions())
        return {unquote(path) for path in actions.column("path").to_pylist()} | {
            *self._vacuum(timedelta(0), dry_run=True)
        }

    def _vacuum(self, older_than: timedelta, *, dry_run: bool) -> list[str]:
        """Delete files that the log has named as removed for so long, rounded up."""
        hours = math.ceil(older_than / timedelta(hours=1))
        return self._existing().vacuum(hours, dry_run=dry_run, enforce_retention_duration=False)


def _is_data(file: fs.FileInfo) -> bool:
    name = file.base_name
    return bool(name.startswith("part-") and name.endswith(".parquet"))


def _schema(table: DeltaTable) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


def _check_types(schema: pa.Schema) -> None:
    """Raise SchemaConflict if Delta has no type for a column, as for a time of day."""
    for field in schema:
        try:
            Field.from_arrow(field)
        except Exception as error:  # deltalake has no class for it
            raise SchemaConflict(
                f'Delta has no type for the column "{field.name}", which is {field.type}: use the format parquet '
                "or iceberg."
            ) from error


def _check_mapping(table: DeltaTable, location: str) -> None:
    """Raise UnusableTarget if columns have other names in files than in the table."""
    mode = table.metadata().configuration.get(MAPPING_MODE) or "none"
    if mode != "none":
        raise UnusableTarget(
            f"{location} has {MAPPING_MODE} = {mode}: its columns have other names in its files, which deltalake does "
            "not write. Load into another table."
        )


def _properties(note: Note) -> CommitProperties:
    custom: dict[str, Any] = {NOTE: note.to_text()}
    transaction = Transaction(note.pipeline, note.version)
    return CommitProperties(custom_metadata=custom, max_commit_retries=0, app_transactions=[transaction])


def _action(file: DataFile, statistics: Mapping[str, Any]) -> AddAction:
    values = {name: partition_text(value) for name, value in file.partition}
    return AddAction(file.path, file.size, values, int(time.time() * 1000), True, json.dumps(statistics))
