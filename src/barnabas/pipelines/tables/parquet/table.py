"""Plain Parquet files in a folder, which any tool reads, with a log beside them that says what belongs to it.

    orders/_barnabas/log/00000000000000000007.json     a manifest for each commit
    orders/_barnabas/staged/part-….parquet.pending     files that tasks have written
    orders/day=2026-01-31/part-….parquet               the table

A commit is one manifest, which appears under its number at once (a hard link, so two jobs cannot both have it) and is
on the disk before anything else happens. Then its files are renamed to where readers find them. A crash between the two
leaves a manifest whose files are still staged: whoever claims the table next renames them, as often as it takes. Names
that begin with `_` are passed over by Spark, Arrow and Hive, and `.pending` is no Parquet to anyone.

At rest the folder is exact. While files are renamed a reader may see a part of a commit; Delta and Iceberg show all of
it or nothing.

Only for folders that this machine mounts: at an address there is no lock, and mostly neither a link nor a rename.
"""

from __future__ import annotations

import os
import time
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, ClassVar, Final

from barnabas.pipelines.tables.contract import Compaction, DataFile, Size
from barnabas.pipelines.tables.errors import SchemaConflict, TableError, UnusableTarget
from barnabas.pipelines.tables.files.destinations import (
    Destination,
    check_apart,
    files_below,
    local_path,
    partition_folder,
)
from barnabas.pipelines.tables.files.rewriting import rewrite, small_files
from barnabas.pipelines.tables.files.schemas import merge_columns, plain_schema
from barnabas.pipelines.tables.interrupts import uninterrupted
from barnabas.pipelines.tables.notes import Note, upkeep_note
from barnabas.pipelines.tables.parquet.lock import FolderLock
from barnabas.pipelines.tables.parquet.manifest import Manifest, ManifestLog
from barnabas.pipelines.tables.rules import check_owner
from barnabas.pipelines.tables.table import CommitConflict, Table, TableVersion, require_note, same_partitioning
from barnabas.pipelines.tables.targets import check_parquet

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import timedelta
    from pathlib import Path

    import pyarrow as pa

OWN: Final = "_barnabas"
STAGED: Final = f"{OWN}/staged"
PENDING: Final = ".parquet.pending"


