"""The files of a Delta table at an address, by deltalake's own store: they go where its log goes, by the same options.

Names are paths below the table's root and are taken as they are. pyarrow's file systems would take the whole address
apart, and `c=a%2Fb` for `c=a/b`, where the log does not look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from barnabas.pipelines.tables.errors import UnusableTarget

if TYPE_CHECKING:
    from collections.abc import Mapping


def delta_store(root: str, options: Mapping[str, str] | None) -> fs.PyFileSystem:
    """The files below a root, as a file system. Raises UnusableTarget."""
    try:
        return fs.PyFileSystem(DeltaStorageHandler(root, None if options is None else dict(options)))
    except (DeltaError, OSError) as error:
        raise UnusableTarget(f"there are no files at {root}: {error}") from error


def files_of(store: fs.PyFileSystem) -> list[fs.FileInfo]:
    """All files of a store."""
    return [each for each in store.get_file_info(fs.FileSelector("", recursive=True)) if each.is_file]
