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

import base64
import fcntl
import json
import os
import time
import uuid
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from barnabas.pipelines.tables.contract import Compaction, DataFile, Size
from barnabas.pipelines.tables.destinations import Destination, check_apart, files_below, local_path, partition_folder
from barnabas.pipelines.tables.errors import Fenced, SchemaConflict, TableError, UnusableTarget
from barnabas.pipelines.tables.interrupts import uninterrupted
from barnabas.pipelines.tables.notes import Note, from_json, upkeep_note
from barnabas.pipelines.tables.rewriting import rewrite, small_files
from barnabas.pipelines.tables.rules import check_owner
from barnabas.pipelines.tables.schemas import merged, plain_schema
from barnabas.pipelines.tables.table import Conflict, Seen, Table, owned, same_partitioning
from barnabas.pipelines.tables.targets import check_parquet

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import timedelta
    from pathlib import Path

OWN: Final = "_barnabas"
STAGED: Final = f"{OWN}/staged"
PENDING: Final = ".parquet.pending"


@dataclass(frozen=True, slots=True)
class Manifest:
    """One commit: what it adds, what it removes, and the table as it is afterwards."""

    note: Note
    number: int
    schema: pa.Schema
    partition_by: tuple[str, ...]
    rows: int
    """In the whole table."""
    added: tuple[tuple[str, str], ...]
    """Where each file is staged, and where it belongs."""
    removed: tuple[str, ...] = ()

    def to_text(self) -> str:
        """The manifest as it is stored."""
        value = {
            "note": self.note.to_json(),
            "schema": base64.b64encode(self.schema.serialize()).decode(),
            "partition_by": self.partition_by,
            "rows": self.rows,
            "added": self.added,
            "removed": self.removed,
        }
        return json.dumps(value, indent=1)

    @classmethod
    def from_text(cls, text: str, number: int) -> Manifest:
        """The manifest that `to_text` made this of."""
        value: dict[str, Any] = json.loads(text)
        return cls(
            from_json(value["note"]),
            number,
            pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value["schema"]))),
            tuple(value["partition_by"]),
            value["rows"],
            tuple((staged, final) for staged, final in value["added"]),
            tuple(value["removed"]),
        )


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
        self._log = self._root / OWN / "log"
        self._lock: int | None = None
        self._last: Manifest | None = None
        """The last manifest, which nobody else can follow up while the lock is held."""
        known = self._manifest()
        self.partition_by = (
            tuple(partition_by) if known is None else same_partitioning(known.partition_by, partition_by, self.location)
        )
        self._wanted: pa.Schema | None = None
        for name in self.partition_by:
            if name.startswith(("_", ".")):
                raise SchemaConflict(
                    f'a folder of plain Parquet cannot be partitioned by "{name}": Arrow and others pass over folders '
                    f"that begin with {name[0]}. Choose another column, or --format delta or iceberg."
                )

    def claim(self) -> None:
        """Lock the table, and rename what a crash left staged. Raises Fenced if another job has it.

        A folder that was removed since is locked anew: what was held then is nothing to others.
        """
        if self._holds():
            return
        while not self._holds():
            self.close()
            self.last_note()
            self._log.mkdir(parents=True, exist_ok=True)
            self._lock = self._locked()
        last = self._manifest()
        if last is not None:
            self._apply(last)

    def _locked(self) -> int:
        descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise Fenced(
                f"another job writes to {self.location} (its lock is held): stop that one first, or load into another "
                "table. Nothing was added."
            ) from error
        return descriptor

    @property
    def _lock_path(self) -> Path:
        return self._root / OWN / "lock"

    def _holds(self) -> bool:
        """Whether the lock is held, and is that of the folder as it is now."""
        if self._lock is None:
            return False
        try:
            return os.path.samestat(self._lock_path.stat(), os.fstat(self._lock))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Let the lock go."""
        self._last = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _look(self) -> Seen:
        last = self._manifest()
        if last is not None:
            return Seen(last.note, last)
        # Empty folders are nobody's: a crash in the first commit leaves those of its partitions.
        if any(not name.startswith(f"{OWN}/") for name in files_below(self.location)):
            check_owner(None, "", self.location)
        check_apart(self.location)
        return Seen(None, None)

    def schema(self) -> pa.Schema | None:
        """The columns of the last manifest, with those that the next commit brings."""
        if self._wanted is not None:
            return self._wanted
        last = self._manifest()
        return None if last is None else last.schema

    def evolve(self, schema: pa.Schema) -> None:
        """The next commit will have these columns, too: old files lack them, and readers see nulls."""
        known = self.schema()
        self._wanted = merged(known and plain_schema(known), plain_schema(schema), self.location)

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
        last = self._claimed()
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
        self._claimed()
        oldest = time.time() - older_than.total_seconds()
        old = [path for path in sorted(self._log.glob("*.json"))[:-1] if path.stat().st_mtime < oldest]
        for path in old:
            path.unlink()
        return len(old)

    def remove_orphans(self, older_than: timedelta, *, but: Collection[str] = ()) -> int:
        """Remove staged files of tasks and jobs that did not get to commit them."""
        self._claimed()
        oldest = time.time() - older_than.total_seconds()
        kept = {self._root / each for each in but}
        staged = (path for path in (self._root / STAGED).glob("*") if path not in kept)
        found = [path for path in staged if path.stat().st_mtime < oldest]
        for path in found:
            path.unlink()
        return len(found)

    def _append(self, last: Manifest | None, note: Note, files: Sequence[DataFile], schema: pa.Schema) -> None:
        number, rows, known = (0, 0, None) if last is None else (last.number, last.rows, last.schema)
        if self._wanted is not None:
            known = self._wanted
        self._write(note, number + 1, merged(known, schema, self.location), rows + note.rows, files, ())
        self._wanted = None

    def _claimed(self) -> Manifest:
        """The last manifest of a table that is there, and that is ours now."""
        owned(self.last_note(), self.location)
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
        draft = self._log.parent / f"{uuid.uuid4()}.draft"
        with draft.open("x") as stream:
            stream.write(manifest.to_text())
            stream.flush()
            os.fsync(stream.fileno())
        _sync_folder(self._root / STAGED)
        with uninterrupted():
            try:
                os.link(draft, self._log / f"{number:020}.json")
            except FileExistsError as error:
                self._last = None
                raise Conflict(f"commit {number} is another job's") from error
            finally:
                draft.unlink()
            self._last = manifest
            _sync_folder(self._log)
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
        if not self._holds():
            return self._newest()
        if self._last is None:
            self._last = self._newest()
        return self._last

    def _newest(self) -> Manifest | None:
        if not self._log.is_dir():
            return None
        last = max(self._log.glob("*.json"), default=None)
        return None if last is None else Manifest.from_text(last.read_text(), int(last.stem))

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

    from barnabas.pipelines.tables.destinations import NO_VALUE

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