class ParquetTable(Table):
    """A folder of Parquet files. It is held by a file lock from the first change until it is closed."""

    format: ClassVar[str] = "parquet"

    def __init__(self, location: str, partition_by: Sequence[str] = ()) -> None:
        """Look at the folder, which need not be there. Raises UnusableTarget, SchemaConflict."""
        check_parquet(location)
        self._root = local_path(location).absolute()
        if self._root.exists() and not self._root.is_dir():
            raise UnusableTarget(f"{self._root} is a file, and a table is a folder: choose another place")
        self.location = str(self._root)
        self._log = ManifestLog(self._root / OWN / "log")
        self._lock = FolderLock(self._root / OWN / "lock", self.location)
        self._last: Manifest | None = None
        """The last manifest, which nobody else can follow up while the lock is held."""
        known = self._manifest()
        self.partition_by = (
            tuple(partition_by) if known is None else same_partitioning(known.partition_by, partition_by, self.location)
        )
        self._new_columns: pa.Schema | None = None
        for name in self.partition_by:
            if name.startswith(("_", ".")):
                raise SchemaConflict(
                    f'a folder of plain Parquet cannot be partitioned by "{name}": Arrow and others pass over folders '
                    f"that begin with {name[0]}. Choose another column, or the format delta or iceberg."
                )

    def claim(self) -> None:
        """Lock the table, and rename what a crash left staged. Raises Fenced if another job has it.

        A folder that was removed since is locked anew: what was held then is nothing to others.
        """
        if self._lock.is_held:
            return
        while not self._lock.is_held:
            self.close()
            self.last_note()
            self._log.folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        last = self._manifest()
        if last is not None:
            self._apply(last)

    def close(self) -> None:
        """Let the lock go."""
        self._last = None
        self._lock.release()

    def _look(self) -> TableVersion:
        last = self._manifest()
        if last is not None:
            return TableVersion(last.note, last)
        # Empty folders are nobody's: a crash in the first commit leaves those of its partitions.
        if any(not name.startswith(f"{OWN}/") for name in files_below(self.location)):
            check_owner(None, "", self.location)
        check_apart(self.location)
        return TableVersion(None, None)

    def schema(self) -> pa.Schema | None:
        """The columns of the last manifest, with those that the next commit brings."""
        if self._new_columns is not None:
            return self._new_columns
        last = self._manifest()
        return None if last is None else last.schema

    def evolve(self, schema: pa.Schema) -> None:
        """The next commit will have these columns, too: old files lack them, and readers see nulls."""
        known = self.schema()
        self._new_columns = merge_columns(known and plain_schema(known), plain_schema(schema), self.location)

    def destination(self) -> Destination:
        """Files are staged, and synced before they are reported."""
        return Destination(
            self.location,
            folder=STAGED,
            suffix=PENDING,
            in_partition_folders=False,
            partition_by=self.partition_by,
            empty_is_null=True,
            durable=True,
        )

    def size(self) -> Size:
        """Rows by the manifest, files by the folder."""
        last = self._manifest()
        files = self._files()
        return Size(0 if last is None else last.rows, len(files), sum(file.size for file in files))

    def compact(self, target_bytes: int) -> Compaction:
        """Write small files anew, partition by partition. A reader sees rows twice until the old ones are removed."""
        last = self._claimed_manifest()
        small = small_files(self._files(), target_bytes)
        if not small:
            return Compaction(0, 0)
        written = rewrite(small, self.destination(), last.schema, target_bytes)
        self._write(
            upkeep_note(last.note), last.number + 1, last.schema, last.rows, written, tuple(file.path for file in small)
        )
        return Compaction(len(small), len(written))

    def expire(self, older_than: timedelta) -> int:
        """Remove old manifests; the last one stays. No data goes: a plain folder has one version."""
        self._claimed_manifest()
        oldest = time.time() - older_than.total_seconds()
        old = [path for path in self._log.all_but_newest() if path.stat().st_mtime < oldest]
        for path in old:
            path.unlink()
        return len(old)

    def remove_orphans(self, older_than: timedelta, *, but: Collection[str] = ()) -> int:
        """Remove staged files of tasks and jobs that did not get to commit them."""
        self._claimed_manifest()
        oldest = time.time() - older_than.total_seconds()
        kept = {self._root / each for each in but}
        staged = (path for path in (self._root / STAGED).glob("*") if path not in kept)
        found = [path for path in staged if path.stat().st_mtime < oldest]
        for path in found:
            path.unlink()
        return len(found)

    def _append(self, last: Manifest | None, note: Note, files: Sequence[DataFile], schema: pa.Schema) -> None:
        number, rows, known = (0, 0, None) if last is None else (last.number, last.rows, last.schema)
        if self._new_columns is not None:
            known = self._new_columns
        self._write(note, number + 1, merge_columns(known, schema, self.location), rows + note.rows, files, ())
        self._new_columns = None

    def _claimed_manifest(self) -> Manifest:
        """The last manifest of a table that is there, and that is ours now."""
        require_note(self.last_note(), self.location)
        self.claim()
        last = self._manifest()
        assert last is not None
        return last

    def _write(
        self,
        note: Note,
        number: int,
        schema: pa.Schema,
        rows: int,
        files: Sequence[DataFile],
        removed: tuple[str, ...],
    ) -> None:
        added = tuple((file.path, _final_name(file)) for file in files)
        self._make_folders(final for _, final in added)
        manifest = Manifest(note, number, schema, self.partition_by, rows, added, removed)
        draft = self._log.draft(manifest)
        _sync_folder(self._root / STAGED)
        with uninterrupted():
            try:
                self._log.publish(draft, number)
            except FileExistsError as error:
                self._last = None
                raise CommitConflict(f"another job has made commit {number}") from error
            self._last = manifest
            _sync_folder(self._log.folder)
            self._apply(manifest)

    def _apply(self, manifest: Manifest) -> None:
        """Move a manifest's files to where they belong; those that are there already stay."""
        self._make_folders(final for _, final in manifest.added)
        folders = set()
        for staged, final in manifest.added:
            target = self._root / final
            folders.add(target.parent)
            try:
                (self._root / staged).rename(target)
            except FileNotFoundError as error:
                if not target.exists():
                    raise TableError(
                        f"{target} is missing, and manifest {manifest.number} names it: somebody removed it. Restore "
                        "it, or load into another table."
                    ) from error
        for name in manifest.removed:
            (self._root / name).unlink(missing_ok=True)
            folders.add((self._root / name).parent)
        for folder in folders:
            _sync_folder(folder)

    def _make_folders(self, names: Iterable[str]) -> None:
        """Make room for files. A manifest that names them comes after that: with it there is no way back."""
        for folder in {(self._root / name).parent for name in names}:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise TableError(f"{folder} cannot be made ({error.strerror})") from error

    def _manifest(self) -> Manifest | None:
        """The last one. Its file is looked for once while the lock is held: the log may be long."""
        if not self._lock.is_held:
            return self._log.newest()
        if self._last is None:
            self._last = self._log.newest()
        return self._last

    def _files(self) -> list[DataFile]:
        """The table's files, without the number of their rows."""
        found = sorted(
            path.relative_to(self._root)
            for path in self._root.rglob("*.parquet")
            if OWN not in path.relative_to(self._root).parts
        )
        return [DataFile(str(path), -1, (self._root / path).stat().st_size, folder_values(path)) for path in found]


def folder_values(path: Path) -> tuple[tuple[str, str | None], ...]:
    """The partition that a file's folders name, as text."""
    from urllib.parse import unquote

    from barnabas.pipelines.tables.files.destinations import NO_VALUE

    pairs = [part.partition("=") for part in path.parts[:-1]]
    return tuple((unquote(name), None if text == NO_VALUE else unquote(text)) for name, _, text in pairs)


def _final_name(file: DataFile) -> str:
    name = PurePosixPath(file.path).name.removesuffix(".pending")
    folder = partition_folder(file.partition)
    return f"{folder}/{name}" if folder else name


def _sync_folder(folder: Path) -> None:
    if not folder.exists():
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
