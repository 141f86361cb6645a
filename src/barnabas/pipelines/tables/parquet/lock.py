"""The lock of a folder of plain Parquet: one job writes to it at a time."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

from barnabas.pipelines.tables.errors import Fenced

if TYPE_CHECKING:
    from pathlib import Path


class FolderLock:
    """A file that is locked while a job has the table."""

    def __init__(self, path: Path, location: str) -> None:
        self._path = path
        self._location = location
        self._descriptor: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether the lock is held, and is that of the folder as it is now: the folder may have been removed since."""
        if self._descriptor is None:
            return False
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def acquire(self) -> None:
        """Take the lock. Raises Fenced if another job has it."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise Fenced(
                f"another job writes to {self._location} (its lock is held): stop that job first, or load into another "
                "table. Nothing was added."
            ) from error
        self._descriptor = descriptor

    def release(self) -> None:
        """Let the lock go, if it is held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
