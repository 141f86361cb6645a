"""Where tasks put a table's files. It is made on the driver, sent to executors, and makes a new name for every file.

A name is never used twice: a task that runs again writes other files, and those of the first try are orphans.
"""

from __future__ import annotations

import os
import re
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from barnabas.pipelines.tables.errors import SchemaConflict, UnusableTarget

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from barnabas.pipelines.tables.contract import PartitionValues

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_UNSAFE = re.compile(r"(?![\w. -])[\x00-\x7f]")
"""What is escaped in a folder's name: all of ASCII that a file system, an address or a reader may take for its own.

That includes `~`: deltalake writes it as it is and looks for `%7E` when it merges files."""


def is_remote(location: str) -> bool:
    """Whether a location is an address like `s3://...`, and not a path on this machine."""
    return urlsplit(location).scheme not in ("", "file")


def local_path(location: str) -> Path:
    """The path of a location that is not remote."""
    parts = urlsplit(location)
    return Path(unquote(parts.path)) if parts.scheme == "file" else Path(location)


def for_spark(location: str) -> str:
    """A location as Spark has to be told it: a path without `file://` may be one of HDFS to it.

    Nothing is quoted, since Hadoop takes what follows the scheme as it is.
    """
    return location if is_remote(location) else f"file://{local_path(location).absolute()}"


def files_below(location: str) -> Iterator[str]:
    """The names of all files below a location that is not remote, in no order; none if it is not there."""
    folder = local_path(location)
    return (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def check_apart(location: str) -> None:
    """Raise UnusableTarget if a location lies in the folder of a table, whose readers and upkeep would take its files.

    A folder of Iceberg has room for others: whatever is not in its `data` and `metadata` is nothing to it.
    """
    for folder in () if is_remote(location) else local_path(location).resolve().parents:
        if any((folder / log).is_dir() for log in ("_delta_log", "_barnabas/log")):
            raise UnusableTarget(
                f"{location} is inside the table {folder}, which would take its files for its own. Choose another "
                "place."
            )


def partition_text(value: Any) -> str | None:
    """A partition's value as Delta and Hive write it; None for no value."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def partition_folder(values: PartitionValues) -> str:
    """`day=2026-01-31/region=eu`, as every tool reads it."""
    return "/".join(
        f"{_escaped(name)}={NO_VALUE if (text := partition_text(value)) is None else _escaped(text)}"
        for name, value in values
    )


def _escaped(text: str) -> str:
    """A part of a folder's name. Spark makes a character of each `%XX`, so nothing beyond ASCII may become several."""
    return _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", text)


@dataclass(frozen=True, slots=True)
class Destination:
    """Where and how a table's files are written."""

    root: str
    """The table's location: a path or an address."""
    folder: str = ""
    """Where files go below it."""
    suffix: str = ".parquet"
    in_partition_folders: bool = True
    partition_by: tuple[str, ...] = ()
    drops_partition_columns: bool = True
    """Whether the values of partition columns are in the folder's name only, as Hive and Delta have it."""
    empty_is_null: bool = False
    """Whether a partition of an empty text is that of no value, as Delta and Spark's folders have it."""
    whole_paths: bool = False
    """Whether files are named by their whole address, as Iceberg has it."""
    field_ids: pa.Schema | None = None
    """The table's columns with the ids that Iceberg knows them by."""
    io_properties: Mapping[str, str] | None = field(default=None)
    """Settings of pyiceberg's file access; without them addresses are opened by deltalake."""
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    """Those of deltalake."""
    durable: bool = False
    """Whether a file is on the disk before it is reported."""

    def new_name(self, partition: PartitionValues) -> str:
        """A path below the root for a new file."""
        folders = [self.folder, partition_folder(partition) if self.in_partition_folders else ""]
        return "/".join([part for part in folders if part] + [f"part-{uuid.uuid4()}{self.suffix}"])

    def address(self, name: str) -> str:
        """Where a file of this name is."""
        return f"{self.root.rstrip('/')}/{name}"

    def open(self, name: str) -> Any:
        """A binary stream into a new file."""
        address = self.address(name)
        if not is_remote(address):
            path = local_path(address)
            path.parent.mkdir(parents=True, exist_ok=True)
            return path.open("xb", buffering=0)
        if self.io_properties is not None:
            from pyiceberg.io import load_file_io

            return load_file_io(dict(self.io_properties), address).new_output(address).create()
        from barnabas.pipelines.tables.delta.store import delta_store

        return delta_store(self.root, self.storage_options).open_output_stream(name)

    def open_file(self, path: str) -> Any:
        """A binary stream from a file of the table, named as `DataFile.path` has it."""
        address = path if self.whole_paths else self.address(path)
        if not is_remote(address):
            return local_path(address).open("rb")
        if self.io_properties is not None:
            from pyiceberg.io import load_file_io

            return load_file_io(dict(self.io_properties), address).new_input(address).open()
        from barnabas.pipelines.tables.delta.store import delta_store

        return delta_store(self.root, self.storage_options).open_input_file(path)

    def has(self, path: str) -> bool:
        """Whether a file of the table is there."""
        try:
            self.open_file(path).close()
        except FileNotFoundError:
            return False
        return True

    def finish(self, stream: Any) -> None:
        """Close a stream, and sync it if files have to be durable."""
        if self.durable and not is_remote(self.root):
            os.fdatasync(stream.fileno())
        stream.close()

    def check_partition_columns(self, schema: pa.Schema) -> None:
        """Raise SchemaConflict unless every column to partition by is there and has a type that paths can hold."""
        import pyarrow as pa

        for name in self.partition_by:
            if name not in schema.names:
                known = ", ".join(schema.names)
                raise SchemaConflict(f'there is no column "{name}" to partition by; the rows have {known}')
            kind = schema.field(name).type
            if not (
                pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_date(kind) or kind == pa.bool_()
            ):
                raise SchemaConflict(
                    f'the column "{name}" is {kind}: a table is partitioned by text, whole numbers, dates or booleans'
                )
